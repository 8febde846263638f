package config

import (
	"hash/fnv"
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

// FileSet is a set of files. It keeps hashes instead of paths, because there may be a
// hundred thousand. It is sorted.
type FileSet []uint64

// NewFileSet returns the set of the files.
func NewFileSet(files []string) FileSet {
	set := make(FileSet, len(files))
	for i, file := range files {
		set[i] = hashOf(file)
	}
	slices.Sort(set)
	return set
}

// Has reports whether the file is in the set.
func (s FileSet) Has(file string) bool {
	_, found := slices.BinarySearch(s, hashOf(file))
	return found
}

func hashOf(file string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(file)) // it never fails
	return h.Sum64()
}
