//go:build !linux

package slapd

import "syscall"

// tiedToParent has no counterpart here: after a killed test, slapd stays.
func tiedToParent() *syscall.SysProcAttr { return nil }

// suspended has no counterpart here: it takes the signal for the deed.
func suspended(int) error { return nil }
