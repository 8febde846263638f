package gatehouse

import "syscall"

// tiedToParent makes the program die with the thread that starts it, which covers what no cleanup does: a test's
// time-out, a panic, SIGKILL. Its process group is its own, so that Ctrl-C at a terminal reaches the test alone.
func tiedToParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
