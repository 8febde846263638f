//go:build !unix

package session

// The console of a process.
const (
	terminalIn  = "CONIN$"
	terminalOut = "CONOUT$"
)
