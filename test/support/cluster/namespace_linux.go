package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// enterNamespace runs the program again in a network namespace and returns the exit code and true, with which the caller must
// exit at once. In the second run, and where no namespace can be made, it returns false, and the program goes on.
func enterNamespace() (code int, done bool) {
	switch os.Getenv(NamespaceVariable) {
	case namespaceOff, namespaceInside:
		return 0, false
	case namespaceEnter:
		err := errors.Join(setUpNetwork(), os.Setenv(NamespaceVariable, namespaceInside))
		if err != nil {
			fmt.Fprintln(os.Stderr, "cluster: set up the network:", err)
			return 1, true
		}
		return 0, false
	}

	var errs []error
	for _, attributes := range namespaceAttributes() {
		code, err := runAgain(attributes)
		if err == nil {
			return code, true
		}
		errs = append(errs, err)
	}
	fmt.Fprintf(os.Stderr, "cluster: no network namespace (%v): webhooks are called at %s, not through a Service; "+
		"hint: run as root, or allow user namespaces\n", errors.Join(errs...), loopbackAddress)
	return 0, false
}

// namespaceAttributes returns the ways to make a namespace, best first. Without root, a user namespace gives the
// rights over the network namespace. The user stays who they are in there: a fake root would make programs behave
// differently. They get the two rights that a network of their own is good for.
func namespaceAttributes() []*syscall.SysProcAttr {
	user, group := os.Getuid(), os.Getgid()
	unprivileged := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNET | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: user, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: group, HostID: group, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE},
		Pdeathsig:   syscall.SIGKILL,
	}
	if user != 0 {
		return []*syscall.SysProcAttr{unprivileged}
	}
	// A root without the right to make namespaces, as in many containers, may still make a user namespace.
	return []*syscall.SysProcAttr{{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}, unprivileged}
}

// runAgain runs this program in a new namespace and returns its exit code. An error means that it was not started.
func runAgain(attributes *syscall.SysProcAttr) (int, error) {
	// The child dies with the thread that starts it, so this one must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// The link names the program even if its file was removed meanwhile, as 'go run' and 'go test' do.
	command := exec.Command("/proc/self/exe") //nolint:noctx // it ends by itself, or by the signals passed on
	command.Args = os.Args
	command.Env = append(os.Environ(), NamespaceVariable+"="+namespaceEnter)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = attributes

	// Caught before the start: a signal in between must not end us with the child half born.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)

	err := command.Start()
	if err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case received := <-signals:
				_ = command.Process.Signal(received) // if it is gone, its exit is on its way
			case <-ended:
				return
			}
		}
	}()

	err = command.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return 0, err
	}
	return exitCode(command.ProcessState), nil
}

// exitCode of a program that a signal ended is the shell's. Ending ourselves by the same signal would print a second
// stack trace for SIGQUIT and dump a second core.
func exitCode(state *os.ProcessState) int {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// setUpNetwork brings the loopback interface up and gives it ServiceAddress and the cluster IPs of Services. A few ioctls spare
// a netlink library and the 'ip' program. The kernel derives the prefix from the address's old class: for ServiceAddress C, all of
// 192.0.2.0/24 is local.
func setUpNetwork() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, other := range interfaces {
		if other.Flags&net.FlagUp != 0 {
			return fmt.Errorf("interface %s is up: this is not a new network namespace", other.Name)
		}
	}

	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(socket) //nolint:errcheck // nothing was written to it

	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}

	err = addAddress(socket, "lo:1", netip.MustParseAddr(ServiceAddress))
	if err != nil {
		return err
	}
	services := netip.MustParsePrefix(serviceRange)
	const clusterIPs = "lo:2"
	err = addAddress(socket, clusterIPs, services.Addr().Next())
	if err != nil {
		return err
	}
	mask, err := unix.NewIfreq(clusterIPs)
	if err != nil {
		return err
	}
	err = mask.SetInet4Addr(net.CIDRMask(services.Bits(), 32))
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(socket, unix.SIOCSIFNETMASK, mask)
	if err != nil {
		return fmt.Errorf("make %s local: %w", services, err)
	}
	return nil
}

// addAddress adds an address to the loopback interface. The label makes it one beside 127.0.0.1.
func addAddress(socket int, label string, address netip.Addr) error {
	request, err := unix.NewIfreq(label)
	if err != nil {
		return err
	}
	bytes := address.As4()
	err = request.SetInet4Addr(bytes[:])
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(socket, unix.SIOCSIFADDR, request)
	if err != nil {
		return fmt.Errorf("add %s to lo: %w", address, err)
	}
	return nil
}
