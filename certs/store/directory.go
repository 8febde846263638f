package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/gatehouse-dev/gatehouse/certs/internal/filewatch"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

const (
	// AuthorityFile is where a DirStore keeps a state.
	AuthorityFile = "authority.json"
	// lockFile is held for a write, and serveFile as long as a server runs.
	lockFile  = ".lock"
	serveFile = ".serve.lock"

	privateFile fs.FileMode = 0o600
	sharedDir   fs.FileMode = 0o750
	// everybody is the rights of everybody on a machine.
	everybody fs.FileMode = 0o007
	// everybodyWrites is, of a directory, that to make files in it.
	everybodyWrites fs.FileMode = 0o002

	// largestAuthority is how large the file may be: as large as a Secret.
	largestAuthority = 1 << 20
	lockPause        = 20 * time.Millisecond
)

// DirStore is a Store in a directory, for one server and the commands that an administrator
// runs beside it: in the file AuthorityFile, which is replaced atomically and readable by
// its owner alone. It is a JSON object with a string for each key.
//
// A file that cannot be parsed is passed to rotation.Decode as it is, which calls it
// damaged. Because the file holds the key of a CA, it is an error if everybody on the
// machine may read or write it or create files in its directory, sticky or not, or if its
// owner is neither this user nor root. Rights of a group are the administrator's choice.
// The files .lock and .serve.lock beside it are empty and stay.
type DirStore struct {
	dir, file string
	user      int
	ticks     <-chan time.Time
}

var _ Store = (*DirStore)(nil)

// NewDirStore reads nothing yet. Save makes the directory.
func NewDirStore(dir string) *DirStore {
	return &DirStore{dir: dir, file: filepath.Join(dir, AuthorityFile), user: os.Geteuid()}
}

// String implements Store.
func (s *DirStore) String() string { return "file " + s.file }

// Load implements Store.
func (s *DirStore) Load(context.Context) (Record, error) {
	content, err := s.read()
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	data := parseAuthority(content)
	if strange := foreignKeys(data); strange != "" {
		return Record{}, s.foreign("it holds " + strange + " and no key of Gatehouse")
	}
	return Record{Exists: true, Data: data, Version: digest(content)}, nil
}

// read returns the content of the file. An error that is not fs.ErrNotExist names the
// file and the remedy.
func (s *DirStore) read() ([]byte, error) {
	info, err := os.Stat(s.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fileError(s.String(), "read", err)
	case !info.Mode().IsRegular(): // opening some of those makes a reader wait
		return nil, s.foreign("it is not a regular file")
	case info.Mode()&everybody != 0 && runtime.GOOS != "windows": // where modes say nothing
		return nil, fmt.Errorf("%s: its mode is %04o, so other users can read the key of the CA (hint: chmod 600 %s; if others could log in, request an emergency rotation)",
			s, info.Mode().Perm(), shell.Quote(s.file))
	case info.Size() > largestAuthority:
		return nil, s.foreign(fmt.Sprintf("it is larger than %d bytes", largestAuthority))
	}
	if owner, known := ownerOf(info); known && owner != s.user && owner != 0 {
		return nil, fmt.Errorf("%s: it belongs to user %d, but this process is user %d: the owner has the key of the CA (hint: run this as user %d; or, if you trust its content, chown it to user %d)",
			s, owner, s.user, owner, s.user)
	}
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(s.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fileError(s.String(), "read", err)
	}
	return content, err
}

// checkDir returns an error if everybody may create files in the directory.
func (s *DirStore) checkDir() error {
	info, err := os.Stat(s.dir)
	if err != nil {
		return fileError("directory "+s.dir, "read", err)
	}
	if info.Mode()&everybodyWrites != 0 && runtime.GOOS != "windows" { // where modes say nothing
		return fmt.Errorf("%s: the mode of its directory is %04o: every user of this machine can write a CA there (hint: chmod o-w %s, or use a subdirectory, which is created)",
			s, info.Mode().Perm(), shell.Quote(s.dir))
	}
	return nil
}

func (s *DirStore) foreign(problem string) error {
	return &ForeignError{Place: s.String(), Problem: problem, Remedy: "use another directory, or move the file away"}
}

// ErrUnwritten means that a file could not be written, for example because the disk is full
// or read-only. What was read stays valid.
var ErrUnwritten = errors.New("cannot be written")

// unwritten is an ErrUnwritten with a message for an administrator.
type unwritten struct{ error }

func (u unwritten) Unwrap() error      { return u.error }
func (unwritten) Is(target error) bool { return target == ErrUnwritten }

// fileError adds the object and the remedy to an error of the system.
func fileError(object, verb string, err error) error {
	text := err
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		text = path.Err
	}
	explained := fmt.Errorf("%s: cannot %s it: %w", object, verb, text)
	if errors.Is(err, fs.ErrPermission) {
		explained = fmt.Errorf("%s: user %d may not %s it: %w (hint: chown the directory and its files to that user)", object, os.Getuid(), verb, text)
	}
	if verb == "write" {
		return unwritten{explained}
	}
	return explained
}

