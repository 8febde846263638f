//go:build unix

package store

import (
	"io/fs"
	"syscall"
)

// ownerOf is the user that a file belongs to, as far as the system knows one.
func ownerOf(info fs.FileInfo) (user int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
