package session

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// Cache stores credentials: in the OS keyring, or in files of a directory that only its owner can read. Each credential has a
// file, whose name is a hash; that of a credential in the keyring says which item it is. A Cache is used by one goroutine at a
// time.
type Cache struct {
	// Dir is created if it does not exist. No other program uses it.
	Dir string
	// Store selects where the secrets are; empty is StoreAuto.
	Store Store
	// Keyring may be nil, for none.
	Keyring Keyring
	// UnlockTimeout is how long a person may take to unlock the keyring. Zero means that nobody is asked: a locked
	// keyring cannot be used then.
	UnlockTimeout time.Duration
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

// file is the content of a file: a credential, or which item of the keyring it is. A file of another version is a miss.
type file struct {
	Version int `json:"version"`
	*Credential
	// KeyringAccount is the account of the item.
	KeyringAccount string `json:"keyringAccount,omitempty"`
}

const fileVersion = 1

// checkDir makes the directory if it is missing. It returns an error if others can change what is in it.
func (c *Cache) checkDir() error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("the login cannot be stored: %w (hint: --cache-dir DIR)", err)
	}
	info, err := os.Lstat(c.Dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return c.notDirectory()
	case !owned(info):
		return fmt.Errorf("%s: belongs to another user (hint: --cache-dir DIR)", c.Dir)
	case private && info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: other users can write to this directory (mode %04o), so its logins are not used (hint: rm -r %s)", c.Dir, info.Mode().Perm(), shell.Quote(c.Dir))
	case private && info.Mode().Perm()&0o077 != 0:
		// Others saw names, which are hashes; the files have modes of their own.
		return os.Chmod(c.Dir, 0o700) // #nosec G302 -- a directory
	}
	return nil
}

func (c *Cache) notDirectory() error {
	return fmt.Errorf("%s: is not a directory (hint: remove it, or --cache-dir DIR)", c.Dir)
}

// entry is the place of one Identity's credential.
type entry struct {
	cache *Cache
	name  string
}

// entry returns the entry of an Identity. The names of those with a scope begin with that of the same login without one.
func (c *Cache) entry(id Identity) entry {
	whole := id
	if whole.Scope = ""; id.Method == oidcMethod {
		whole.Server = ""
	}
	name := hashOf(whole)
	if id.Scope != "" {
		name += "." + hashOf(id)
	}
	return entry{c, name}
}

func hashOf(id Identity) string {
	data, _ := json.Marshal(id) //nolint:errchkjson // strings alone
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (e entry) path() string { return filepath.Join(e.cache.Dir, e.name+".json") }

// read returns the credential, or nil if there is none or it cannot be understood. It returns an error if others could have
// read or written it, or if it is in the keyring, which cannot be used, and Store allows no other place.
func (e entry) read() (*Credential, error) {
	f, err := e.readFile()
	if f == nil || err != nil {
		return nil, err
	}
	if f.KeyringAccount == "" {
		return f.Credential, nil
	}
	c, err := e.cache.getItem(f.KeyringAccount)
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
func (e entry) readFile() (*file, error) {
	if err := e.cache.checkDir(); err != nil {
		return nil, err
	}
	info, err := os.Lstat(e.path())
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
	data, err := os.ReadFile(e.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a logout meanwhile
	}
	return parseFile(data), err
}

// parseFile returns the content of a file, or nil if it cannot be understood.
func parseFile(data []byte) *file {
	var f file
	if json.Unmarshal(data, &f) != nil || f.Version != fileVersion {
		return nil // of another version, cut off, or empty: a login replaces it
	}
	if stored := f.Credential != nil && f.Token != ""; stored == (f.KeyringAccount != "") {
		return nil
	}
	return &f
}

// write replaces the credential, wherever the one before is. Its secrets are then in one place.
func (e entry) write(c *Credential) error {
	before, err := e.readFile()
	if err != nil || before == nil {
		before = &file{}
	}
	content := &file{Version: fileVersion, Credential: c}
	if e.cache.Store != StoreFile {
		account := cmp.Or(before.KeyringAccount, rand.Text())
		switch err := e.cache.setItem(account, c); {
		case err == nil:
			content = &file{Version: fileVersion, KeyringAccount: account}
		case e.cache.Store == StoreKeyring:
			return fmt.Errorf("%w (hint: unlock the keyring, or --token-store file)", err)
		}
	}
	if err := e.replace(content); err != nil {
		return err
	}
	if before.KeyringAccount != content.KeyringAccount {
		_ = e.cache.deleteItem(before.KeyringAccount) // nobody reads it any more
	}
	return nil
}

// replace replaces the file as a whole, through a file that nobody else can have opened.
func (e entry) replace(content *file) error {
	if err := e.cache.checkDir(); err != nil {
		return err
	}
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(e.cache.Dir, e.name+".*.tmp") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), e.path())
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Remove removes the credential of an Identity, and of one without a scope those of the same login with any, and tells how many
// there were.
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
	info, err := os.Lstat(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case !info.IsDir():
		return 0, c.notDirectory()
	}
	files, err := os.ReadDir(c.Dir)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, f := range files {
		if !which(f.Name()) || strings.HasSuffix(f.Name(), lockSuffix) {
			continue
		}
		path := filepath.Join(c.Dir, f.Name())
		if f.Type().IsRegular() { // opening a pipe would block
			if data, err := os.ReadFile(path); err == nil { // #nosec G304 -- a file of the cache
				problems = append(problems, c.removeItem(parseFile(data)))
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		} else if strings.HasSuffix(f.Name(), ".json") {
			removed++
		}
	}
	return removed, errors.Join(problems...)
}

// removeItem deletes what a file that is being removed has in the keyring.
func (c *Cache) removeItem(f *file) error {
	if f == nil {
		return nil
	}
	if err := c.deleteItem(f.KeyringAccount); err != nil {
		return fmt.Errorf("a deleted login is still in the OS keyring, as account %s of %s: %w", printable(f.KeyringAccount), keyringService, err)
	}
	return nil
}

// isOurs reports whether a file has a name that this package gives: the directory
// may have been named by mistake.
func isOurs(file string) bool {
	name, _, _ := strings.Cut(file, ".")
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == sha256.Size
}
