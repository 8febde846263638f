package config

import (
	"io/fs"
	"syscall"
	"time"
)

// identity is which file this is, and when anything about it changed last, which
// nobody can set back.
func identity(info fs.FileInfo) (device, inode uint64, changed time.Time) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, info.ModTime()
	}
	return stat.Dev, stat.Ino, time.Unix(stat.Ctim.Unix())
}
