//go:build unix

package session

import (
	"io/fs"
	"os"
	"syscall"
)

// private says that the modes of files tell who may read them.
const private = true

// owned reports whether a file belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
