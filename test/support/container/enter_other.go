//go:build !linux

package container

import "syscall"

// Enter does nothing here: mount namespaces are Linux's.
func Enter() {}

func attributes(*Options) *syscall.SysProcAttr { return nil }
