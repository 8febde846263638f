//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package session

import "golang.org/x/sys/unix"

// The calls that get and set the mode of a terminal.
const getMode, setMode = unix.TIOCGETA, unix.TIOCSETA
