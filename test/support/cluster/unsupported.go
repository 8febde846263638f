//go:build !linux

package cluster

import (
	"fmt"
	"os"
	"syscall"
)

// enterNamespace does nothing here but say so: network namespaces are Linux's.
func enterNamespace() (code int, done bool) {
	if os.Getenv(NamespaceVariable) != namespaceOff {
		fmt.Fprintf(os.Stderr, "cluster: no network namespaces on this system: webhooks are called at %s, not through a Service\n", loopbackAddress)
	}
	return 0, false
}

// tiedToParent has no counterpart here: after a killed test, etcd and the API server stay.
func tiedToParent(attributes *syscall.SysProcAttr) *syscall.SysProcAttr { return attributes }

func terminate(process *os.Process) error { return process.Signal(syscall.SIGTERM) }
