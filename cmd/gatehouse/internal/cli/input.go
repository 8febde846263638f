package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// IsTerminalInput reports whether a person would have to type the input.
func IsTerminalInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && IsTerminal(file)
}

// StdinName is the name of standard input in messages.
const StdinName = "standard input"

// Cause returns the reason of an error about a file, without the name of the file and the operation.
func Cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}

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
