package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// The files of a directory.
const (
	// AuthorityFile is where a DirStore keeps a State.
	AuthorityFile = "authority.json"
	// CAFile holds the CAs that clients must trust, and that the server verifies client
	// certificates against.
	CAFile = "ca.crt"
	// ClientCertFile and ClientKeyFile hold a client certificate for the API
	// server.
	ClientCertFile = "apiserver-client.crt"
	ClientKeyFile  = "apiserver-client.key"

	// requestFile holds the last request for a new CA, and lockFile is locked as long as a server runs.
	requestFile = "rotate"
	lockFile    = ".lock"

	privateFile fs.FileMode = 0o600
	publicFile  fs.FileMode = 0o644
	sharedDir   fs.FileMode = 0o750
	// everybody is the rights of everybody on a machine, and everybodyWrites, of a directory, that to make
	// files in it.
	everybody, everybodyWrites fs.FileMode = 0o007, 0o002

	// largestAuthority is how large the file may be: as large as a Secret.
	largestAuthority = 1 << 20
)

// DirStore is a Store in a directory, for one server: in the file AuthorityFile, which is replaced atomically
// and readable by its owner alone. It is a JSON object with a string for each key. Because it holds the key of a
// CA, it is an error if everybody on the machine may read or write it or create files in its directory.
type DirStore struct{ dir, file string }

var _ Store = (*DirStore)(nil)

// NewDirStore reads nothing yet. Save makes the directory.
func NewDirStore(dir string) *DirStore {
	return &DirStore{dir: dir, file: filepath.Join(dir, AuthorityFile)}
}

// String implements Store.
func (s *DirStore) String() string { return "file " + s.file }

// Object implements Store.
func (*DirStore) Object() corev1.ObjectReference { return corev1.ObjectReference{} }

