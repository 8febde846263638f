package config

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// maxDepth is how deep directories may nest. Links make any tree endless.
	maxDepth = 32
	// maxReadings is how often a directory is read until two readings agree.
	maxReadings = 10
)

// limits are those of a directory. They keep a mistake, such as a directory of
// backups, from filling the memory of the server.
type limits struct {
	// fileBytes is the largest size of a file, and totalBytes that of all files together.
	fileBytes, totalBytes int
	// documents is the largest number of documents, of files and of directories.
	documents int
}

// defaultLimits are far above any real configuration: 100,000 access tokens, which are
// 30 to 60 MiB, in one file or in as many, and half as much of anything.
func defaultLimits() limits {
	return limits{fileBytes: 48 << 20, totalBytes: 64 << 20, documents: 150_000}
}

// file is a file as it was read.
type file struct {
	// path is relative to the directory, with slashes.
	path string
	data []byte
}

// tree is a directory as it was read.
type tree struct {
	dir    string
	limits limits
	files  []file // sorted by path
	found  diagnostic.List
	// unread are the files and directories that found is about.
	unread Unread
	// referenced are the files that documents name.
	referenced []referencedFile
	// digest is the hash of files, state that of files, referenced and found. A referenced
	// file may be a secret, which nobody must be able to guess by the digest.
	digest, state string
	// mayBeEmpty is true if no document is needed.
	mayBeEmpty bool
}

// readStable reads the directory until two readings in a row agree. A kubelet and git-sync
// replace a link during a reading; an editor writes files one after the other.
func readStable(dir string) tree {
	return stable(readTree(dir, defaultLimits()), func() tree { return readTree(dir, defaultLimits()) })
}

// stable reads until a reading agrees with the one before it, the first of which
// is last.
func stable(last tree, read func() tree) tree {
	for range maxReadings - 1 {
		next := read()
		if next.state == last.state {
			return next
		}
		last = next
	}
	last.unread.All = true
	last.found = append(last.found, diagnostic.Diagnostic{
		Severity: diagnostic.Error,
		Source:   last.dir,
		Message:  fmt.Sprintf("the directory changed during each of %d reads", maxReadings),
		Hint:     "wait until nothing writes to it, or write to another directory and switch a symbolic link",
	})
	last.seal()
	return last
}

// readTree reads the directory once. A file that cannot be read is a diagnostic.
func readTree(dir string, l limits) tree {
	r := reader{tree: tree{dir: dir, limits: l}}
	r.root()
	return r.finish()
}

// readPaths reads files and directories once, beside texts by their names. They are below the directory "", so that paths from the root of
// the file system are too.
func readPaths(paths []string, texts map[string][]byte) tree {
	r := reader{tree: tree{limits: defaultLimits(), mayBeEmpty: true}}
	for name, text := range texts {
		r.tree.files = append(r.tree.files, file{path: name, data: text})
	}
	for _, path := range paths {
		rel := filepath.ToSlash(filepath.Clean(path))
		if rel == "." {
			rel = ""
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			r.problem(rel, "cannot be read: "+reason(err), "")
		case info.IsDir():
			r.directory(path, rel, []fs.FileInfo{info})
		case !info.Mode().IsRegular():
			r.problem(rel, "is not a regular file", "")
		default:
			r.file(path, rel)
		}
	}
	return r.finish()
}

// finish returns the tree of a reading, with each file once.
func (r *reader) finish() tree {
	slices.SortFunc(r.tree.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	r.tree.files = slices.CompactFunc(r.tree.files, func(a, b file) bool { return a.path == b.path })
	r.tree.readReferencedFiles()
	r.tree.found.Sort()
	r.tree.seal()
	return r.tree
}

// root reads the directory itself.
func (r *reader) root() {
	dir := r.tree.dir
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		r.problem("", "cannot be read: "+reason(err), "--config takes a directory of YAML and JSON documents")
	case !info.IsDir():
		r.problem("", "is not a directory", "--config takes a directory of YAML and JSON documents")
	default:
		r.directory(dir, "", []fs.FileInfo{info})
	}
}

