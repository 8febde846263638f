package config

import (
	"io/fs"
	"syscall"
	"time"
)

// fileIdentity returns the device and inode of a file, and the time of its last change,
// which cannot be set back.
func fileIdentity(info fs.FileInfo) (device, inode uint64, changed time.Time) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, info.ModTime()
	}
	return stat.Dev, stat.Ino, time.Unix(stat.Ctim.Unix())
}
