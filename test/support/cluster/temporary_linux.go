package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// temporary is a directory for one cluster. Its owner holds a lock on a file in it; the kernel drops the lock when the
// owner ends in whatever way, so the next start can tell directories in use from those a killed test left, and removes
// the latter.
type temporary struct {
	path string
	lock *os.File
}

const (
	temporaryPattern = "gatehouse-cluster-*"
	lockName         = "lock"
)

func newTemporary() (*temporary, error) {
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", temporaryPattern)
	if err != nil {
		return nil, fmt.Errorf("make a directory for the control plane: %w", err)
	}
	made := &temporary{path: path}
	err = made.own()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("own the control plane's directory: %w", err), made.remove())
	}
	return made, nil
}

// own gives the lock file its name only once it is locked: a sweep that comes in between leaves a directory alone that
// has no lock file.
func (t *temporary) own() error {
	pending := filepath.Join(t.path, lockName+".pending")
	lock, err := os.OpenFile(pending, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a path of our own making
	if err != nil {
		return err
	}
	t.lock = lock
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return err
	}
	return os.Rename(pending, filepath.Join(t.path, lockName))
}

func (t *temporary) remove() error {
	err := os.RemoveAll(t.path)
	if t.lock != nil {
		err = errors.Join(err, t.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("remove the control plane's directory: %w", err)
	}
	return nil
}

// sweep removes what nobody owns any more. It is a courtesy: what it cannot remove is not worth a failed test.
func sweep(parent string) {
	directories, err := filepath.Glob(filepath.Join(parent, temporaryPattern))
	if err != nil {
		return
	}
	for _, directory := range directories {
		lock, err := os.Open(filepath.Join(directory, lockName)) //nolint:gosec // a path of our own making
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(directory)
		}
		_ = lock.Close()
	}
}
