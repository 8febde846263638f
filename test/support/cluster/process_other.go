//go:build !linux

package cluster

import (
	"os"
	"syscall"
)

// tiedToParent has no counterpart here: after a killed test, etcd and the API server stay.
func tiedToParent() *syscall.SysProcAttr {
	return nil
}

func terminate(process *os.Process) error {
	return process.Signal(syscall.SIGTERM)
}
