package session

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// The console of a process.
const (
	terminalIn  = "CONIN$"
	terminalOut = "CONOUT$"
)

// hideTyping ends that a terminal shows what is typed.
func hideTyping(terminal *os.File) error {
	var mode uint32
	err := windows.GetConsoleMode(windows.Handle(terminal.Fd()), &mode)
	if err == nil {
		err = windows.SetConsoleMode(windows.Handle(terminal.Fd()), mode&^windows.ENABLE_ECHO_INPUT)
	}
	if err != nil {
		return fmt.Errorf("hide what is typed: %w", err)
	}
	return nil
}
