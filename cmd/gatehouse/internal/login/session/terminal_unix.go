//go:build unix

package session

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The terminal of a process.
const (
	terminalIn  = "/dev/tty"
	terminalOut = "/dev/tty"
)

// hideTyping ends that a terminal shows what is typed.
func hideTyping(terminal *os.File) error {
	mode, err := unix.IoctlGetTermios(int(terminal.Fd()), getMode)
	if err == nil {
		mode.Lflag &^= unix.ECHO
		err = unix.IoctlSetTermios(int(terminal.Fd()), setMode, mode)
	}
	if err != nil {
		return fmt.Errorf("hide what is typed: %w", err)
	}
	return nil
}
