// Package patherr shortens errors about files, for messages that name the file already.
package patherr

import (
	"errors"
	"io/fs"
	"os"
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
