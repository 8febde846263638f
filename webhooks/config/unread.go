package config

import (
	"slices"
	"strings"
)

// Unread is the part of a directory that could not be read completely: it may hold
// documents that a Config lacks. Its zero value is nothing. Paths are as in diagnostics.
type Unread struct {
	// All means that every file may hold such documents, because the directory could
	// not be read or a limit for all files together was met.
	All bool
	// Paths are files, and directories with all that is below them.
	Paths []string
}

// MayHold reports whether the file may hold documents that the Config lacks: not one that
// was read completely or is gone.
func (u *Unread) MayHold(file string) bool {
	return u.All || slices.ContainsFunc(u.Paths, func(path string) bool { return file == path || strings.HasPrefix(file, path+"/") })
}
