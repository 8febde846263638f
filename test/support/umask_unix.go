//go:build unix

package support

import "syscall"

func setUmask(mask int) { syscall.Umask(mask) }