// seal computes digest and state.
func (t *tree) seal() {
	h := sha256.New()
	part := func(b []byte) {
		// With its length in front no content can pass for a path.
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b)))) // #nosec G115 -- a length
		_, _ = h.Write(b)
	}
	for _, f := range t.files {
		part([]byte(f.path))
		part(f.data)
	}
	t.digest = hex.EncodeToString(h.Sum(nil))
	for _, f := range t.found {
		part([]byte(f.String()))
	}
	for _, a := range t.referenced {
		part([]byte(a.path))
		part(a.data)
		part([]byte(a.problem))
	}
	t.state = hex.EncodeToString(h.Sum(nil))
}

// reader is one reading of a directory.
type reader struct {
	tree  tree
	total int
	// files and dirs are how many were read.
	files, dirs int
	full        bool // a limit was reached: nothing more is read
}

// problem reports an error of a file or a directory by its path below the root. The path
// "" is the root with everything below it.
func (r *reader) problem(rel, message, hint string) {
	source := rel
	if rel == "" {
		source, r.tree.unread.All = r.tree.dir, true
	} else {
		r.tree.unread.Paths = append(r.tree.unread.Paths, rel)
	}
	r.tree.found = append(r.tree.found, diagnostic.Diagnostic{
		Severity: diagnostic.Error, Source: source, Message: message, Hint: hint,
	})
}

// directory reads the directory at path, whose path below the root is rel.
// above are the directories on the way to it, itself included.
func (r *reader) directory(path, rel string, above []fs.FileInfo) {
	if len(above) > maxDepth {
		r.problem(rel, fmt.Sprintf("directories nest deeper than %d", maxDepth), "")
		return
	}
	if most := r.tree.limits.documents; r.dirs == most {
		r.problem("", fmt.Sprintf("holds more than %d directories", most), "")
		r.full = true
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		r.problem(rel, "cannot be read: "+reason(err), "")
		return
	}
	r.dirs++
	for _, entry := range entries {
		if r.full {
			return
		}
		name := entry.Name()
		relevant := isDocument(name)
		if strings.HasPrefix(name, ".") || (!relevant && entry.Type().IsRegular()) {
			continue
		}
		below, belowRel := filepath.Join(path, name), joinRel(rel, name)
		info, err := os.Stat(below)
		switch {
		case err != nil:
			r.problem(belowRel, "cannot be read: "+reason(err), "")
		case info.IsDir():
			if slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }) {
				r.problem(belowRel, "is a symbolic link to a directory above it", "remove the link")
				continue
			}
			r.directory(below, belowRel, append(slices.Clip(above), info))
		case !relevant:
		case !info.Mode().IsRegular():
			// Opening a pipe would block until it has a writer.
			r.problem(belowRel, "is not a regular file", "")
		default:
			r.file(below, belowRel)
		}
	}
}

func (r *reader) file(path, rel string) {
	l := r.tree.limits
	if r.files++; r.files > l.documents {
		r.problem("", fmt.Sprintf("holds more than %d files", l.documents), "")
		r.full = true
		return
	}
	data, err := readFile(path, l)
	if err != nil {
		r.problem(rel, "cannot be read: "+reason(err), "")
		return
	}
	if len(data) > l.fileBytes {
		r.problem(rel, fmt.Sprintf("is larger than %d MiB", l.fileBytes>>20), "split it into several files")
		return
	}
	r.total += len(data)
	if r.total > l.totalBytes {
		r.problem("", fmt.Sprintf("its files exceed %d MiB in total", l.totalBytes>>20), "")
		r.full = true
		return
	}
	r.tree.files = append(r.tree.files, file{path: rel, data: data})
}

// readFile reads at most one byte more than a file may have.
func readFile(path string, l limits) ([]byte, error) {
	f, err := os.Open(path) // #nosec G304 -- the operator names the directory
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(l.fileBytes)+1))
	return data, errors.Join(err, f.Close())
}

// isDocument reports whether a file of this name is read.
func isDocument(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
	default:
		return false
	}
	switch name {
	case "kustomization.yaml", "kustomization.yml":
		return false
	default:
		return true
	}
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

func joinRel(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}

// reason returns an error of package os without operation and path, which the diagnostic
// has already.
func reason(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}
