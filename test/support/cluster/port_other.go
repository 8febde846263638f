//go:build !linux

package cluster

import (
	"fmt"
	"net"
	"net/netip"
)

// sharePort has no effect that would be of use here.
const sharePort = "--permit-port-sharing=false"

// port is a TCP port that was free a moment ago.
type port struct {
	address netip.AddrPort
}

func reservePort(ip netip.Addr) (*port, error) {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return nil, fmt.Errorf("find a free port on %s: %w", ip, err)
	}
	defer listener.Close() //nolint:errcheck // nothing was written to it
	return &port{address: listener.Addr().(*net.TCPAddr).AddrPort()}, nil
}

func (*port) release() {}
