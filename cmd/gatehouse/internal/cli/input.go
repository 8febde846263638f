package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

// IsTerminalInput reports whether a person would have to type the input.
func IsTerminalInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && IsTerminal(file)
}

// StdinName is the name of standard input in messages.
const StdinName = "standard input"

// Cause is patherr.Cause.
func Cause(err error) error { return patherr.Cause(err) }

// CheckDir returns an error if the value of a flag is not a directory.
func CheckDir(flag, dir string) error {
	info, err := os.Stat(dir) // #nosec G703 -- the user names the directory
	if err != nil {
		return fmt.Errorf("%s: %q cannot be read: %w (hint: name an existing directory)", flag, dir, Cause(err))
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %q is not a directory", flag, dir)
	}
	return nil
}
