package session

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxFileBytes bounds a cached credential: two tokens of 64 KiB, escaped.
const maxFileBytes = 1 << 20

// Cache keeps credentials in files of a directory that only its owner can look
// into. The names of files are hashes.
type Cache struct {
	// Dir is made if there is no such directory. It is this package's alone.
	Dir string
	// Program is how people call this program, for hints: "gatehouse" or "kubectl
	// gatehouse".
	Program string
}

// DefaultDir returns the directory below kubectl's own cache, by the environment and
// the home directory.
func DefaultDir(kubeCacheDir, home string) (string, error) {
	switch {
	case kubeCacheDir != "":
		return filepath.Join(kubeCacheDir, "gatehouse"), nil
	case home != "":
		return filepath.Join(home, ".kube", "cache", "gatehouse"), nil
	}
	return "", errors.New("there is no home directory to keep the login in (hint: --cache-dir DIR)")
}

// file is what is in a file. Another version is a miss.
type file struct {
	Version int `json:"version"`
	Credential
}

const fileVersion = 1

// open makes the directory if it is missing, and opens it if nobody else can
// change or read what is in it.
func (c *Cache) open() (*os.Root, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the login cannot be kept: %w (hint: --cache-dir DIR)", err)
	}
	root, err := c.openExisting()
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && private && info.Mode().Perm()&0o077 != 0 {
		if info.Mode().Perm()&0o022 != 0 {
			err = fmt.Errorf("%s: others may write here (mode %04o), so what is in it is not used (hint: rm -r %s)", c.Dir, info.Mode().Perm(), c.Dir)
		} else {
			// Others saw names, which are hashes; the files have modes of their own.
			err = root.Chmod(".", 0o700)
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// openExisting opens the directory if it is one and ours.
func (c *Cache) openExisting() (*os.Root, error) {
	info, err := os.Lstat(c.Dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: is not a directory (hint: remove it, or --cache-dir DIR)", c.Dir)
	}
	if !owned(info) {
		return nil, fmt.Errorf("%s: belongs to somebody else (hint: --cache-dir DIR)", c.Dir)
	}
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return nil, err
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("%s: was replaced while it was opened", c.Dir), err, root.Close())
	}
	return root, nil
}

// entry is the place of one Identity's credential.
type entry struct {
	cache *Cache
	name  string
}

func (c *Cache) entry(id Identity) entry {
	data, _ := json.Marshal(id) //nolint:errchkjson // strings alone
	sum := sha256.Sum256(data)
	return entry{c, hex.EncodeToString(sum[:])}
}

func (e entry) file() string { return e.name + ".json" }
func (e entry) path() string { return filepath.Join(e.cache.Dir, e.file()) }

// ofSource returns the entries with a credential that may be used and is of a Source,
// whoever logged in there.
func (c *Cache) ofSource(source string) ([]entry, error) {
	root, err := c.openExisting()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files, err := fs.ReadDir(root.FS(), ".")
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, err
	}
	var found []entry
	for _, f := range files {
		name, isCredential := strings.CutSuffix(f.Name(), ".json")
		if !isCredential || !isOurs(name) {
			continue
		}
		e := entry{c, name}
		if kept, err := e.read(); err == nil && kept != nil && kept.Source == source {
			found = append(found, e)
		}
	}
	return found, nil
}

// CountOf returns how many credentials there are of a Source, such as the address of
// a Gatehouse.
func (c *Cache) CountOf(source string) (int, error) {
	found, err := c.ofSource(source)
	return len(found), err
}

// RemoveOf removes the credentials of a Source and tells how many there were.
func (c *Cache) RemoveOf(source string) (removed int, err error) {
	found, err := c.ofSource(source)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, e := range found {
		n, err := c.remove(func(file string) bool { return strings.HasPrefix(file, e.name+".") })
		removed += n
		problems = append(problems, err)
	}
	return removed, errors.Join(problems...)
}

// read returns the credential, or nil if there is none or it cannot be
// understood. It is an error if others could have read or written it.
func (e entry) read() (c *Credential, err error) {
	root, err := e.cache.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	info, err := root.Lstat(e.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hint := "(hint: '" + e.cache.Program + " logout' removes it; then log in again)"
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file %s", e.path(), hint)
	case !owned(info):
		return nil, fmt.Errorf("%s: belongs to somebody else %s", e.path(), hint)
	case private && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: others may read this login (mode %04o), so it is not used %s", e.path(), info.Mode().Perm(), hint)
	}
	f, err := root.Open(e.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a logout meanwhile
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var got file
	if len(data) > maxFileBytes || json.Unmarshal(data, &got) != nil || got.Version != fileVersion || got.Token == "" {
		return nil, nil // of another version, cut off, or empty: a login replaces it
	}
	return &got.Credential, nil
}

// Kept returns the credential of an Identity, nil if there is none that may be used.
func (c *Cache) Kept(id Identity) *Credential {
	if _, err := os.Lstat(c.Dir); err != nil {
		return nil // reading would make the directory
	}
	kept, err := c.entry(id).read()
	if err != nil {
		return nil
	}
	return kept
}

// write replaces the credential as a whole, through a file that nobody else can
// have opened.
func (e entry) write(c *Credential) (err error) {
	data, err := json.Marshal(file{fileVersion, *c})
	if err != nil {
		return err
	}
	return e.replace(e.file(), data)
}

func (e entry) replace(name string, data []byte) (err error) {
	root, err := e.cache.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	temporary := name + "." + rand.Text() + ".tmp"
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}

// Remove removes the credential of an Identity and tells how many there were.
func (c *Cache) Remove(id Identity) (int, error) {
	name := c.entry(id).name
	return c.remove(func(file string) bool { return strings.HasPrefix(file, name+".") })
}

// RemoveAll removes all credentials and tells how many there were.
func (c *Cache) RemoveAll() (int, error) {
	return c.remove(isOurs)
}

// remove removes files, whatever their modes are. Lock files stay: removing one
// that is held would let two hold it. They are empty.
func (c *Cache) remove(which func(file string) bool) (removed int, err error) {
	root, err := c.openExisting()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, f := range files {
		if !which(f.Name()) || strings.HasSuffix(f.Name(), lockSuffix) {
			continue
		}
		if err := root.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		} else if strings.HasSuffix(f.Name(), ".json") {
			removed++
		}
	}
	return removed, errors.Join(problems...)
}

// isOurs reports whether a file has a name that this package gives: the directory
// may have been named by mistake.
func isOurs(file string) bool {
	name, _, _ := strings.Cut(file, ".")
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == sha256.Size
}
