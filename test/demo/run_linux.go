package main

import "syscall"

// tiedToParent makes a program die with the thread that starts it, which covers
// what no cleanup does: SIGKILL. Its process group is its own, so that Ctrl-C
// reaches the demonstration alone, which then ends it.
func tiedToParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