// parseAuthority parses the file. Anything else than an object of strings is a damaged
// state.
func parseAuthority(content []byte) map[string][]byte {
	var texts map[string]string
	if len(content) == 0 {
		return nil
	}
	if err := json.Unmarshal(content, &texts); err != nil || texts == nil {
		return map[string][]byte{rotation.KeyState: content}
	}
	data := make(map[string][]byte, len(texts))
	for key, text := range texts {
		data[key] = []byte(text)
	}
	return data
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Save implements Store.
func (s *DirStore) Save(ctx context.Context, old Record, data map[string][]byte) error {
	if err := os.MkdirAll(s.dir, sharedDir); err != nil {
		return fileError(s.String(), "write", err)
	}
	if err := s.checkDir(); err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	content, err := s.read()
	switch exists := !errors.Is(err, fs.ErrNotExist); {
	case exists && err != nil:
		return err
	case exists != old.Exists, exists && digest(content) != old.Version:
		return ErrConflict
	}
	texts := make(map[string]string, len(data))
	for key, value := range data {
		texts[key] = string(value)
	}
	encoded, err := json.MarshalIndent(texts, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	s.tidy()
	if err := replaceFile(s.file, append(encoded, '\n'), privateFile); err != nil {
		return fileError(s.String(), "write", err)
	}
	return nil
}

// Occupy makes the directory, and this process its server until release. It returns an
// error if another process is, and a ForeignError if the directory has no state and files
// that WriteDir would replace. A lock that cannot be taken for another reason, such as a
// full disk, is ignored: a restart of a server must not depend on it.
func (s *DirStore) Occupy() (release func(), err error) {
	if err := s.checkUnclaimed(); err != nil {
		return nil, err
	}
	if os.MkdirAll(s.dir, sharedDir) == nil {
		if err := s.checkDir(); err != nil {
			return nil, err
		}
	}
	held := flock.New(filepath.Join(s.dir, serveFile), flock.SetPermissions(privateFile))
	if taken, err := held.TryLock(); err == nil && !taken {
		return nil, fmt.Errorf("directory %s: another server uses it (hint: use another directory, or --self-signed-secret for several replicas)", s.dir)
	}
	return func() { _ = held.Close() }, nil // it is let go at the latest when the process ends
}

// checkUnclaimed returns a ForeignError if there is no state, and files beside it.
func (s *DirStore) checkUnclaimed() error {
	if _, err := os.Lstat(s.file); err == nil {
		return nil
	}
	var found []string
	for _, name := range []string{CAFile, ClientCertFile, ClientKeyFile} {
		if _, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &ForeignError{
		Place: "directory " + s.dir, Problem: "it has " + strings.Join(found, ", ") + " and no " + AuthorityFile,
		Remedy: "use another directory; or, if " + AuthorityFile + " was lost, move these files away, and give the API server those of the new CA",
	}
}

// tidy removes temporary files of writers that were killed: they may hold keys. It is called
// with the lock held.
func (s *DirStore) tidy() {
	entries, _ := os.ReadDir(s.dir) // what cannot be read is not tidied
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "."+AuthorityFile+".") {
			_ = os.Remove(filepath.Join(s.dir, entry.Name()))
		}
	}
}

// lock waits until no other process and no other goroutine writes. The kernel releases the
// lock when the process ends.
func (s *DirStore) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	file := filepath.Join(s.dir, lockFile)
	held := flock.New(file, flock.SetPermissions(privateFile))
	_, err = held.TryLockContext(ctx, lockPause)
	switch {
	case err == nil:
		return func() { _ = held.Close() }, nil // it is let go at the latest when the process ends
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%s: another process holds the lock %s (hint: end that process if it hangs; do not delete the file)", s, file)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%s: %w", s, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC):
		err = fileError(s.String(), "write", err)
	default:
		err = fmt.Errorf("%s: %s cannot be locked: %w (hint: use a directory on a local disk)", s, file, err)
	}
	return nil, errors.Join(err, held.Close())
}

// replaceFile replaces a file atomically, for readers and for power cuts.
func replaceFile(name string, content []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	syncDir(filepath.Dir(name))
	return nil
}

// syncDir makes a rename durable. Where the system cannot, a power cut may bring back the
// file before, which is a valid state too.
func syncDir(dir string) {
	d, err := os.Open(dir) //nolint:gosec // named by whoever starts the program
	if err != nil {
		return
	}
	_ = d.Sync()
	_ = d.Close()
}

// Watch implements Store.
func (s *DirStore) Watch(ctx context.Context, changed func()) {
	first, last := true, ""
	filewatch.Follow(ctx, []string{s.file}, filewatch.TickOr(s.ticks, filewatch.Interval), nil,
		func(error) {}, // the ticks remain
		func() {
			// Much else is written into the directory.
			content, err := s.read()
			now := digest(content)
			if err != nil {
				now = err.Error()
			}
			if first || now != last {
				first, last = false, now
				changed()
			}
		})
}
