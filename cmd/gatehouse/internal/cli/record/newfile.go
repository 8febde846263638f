package record

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// writeNew makes a file by a function, and puts it in its place when it is complete. The file must not
// exist unless it may be replaced.
func writeNew(path string, replace bool, write func(io.Writer) error) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".gatehouse-*")
	if err != nil {
		return fmt.Errorf("%s: %w", path, cli.Cause(err))
	}
	defer os.Remove(temporary.Name()) //nolint:errcheck // it is there only after an error
	err = write(temporary)
	if closed := temporary.Close(); err == nil && closed != nil {
		err = cli.Cause(closed)
	}
	if err == nil {
		if err = place(temporary.Name(), path, replace); err != nil {
			return fmt.Errorf("%s: %w", path, cli.Cause(err))
		}
	}
	return err
}

// place moves a file to where there must be none, unless it may be replaced.
func place(from, to string, replace bool) error {
	if _, err := os.Lstat(to); err == nil && !replace {
		return fs.ErrExist
	}
	return os.Rename(from, to)
}
