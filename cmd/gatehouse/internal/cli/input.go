package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// IsTerminalInput tells whether a person types.
func IsTerminalInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && IsTerminal(file)
}

// StdinName is what standard input is called in messages.
const StdinName = "standard input"

// Cause is what went wrong with a file, without its name and without what was
// tried.
func Cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}

// IsTerminalReader tells whether a person would have to type.
func IsTerminalReader(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && IsTerminal(file)
}

// CheckDir tells why what a flag names is no directory.
func CheckDir(flag, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%s: %q cannot be read: %w (hint: name a directory that is there)", flag, dir, Cause(err))
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %q is not a directory", flag, dir)
	}
	return nil
}
