package cluster

import (
	"os"
	"syscall"
)

// tiedToParent makes a child die with the thread that starts it, which covers what no cleanup does: a test's
// time-out, a panic, SIGKILL. Its process group is its own, so that Ctrl-C at a terminal reaches our program alone,
// which then stops the children in order.
func tiedToParent(attributes *syscall.SysProcAttr) *syscall.SysProcAttr {
	tied := syscall.SysProcAttr{}
	if attributes != nil {
		tied = *attributes
	}
	tied.Pdeathsig, tied.Setpgid = syscall.SIGKILL, true
	return &tied
}

// terminate also wakes a suspended program, which could not react otherwise.
func terminate(process *os.Process) error {
	err := process.Signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	return process.Signal(syscall.SIGCONT)
}
