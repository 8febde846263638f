//go:build !linux

package gatehouse

import "syscall"

// tiedToParent has no counterpart here: after a killed test, the program stays.
func tiedToParent() *syscall.SysProcAttr { return nil }
