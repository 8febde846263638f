package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

func TestDirStore(t *testing.T) {
	t.Parallel()
	one, ten := filepath.Join(t.TempDir(), "a", "b"), t.TempDir()
	testStore(t, func() Store { return NewDirStore(one) })
	testRace(t, func() Store { return NewDirStore(ten) })
	entries, err := os.ReadDir(ten)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if entry.Name() != AuthorityFile && entry.Name() != lockFile || info.Mode().Perm() != 0o600 {
			t.Errorf("left %s of mode %o", entry.Name(), info.Mode())
		}
	}
	if info, err := os.Stat(one); err != nil || info.Mode().Perm()&0o027 != 0 {
		t.Errorf("the directory is for others: %v, %v", info.Mode(), err)
	}
}

func TestDirStoreContent(t *testing.T) {
	t.Parallel()
	whole := `{"state.json":"{}","current.key":"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}`
	for _, c := range []struct {
		name, content string
		// says is what Decode says of it, foreign what Load does.
		says, foreign string
	}{
		{"empty", "", "it is empty", ""},
		{"an object without keys", "{}", "it is empty", ""},
		{"cut off", whole[:40], "state.json: cannot be read as JSON", ""},
		{"no JSON", "\x00\xff", "state.json: cannot be read as JSON", ""},
		{"null", "null", "state.json: lacks its version, lineage, creation time or generation", ""},
		{"a list", "[1]", "state.json: cannot be read as JSON", ""},
		{"a number for a text", `{"state.json":1,"current.crt":""}`, "state.json: lacks its version, lineage, creation time or generation", ""},
		{"a state that lacks things", whole, "state.json: lacks its version, lineage, creation time or generation", ""},
		{"a thousand brackets", strings.Repeat("[", 100_000), "state.json: is larger than", ""},
		{"keys of others alone", `{"password":"secret"}`, "", `it holds "password" and no key of Gatehouse, so Gatehouse did not create it and does not change it (hint: use another directory, or move the file away)`},
		{"too large", `{"state.json":"` + strings.Repeat("x", 1<<20) + `"}`, "", "it is larger than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := NewDirStore(dir)
			certstest.Write(t, filepath.Join(dir, AuthorityFile), []byte(c.content))
			record, err := s.Load(t.Context())
			data := map[string][]byte{rotation.KeyState: []byte("new")}
			if c.foreign != "" {
				if _, ok := errors.AsType[*ForeignError](err); !ok || !strings.HasPrefix(err.Error(), "file "+dir) || !strings.Contains(err.Error(), c.foreign) {
					t.Errorf("got %v, want %q", err, c.foreign)
				}
				if err := s.Save(t.Context(), record, data); err == nil {
					t.Error("written")
				}
				return
			}
			if err != nil || !record.Exists {
				t.Fatalf("got %+v, %v", record, err)
			}
			if _, err := rotation.Decode(record.Data); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if err := s.Save(t.Context(), record, data); err != nil {
				t.Fatal(err)
			}
			if got := text(mustLoad(t, s).Data); got[rotation.KeyState] != "new" || len(got) != 1 {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Temporary files of a writer that was killed may hold a key, and are removed.
func TestDirStoreTidies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := NewDirStore(dir)
	killed := filepath.Join(dir, "."+AuthorityFile+".killed")
	certstest.Write(t, killed, []byte("key"))
	if err := s.Save(t.Context(), mustLoad(t, s), bytesOf(map[string]string{rotation.KeyState: "1"})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); err == nil {
		t.Error("the file is still there")
	}
}

// A directory has one server. One without a state that has files of another CA has none.
func TestDirStoreOccupy(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	release, err := NewDirStore(dir).Occupy()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDirStore(dir).Occupy(); err == nil || !strings.HasPrefix(err.Error(), "directory "+dir+": another server uses it (hint: ") {
		t.Errorf("got %v", err)
	}
	release()
	release, err = NewDirStore(dir).Occupy()
	if err != nil {
		t.Fatal(err)
	}
	release()
	certstest.Write(t, filepath.Join(dir, CAFile), []byte("x"))
	if _, err := NewDirStore(dir).Occupy(); err == nil || !strings.HasPrefix(err.Error(), "directory "+dir+": it has ca.crt and no authority.json, so Gatehouse did not create it") {
		t.Errorf("got %v", err)
	}
	certstest.Write(t, filepath.Join(dir, AuthorityFile), []byte("damaged"))
	release, err = NewDirStore(dir).Occupy()
	if err != nil {
		t.Fatal(err)
	}
	release()
	mode(t, dir, 0o777)
	if _, err := NewDirStore(dir).Occupy(); err == nil || !strings.Contains(err.Error(), "the mode of its directory is 0777") {
		t.Errorf("got %v", err)
	}
}

func TestDirStoreErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		prepare     func(t *testing.T, dir, file string)
		load, write string
	}{
		{"everybody may read it", func(t *testing.T, _, file string) { certstest.Write(t, file, []byte("{}")); mode(t, file, 0o644) }, "its mode is 0644, so other users can read the key of the CA (hint: chmod 600 FILE; if others could log in, request an emergency rotation)", "its mode is 0644"},
		{"everybody may write it", func(t *testing.T, _, file string) { certstest.Write(t, file, []byte("{}")); mode(t, file, 0o602) }, "its mode is 0602", "its mode is 0602"},
		{"a group may read it", func(t *testing.T, _, file string) { certstest.Write(t, file, []byte("{}")); mode(t, file, 0o640) }, "", ""},
		{"everybody may write the directory", func(t *testing.T, dir, file string) { certstest.Write(t, file, []byte("{}")); mode(t, dir, 0o707) }, "file FILE: the mode of its directory is 0707: every user of this machine can write a CA there (hint: chmod o-w DIR, or use a subdirectory, which is created)", "the mode of its directory is 0707"},
		{"everybody may write the directory, and only owners remove", func(t *testing.T, dir, file string) {
			certstest.Write(t, file, []byte("{}"))
			mode(t, dir, 0o777|os.ModeSticky)
		}, "the mode of its directory is 0777", "the mode of its directory is 0777"},
		{"everybody may write the directory, which is empty", func(t *testing.T, dir, _ string) { mode(t, dir, 0o777) }, "", "the mode of its directory is 0777"},
		{"a group may write the directory", func(t *testing.T, dir, file string) { certstest.Write(t, file, []byte("{}")); mode(t, dir, 0o770) }, "", ""},
		{"a directory", func(t *testing.T, _, file string) {
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "file FILE: it is not a regular file, so Gatehouse did not create it", "it is not a regular file"},
		{"a link to nowhere", func(t *testing.T, _, file string) {
			if err := os.Symlink("nowhere", file); err != nil {
				t.Fatal(err)
			}
		}, "", ""},
		{"a link in a circle", func(t *testing.T, _, file string) {
			if err := os.Symlink(AuthorityFile, file); err != nil {
				t.Fatal(err)
			}
		}, "file FILE: cannot read it: too many levels of symbolic links", "too many levels"},
		{"a file in the place of the directory", func(t *testing.T, dir, _ string) {
			certstest.Remove(t, dir)
			certstest.Write(t, dir, nil)
		}, "file FILE: cannot read it: not a directory", "file FILE: cannot write it: not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			s := NewDirStore(dir)
			c.prepare(t, dir, filepath.Join(dir, AuthorityFile))
			record, err := s.Load(t.Context())
			says := func(err error, want string) {
				t.Helper()
				if want = strings.NewReplacer("FILE", filepath.Join(dir, AuthorityFile), "DIR", dir).Replace(want); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			says(err, c.load)
			says(s.Save(t.Context(), record, bytesOf(map[string]string{rotation.KeyState: "1"})), c.write)
		})
	}
}

func mode(t testing.TB, file string, m os.FileMode) {
	t.Helper()
	if err := os.Chmod(file, m); err != nil {
		t.Fatal(err)
	}
}

// The system's words for a missing right get the file and the remedy.
func TestExplainFile(t *testing.T) {
	t.Parallel()
	err := fileError("file /x", "read", &os.PathError{Op: "open", Path: "/x", Err: os.ErrPermission})
	if !errors.Is(err, os.ErrPermission) || !strings.HasPrefix(err.Error(), "file /x: user ") ||
		!strings.HasSuffix(err.Error(), "may not read it: permission denied (hint: chown the directory and its files to that user)") {
		t.Errorf("got %v", err)
	}
}

// A writer waits for the lock no longer than its context, and a reader not at all.
func TestDirStoreLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held := flock.New(filepath.Join(dir, lockFile))
	if err := held.Lock(); err != nil {
		t.Fatal(err)
	}
	s := NewDirStore(dir)
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := s.Save(late, Record{}, nil); err == nil || !strings.Contains(err.Error(), "another process holds the lock "+filepath.Join(dir, lockFile)+" (hint: ") {
		t.Errorf("got %v", err)
	}
	mustLoad(t, s)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), Record{}, nil); err != nil {
		t.Error(err)
	}
}

func TestDirStoreWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := NewDirStore(dir)
	s.ticks = make(chan time.Time) // none: changes are noticed by themselves
	changes := make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Watch(ctx, func() { changes <- struct{}{} }) })
	<-changes // at the beginning
	if err := NewDirStore(dir).Save(t.Context(), Record{}, bytesOf(map[string]string{rotation.KeyState: "1"})); err != nil {
		t.Fatal(err)
	}
	<-changes
	certstest.Remove(t, filepath.Join(dir, AuthorityFile))
	<-changes
	cancel()
	group.Wait()
	if len(changes) > 0 {
		t.Errorf("%d changes too many", len(changes))
	}
}

// Whoever writes ca.crt beside it after every change must not be told of that.
func TestDirStoreWatchPassesOverOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := NewDirStore(dir)
	ticks := make(chan time.Time)
	s.ticks = ticks
	var count atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Watch(ctx, func() { count.Add(1) }) })
	certstest.Write(t, filepath.Join(dir, "ca.crt"), []byte("x"))
	ticks <- certstest.Noon
	ticks <- certstest.Noon
	if count.Load() != 1 {
		t.Errorf("told %d times", count.Load())
	}
	cancel()
	group.Wait()
}

func FuzzAuthorityFile(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[]`, `{"state.json":"{}"}`, `{"state.json":1}`, `{"x":"y"}`, "\xff", `{"current.key":"-----BEGIN`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		data := parseAuthority(content)
		if len(content) > 0 && data == nil {
			t.Error("content is taken for nothing")
		}
		state, err := rotation.Decode(data)
		if (state == nil) == (err == nil) && err == nil {
			t.Error("neither a state nor an error")
		}
		if err != nil && len(content) > 8 && strings.Contains(err.Error(), string(content)) {
			t.Errorf("repeats what it read: %v", err)
		}
		_ = fmt.Sprint(foreignKeys(data))
	})
}
