//go:build unix

package tokens

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and group that another has, so that who could
// read that one can read this one.
func keepOwner(f *os.File, as fs.FileInfo) error {
	stat, ok := as.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	own, err := f.Stat()
	if err != nil {
		return err
	}
	if mine, ok := own.Sys().(*syscall.Stat_t); ok && mine.Uid == stat.Uid && mine.Gid == stat.Gid {
		return nil
	}
	return f.Chown(int(stat.Uid), int(stat.Gid))
}
