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

// sight is what a directory looks like from outside: the names of what is read,
// sizes, times and inodes. It costs a fraction of reading.
type sight struct {
	sum [sha256.Size]byte
	// quiet means that nothing had changed just before. What changes twice within a
	// tick of the file system's clock may look the same.
	quiet bool
}

// quietFor is the time that nothing may have happened in before a sight. It is
// more than the tick of any file system's clock, which is 2 s on FAT.
const quietFor = 3 * time.Second

// sighting is a sight that is being taken.
type sighting struct {
	hash  hash.Hash
	quiet time.Time // what changed later is not quiet
	loud  bool
	buf   []byte
}

func newSighting(now time.Time) sighting {
	return sighting{hash: sha256.New(), quiet: now.Add(-quietFor)}
}

// file takes up a file, or what is there in its place.
func (s *sighting) file(name string, info fs.FileInfo) {
	device, inode, changed := identity(info)
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

// problem takes up what cannot be read.
func (s *sighting) problem(source, message string) {
	_, _ = s.hash.Write(s.text(s.text(s.buf[:0], source), message))
}

// text appends a text with its length in front.
func (s *sighting) text(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

func (s *sighting) sight() sight {
	return sight{[sha256.Size]byte(s.hash.Sum(nil)), !s.loud}
}

// attachment takes up a file that a document names.
func (r *reader) attachment(path string) {
	file := filepath.FromSlash(path)
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.tree.dir, file)
	}
	info, err := os.Stat(file)
	if err != nil {
		r.sight.problem(path, reason(err))
		return
	}
	r.sight.file(path, info)
}

// outline is what looksAs needs of a tree.
func (t *tree) outline() *tree {
	out := &tree{limits: t.limits, seen: t.seen, attached: make([]attachment, len(t.attached))}
	for i, a := range t.attached {
		out.attached[i].path = a.path
	}
	return out
}

// release gives the memory back that reading much has taken. Nobody would ask for
// it before the next collection, which may be minutes away.
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

// looksAs reports whether the directory looks as it did when it was read, so that
// reading it again would tell nothing new.
func looksAs(dir string, last *tree) bool {
	if !last.seen.quiet {
		return false
	}
	r := reader{tree: tree{dir: dir, limits: last.limits}, sight: newSighting(time.Now()), outside: true}
	r.root()
	for _, a := range last.attached {
		r.attachment(a.path)
	}
	const many = 20_000
	if r.files > many {
		debug.FreeOSMemory() // for the reason of release
	}
	return r.sight.sight().sum == last.seen.sum
}
