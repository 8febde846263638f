//go:build unix

package app

import (
	"golang.org/x/sys/unix"
)

// openFiles returns the limit of open files of the process, 0 if it is not known. Go raises
// the soft limit to the hard one at the start.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 { // "unlimited"
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