// Load implements Store.
func (s *DirStore) Load(context.Context) (Record, error) {
	request, err := os.ReadFile(filepath.Join(s.dir, requestFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Record{}, s.fileError(err)
	}
	r := Record{Request: string(bytes.TrimSpace(request))}
	info, err := os.Stat(s.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return Record{}, s.fileError(err)
	case !info.Mode().IsRegular(), info.Size() > largestAuthority: // opening some of those makes a reader wait
		return Record{}, fmt.Errorf("%s: it is not a regular file of at most %d bytes (hint: use another directory, or move the file away)", s, largestAuthority)
	case info.Mode()&everybody != 0 && runtime.GOOS != "windows": // where modes say nothing
		return Record{}, fmt.Errorf("%s: its mode is %04o, so other users can read the key of the CA (hint: remove their rights with chmod 600; if others could log in, rotate the CA)", s, info.Mode().Perm())
	}
	if err := s.checkDir(); err != nil {
		return Record{}, err
	}
	content, err := os.ReadFile(s.file)
	if err != nil {
		return Record{}, s.fileError(err)
	}
	var texts map[string]string
	if len(content) > 0 && json.Unmarshal(content, &texts) != nil {
		texts = map[string]string{KeyState: string(content)} // which is damaged
	}
	r.Data = make(map[string][]byte, len(texts))
	for key, text := range texts {
		r.Data[key] = []byte(text)
	}
	return r, foreignError(s.String(), r.Data)
}

// checkDir returns an error if everybody may create files in the directory.
func (s *DirStore) checkDir() error {
	info, err := os.Stat(s.dir)
	if err == nil && info.Mode()&everybodyWrites != 0 && runtime.GOOS != "windows" { // where modes say nothing
		err = fmt.Errorf("%s: the mode of its directory is %04o: every user of this machine can write a CA there (hint: chmod o-w %s, or use a subdirectory, which is created)", s, info.Mode().Perm(), shell.Quote(s.dir))
	}
	return err
}

// Save implements Store. The server that has called Occupy is the only one that writes.
func (s *DirStore) Save(_ context.Context, _ Record, data map[string][]byte) error {
	if err := s.make(); err != nil {
		return err
	}
	texts := make(map[string]string, len(data))
	for key, value := range data {
		texts[key] = string(value)
	}
	encoded, err := json.MarshalIndent(texts, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return s.fileError(replaceFile(s.file, append(encoded, '\n'), privateFile))
}

// Request implements Store.
func (s *DirStore) Request(_ context.Context, request string) error {
	return s.fileError(replaceFile(filepath.Join(s.dir, requestFile), []byte(request+"\n"), publicFile))
}

// make makes the directory.
func (s *DirStore) make() error {
	if err := os.MkdirAll(s.dir, sharedDir); err != nil {
		return s.fileError(err)
	}
	return s.checkDir()
}

// fileError adds the place to an error of the system, and the remedy.
func (s *DirStore) fileError(err error) error {
	if err == nil {
		return nil
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("cannot %s %s: %w", path.Op, path.Path, path.Err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w (hint: chown the directory and its files to user %d, or run this as their owner)", s, err, os.Getuid())
	}
	return fmt.Errorf("%s: %w", s, err)
}

// Occupy makes the directory, and this process its server until release. It returns an error if another process
// is, and if the directory has no CA and files that export would replace. A lock that cannot be taken for
// another reason, such as a full disk, is ignored: a restart of a server must not depend on it.
func (s *DirStore) Occupy() (release func(), err error) {
	if _, err := os.Lstat(s.file); err != nil {
		for _, name := range []string{CAFile, ClientCertFile, ClientKeyFile} {
			if _, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
				return nil, fmt.Errorf("directory %s: it has %s and no %s, so Gatehouse did not create it (hint: use another directory; or, if %s was lost, move these files away, and give the API server those of the new CA)",
					s.dir, name, AuthorityFile, AuthorityFile)
			}
		}
	}
	if os.MkdirAll(s.dir, sharedDir) == nil {
		if err := s.checkDir(); err != nil {
			return nil, err
		}
	}
	held := flock.New(filepath.Join(s.dir, lockFile), flock.SetPermissions(privateFile))
	if taken, err := held.TryLock(); err == nil && !taken {
		return nil, fmt.Errorf("directory %s: another server uses it (hint: use another directory, or --self-signed-secret for several replicas)", s.dir)
	}
	s.tidy()
	return func() { _ = held.Close() }, nil // it is let go at the latest when the process ends
}

// tidy removes temporary files of a server that was killed: they may hold keys.
func (s *DirStore) tidy() {
	entries, _ := os.ReadDir(s.dir) // what cannot be read is not tidied
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "."+AuthorityFile+".") {
			_ = os.Remove(filepath.Join(s.dir, entry.Name()))
		}
	}
}

// export writes the CAs of a state, and a client certificate for the API server, into the directory. It keeps
// files that are still good.
func (s *DirStore) export(state *State, now time.Time) error {
	// The CA first, so that the server accepts the certificate before anybody can show it.
	bundle, name := Bundle(state.Trusted()), filepath.Join(s.dir, CAFile)
	if there, err := os.ReadFile(name); err != nil || !bytes.Equal(there, bundle) { //nolint:gosec // in a directory that whoever starts the program names
		if err := replaceFile(name, bundle, publicFile); err != nil {
			return s.fileError(err)
		}
	}
	certFile, keyFile := filepath.Join(s.dir, ClientCertFile), filepath.Join(s.dir, ClientKeyFile)
	if there, err := readPair(certFile, keyFile); err == nil &&
		there.Leaf.CheckSignatureFrom(state.newest().Cert) == nil && isValid(there, now) && !IsDue(there.Leaf, now) {
		return nil
	}
	cert, key, err := state.newest().clientCertificate(now)
	if err != nil {
		return err
	}
	return s.fileError(errors.Join(replaceFile(keyFile, key, privateFile), replaceFile(certFile, cert, publicFile)))
}

// replaceFile replaces a file atomically, for readers and for power cuts.
func replaceFile(name string, content []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
