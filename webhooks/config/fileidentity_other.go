//go:build !linux

package config

import (
	"io/fs"
	"time"
)

// fileIdentity returns when the file was last written.
func fileIdentity(info fs.FileInfo) (device, inode uint64, changed time.Time) {
	return 0, 0, info.ModTime()
}
