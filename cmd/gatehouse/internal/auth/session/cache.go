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
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// maxFileBytes bounds a stored credential: two tokens of 64 KiB, escaped or encrypted.
const maxFileBytes = 1 << 20

// Cache stores credentials in files of a directory that only its owner can read. The names of files are hashes. A Cache is
// used by one goroutine at a time.
type Cache struct {
	// Dir is created if it does not exist. No other program uses it.
	Dir string
	// Store selects where the secrets are; empty is StoreAuto.
	Store Store
	// Keyring holds the keys of encrypted files. It may be nil, for none.
	Keyring Keyring
	// UnlockTimeout is how long a person may take to unlock the keyring. Zero means that nobody is asked: a locked
	// keyring cannot be used then.
	UnlockTimeout time.Duration
	// Waiting is called when the keyring takes longer than a second. It may be nil.
	Waiting func()
	// Program is how people call this program, for hints: "gatehouse" or "kubectl
	// gatehouse".
	Program string

	// keyringErr is why the keyring cannot be used, known after the first call.
	keyringErr error
	// unreadable is why a stored login is treated as missing.
	unreadable error
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
	return "", errors.New("there is no home directory to store the login in (hint: --cache-dir DIR)")
}

// file is the content of a file. A file of another version is a miss.
type file struct {
	Version int `json:"version"`
	// Credential is the whole credential, or only its Source if the rest is Sealed.
	Credential
	// Sealed is the credential in JSON, encrypted with AES-256-GCM. KeyringAccount is the account of its key in the
	// OS keyring.
	KeyringAccount string `json:"keyringAccount,omitempty"`
	Sealed         []byte `json:"sealed,omitempty"`
}

// parseFile returns the content of a file, or nil if it cannot be understood.
func parseFile(data []byte) *file {
	var f file
	if len(data) > maxFileBytes || json.Unmarshal(data, &f) != nil || f.Version != fileVersion || (f.Token == "") == (f.KeyringAccount == "") {
		return nil // of another version, cut off, or empty: a login replaces it
	}
	return &f
}

const fileVersion = 1

// open makes the directory if it is missing, and opens it if nobody else can
// change or read what is in it.
func (c *Cache) open() (*os.Root, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the login cannot be stored: %w (hint: --cache-dir DIR)", err)
	}
	root, err := c.openExisting()
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && private && info.Mode().Perm()&0o077 != 0 {
		if info.Mode().Perm()&0o022 != 0 {
			err = fmt.Errorf("%s: other users can write to this directory (mode %04o), so its logins are not used (hint: rm -r %s)", c.Dir, info.Mode().Perm(), shell.Quote(c.Dir))
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
		return nil, fmt.Errorf("%s: belongs to another user (hint: --cache-dir DIR)", c.Dir)
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

// read returns the credential, or nil if there is none or it cannot be understood. It returns an error if others could have
// read or written it, or if it is in the keyring, which cannot be used, and Store allows no other place.
func (e entry) read() (*Credential, error) {
	f, err := e.readFile()
	if f == nil || err != nil {
		return nil, err
	}
	if f.KeyringAccount == "" {
		return &f.Credential, nil
	}
	c, err := e.unseal(f)
	if err != nil && e.cache.Store != StoreKeyring {
		e.cache.unreadable = err
		return nil, nil // a login replaces it
	}
	if err != nil {
		return nil, fmt.Errorf("the stored login cannot be read: %w (hint: unlock the keyring, or log in with --token-store file)", err)
	}
	return c, nil
}

// readFile returns the content of the file, or nil if there is none or it cannot be understood. It returns an error if
// others could have read or written it.
func (e entry) readFile() (content *file, err error) {
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
		return nil, fmt.Errorf("%s: belongs to another user %s", e.path(), hint)
	case private && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: other users can access this login (mode %04o), so it is not used %s", e.path(), info.Mode().Perm(), hint)
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
	return parseFile(data), nil
}

// write replaces the credential, wherever the one before is. Its secrets are then in one place: a file, or a file whose key is
// in the keyring.
func (e entry) write(c *Credential) error {
	account := ""
	if before, err := e.readFile(); err == nil && before != nil {
		account = before.KeyringAccount
	}
	content := &file{Version: fileVersion, Credential: *c}
	if e.cache.Store != StoreFile {
		sealed, err := e.seal(c, account)
		switch {
		case err == nil:
			content = sealed
		case e.cache.Store == StoreKeyring:
			return fmt.Errorf("%w (hint: unlock the keyring, or --token-store file)", err)
		}
	}
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := e.replace(e.file(), data); err != nil {
		return err
	}
	if account != "" && content.KeyringAccount != account {
		_ = e.cache.deleteKey(account) // nothing is left that it decrypts
	}
	return nil
}

// replace replaces a file as a whole, through a file that nobody else can have opened.
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
		if account := keyringAccountIn(root, f); account != "" {
			if err := c.deleteKey(account); err != nil {
				problems = append(problems, fmt.Errorf("the key of a deleted login is still in the OS keyring, as account %s of %s: %w", printable(account), keyringService, err))
			}
		}
		if err := root.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		} else if strings.HasSuffix(f.Name(), ".json") {
			removed++
		}
	}
	return removed, errors.Join(problems...)
}

// keyringAccountIn returns the account of the key that a file is encrypted with, empty if there is none. It reads regular files
// only: opening a pipe would block.
func keyringAccountIn(root *os.Root, f fs.DirEntry) string {
	if !f.Type().IsRegular() || !strings.HasSuffix(f.Name(), ".json") {
		return ""
	}
	data, err := root.ReadFile(f.Name())
	if err != nil {
		return ""
	}
	if content := parseFile(data); content != nil {
		return content.KeyringAccount
	}
	return ""
}

// isOurs reports whether a file has a name that this package gives: the directory
// may have been named by mistake.
func isOurs(file string) bool {
	name, _, _ := strings.Cut(file, ".")
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == sha256.Size
}
