// Package patherr shortens errors about files, for messages that name the file already, and compares paths.
package patherr

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

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

// IsBelow reports whether a path is a directory or below it. Neither has to exist.
func IsBelow(path, dir string) bool {
	absolute := func(path string) string {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			path = resolved
		}
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return path
	}
	relative, err := filepath.Rel(absolute(dir), absolute(path))
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}
