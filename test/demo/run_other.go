//go:build !linux

package main

import "syscall"

// tiedToParent does nothing: only Linux ends a program with its parent.
func tiedToParent() *syscall.SysProcAttr { return nil }
