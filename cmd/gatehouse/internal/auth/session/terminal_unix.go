//go:build unix

package session

// The terminal of a process.
const (
	terminalIn  = "/dev/tty"
	terminalOut = "/dev/tty"
)
