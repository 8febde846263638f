package cluster

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sharePort makes the API server bind a port that a [port] holds.
const sharePort = "--permit-port-sharing=true"

// port is a TCP port that is ours for as long as we want it: nobody can take it between our choosing it and the API
// server's binding it, or while the API server restarts. A socket is bound to it, not listening, with SO_REUSEPORT;
// another socket can bind the same port only with that option and the same user, and the kernel never picks a bound
// port for anybody who asks for a free one. Connections go to listening sockets alone, so the API server gets them all.
type port struct {
	address netip.AddrPort
	socket  int
}

func reservePort(ip netip.Addr) (*port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	reserved := &port{socket: socket}
	err = reserved.bind(ip)
	if err != nil {
		reserved.release()
		return nil, fmt.Errorf("reserve a port on %s: %w", ip, err)
	}
	return reserved, nil
}

func (p *port) bind(ip netip.Addr) error {
	err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err != nil {
		return err
	}
	err = unix.Bind(p.socket, &unix.SockaddrInet4{Addr: ip.As4()})
	if err != nil {
		return err
	}
	name, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	bound, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("the socket is bound to a %T", name)
	}
	p.address = netip.AddrPortFrom(ip, uint16(bound.Port)) //nolint:gosec // the kernel's port numbers fit
	return nil
}

func (p *port) release() {
	_ = unix.Close(p.socket) // nothing was written to it
}
