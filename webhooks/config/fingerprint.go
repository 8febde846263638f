package config

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
)

// fingerprint stands for the names, sizes, times and inodes of the files of a directory.
// Computing it costs a fraction of reading the files.
type fingerprint struct {
	sum [sha256.Size]byte
	// quiet is true if no file had changed just before. Two changes within a tick of the
	// file system's clock can have the same fingerprint.
	quiet bool
}

// quietFor is how long a file must not have changed for a quiet fingerprint. It is more
// than the tick of any file system's clock, which is 2 s on FAT.
const quietFor = 3 * time.Second

// fingerprinter computes a fingerprint.
type fingerprinter struct {
	hash  hash.Hash
	quiet time.Time // what changed later is not quiet
	loud  bool
	buf   []byte
}

func newFingerprinter(now time.Time) fingerprinter {
	return fingerprinter{hash: sha256.New(), quiet: now.Add(-quietFor)}
}

// file adds a file.
func (s *fingerprinter) file(name string, info fs.FileInfo) {
	device, inode, changed := fileIdentity(info)
	if changed.After(s.quiet) {
		s.loud = true
	}
	s.buf = s.text(s.buf[:0], name)
	for _, number := range []uint64{
		device, inode, uint64(info.Mode()), uint64(info.Size()), // #nosec G115 -- bits, to be compared
		uint64(info.ModTime().UnixNano()), uint64(changed.UnixNano()), // #nosec G115 -- bits, to be compared
	} {
		s.buf = binary.BigEndian.AppendUint64(s.buf, number)
	}
	_, _ = s.hash.Write(s.buf)
}

// problem adds a file that cannot be read.
func (s *fingerprinter) problem(source, message string) {
	_, _ = s.hash.Write(s.text(s.text(s.buf[:0], source), message))
}

// text appends a text with its length in front.
func (s *fingerprinter) text(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

func (s *fingerprinter) fingerprint() fingerprint {
	return fingerprint{[sha256.Size]byte(s.hash.Sum(nil)), !s.loud}
}

// referencedFile adds a file that a document names.
func (r *reader) referencedFile(path string) {
	file := filepath.FromSlash(path)
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.tree.dir, file)
	}
	info, err := os.Stat(file)
	if err != nil {
		r.fingerprint.problem(path, reason(err))
		return
	}
	r.fingerprint.file(path, info)
}

// outline returns the part of a tree that isUnchanged needs.
func (t *tree) outline() *tree {
	out := &tree{limits: t.limits, fingerprint: t.fingerprint, referenced: make([]referencedFile, len(t.referenced))}
	for i, a := range t.referenced {
		out.referenced[i].path = a.path
	}
	return out
}

// release frees the memory of the files. The next garbage collection may be minutes away.
func (t *tree) release() {
	const much = 8 << 20
	total := 0
	for _, f := range t.files {
		total += len(f.data)
	}
	t.files = nil
	if total > much {
		debug.FreeOSMemory()
	}
}

// isUnchanged reports whether the directory has the fingerprint that it had when it was
// read.
func isUnchanged(dir string, last *tree) bool {
	if !last.fingerprint.quiet {
		return false
	}
	r := reader{tree: tree{dir: dir, limits: last.limits}, fingerprint: newFingerprinter(time.Now()), statOnly: true}
	r.root()
	for _, a := range last.referenced {
		r.referencedFile(a.path)
	}
	const many = 20_000
	if r.files > many {
		debug.FreeOSMemory() // for the reason of release
	}
	return r.fingerprint.fingerprint().sum == last.fingerprint.sum
}
