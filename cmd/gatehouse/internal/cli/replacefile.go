package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// newFileMode is the mode of a file that ReplaceFile makes.
const newFileMode = 0o644

// ReplaceFile replaces a file atomically by one with the same mode, or makes it. A symbolic link stays, and its target is replaced.
func ReplaceFile(path string, text []byte) (err error) {
	mode := fs.FileMode(newFileMode)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	} else if _, exists := os.Lstat(path); exists == nil || !errors.Is(err, fs.ErrNotExist) {
		return err // a link to what does not exist must not become a file
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // what went wrong first is reported
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(text)
	for _, step := range []func() error{
		func() error { return file.Chmod(mode) }, file.Sync, file.Close,
		func() error { return os.Rename(file.Name(), path) },
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}
