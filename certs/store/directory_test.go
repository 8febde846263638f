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
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/gatehouse-dev/gatehouse/certs/internal/certstest"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
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

// A state comes back as it was written.
func TestDirStoreKeepsAState(t *testing.T) {
	t.Parallel()
	s := NewDirStore(t.TempDir())
	want := &rotation.State{Lineage: "x", Created: certstest.Noon, Generation: 7, Phase: rotation.Stable, Since: certstest.Noon, Current: certstest.NewCA(t).Authority}
	data, err := rotation.Encode(want, certstest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), mustLoad(t, s), data); err != nil {
		t.Fatal(err)
	}
	got, err := rotation.Decode(mustLoad(t, s).Data)
	if err != nil || got.Generation != 7 || got.Current.ID() != want.Current.ID() || got.Current.Key == nil {
		t.Errorf("got %+v, %v", got, err)
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

func TestDirStoreKeepsWhatIsOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := NewDirStore(dir)
	certstest.Write(t, filepath.Join(dir, AuthorityFile), []byte(`{"note":"y","previous.crt":"x"}`))
	certstest.Write(t, filepath.Join(dir, "."+AuthorityFile+".killed"), []byte("key"))
	certstest.Write(t, filepath.Join(dir, "ca.crt"), []byte("z"))
	if err := s.Save(t.Context(), mustLoad(t, s), bytesOf(map[string]string{rotation.KeyState: "1"})); err != nil {
		t.Fatal(err)
	}
	if got := text(mustLoad(t, s).Data); len(got) != 2 || got["note"] != "y" {
		t.Errorf("got %v", got)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 3 {
		t.Errorf("got %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "."+AuthorityFile+".killed")); err == nil {
		t.Error("what a writer left behind that was killed is still there")
	}
	if err := s.Save(t.Context(), mustLoad(t, s), map[string][]byte{rotation.KeyState: {0xff}}); err == nil || !strings.Contains(err.Error(), `the value of "state.json" is not UTF-8`) {
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

// Somebody who holds the lock for ever makes nobody wait for ever.
func TestDirStoreLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held := flock.New(filepath.Join(dir, lockFile))
	if err := held.Lock(); err != nil {
		t.Fatal(err)
	}
	s := NewDirStore(dir)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Save(ctx, Record{}, nil); err == nil || !strings.Contains(err.Error(), "another process holds the lock "+filepath.Join(dir, lockFile)+" (hint: ") {
		t.Errorf("got %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Save(ended, Record{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Load(ctx); err != nil {
		t.Errorf("a reader waits for the lock: %v", err)
	}
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

func TestDirReplicas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testReplicas(t, func(replica string, c *certstest.Clock) Replicas {
		d := NewDirReplicas(dir, replica, c.Now)
		d.LeafLife = certstest.Week
		return d
	})
}

func TestDirReplicasOfEarlierProcesses(t *testing.T) {
	t.Parallel()
	testStaleReports(t, func(t *testing.T) (func(string) Replicas, func(Replicas, time.Duration), *certstest.Clock) {
		dir, c := t.TempDir(), certstest.NewClockAt(time.Now())
		age := func(r Replicas, d time.Duration) {
			written := c.Now().Add(-d)
			if err := os.Chtimes(r.(*DirReplicas).file, written, written); err != nil {
				t.Fatal(err)
			}
		}
		return func(replica string) Replicas { return NewDirReplicas(dir, replica, c.Now) }, age, c
	})
}

func TestDirReplicasOfOthers(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), certstest.NewClock()
	d := NewDirReplicas(dir, "one", c.Now)
	d.LeafLife = certstest.Week
	if err := d.Report(t.Context(), reportOf("one")); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(dir, replicasDir)
	for name, content := range map[string]string{
		"broken.json": `{"replica":"x","issuer":"`, "list.json": "[]", "large.json": strings.Repeat("[", 1<<20),
		".hidden.json": "{}", "note.txt": "x",
	} {
		certstest.Write(t, filepath.Join(place, name), []byte(content))
	}
	if err := os.Mkdir(filepath.Join(place, "dir.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(place, "link.json")); err != nil {
		t.Fatal(err)
	}
	written := certstest.Noon.Add(-time.Hour)
	for _, name := range []string{"broken.json", "list.json", "large.json"} {
		if err := os.Chtimes(filepath.Join(place, name), written, written); err != nil {
			t.Fatal(err)
		}
	}
	list := mustList(t, d)
	if namesOf(list) != "broken large list one" {
		t.Fatalf("got %+v", list)
	}
	if r := list[0]; r.Issuer != UnreadableIssuer || !r.NotAfter.Equal(written.Add(certstest.Week)) || !r.Seen.Equal(written) {
		t.Errorf("got %+v", r)
	}
	c.Advance(30 * 24 * time.Hour)
	onlooker := NewDirReplicas(dir, "", c.Now)
	onlooker.LeafLife = certstest.Week
	count := func() int {
		files, err := filepath.Glob(filepath.Join(place, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	if list := mustList(t, onlooker); len(list) != 0 || count() != 7 {
		t.Errorf("got %+v and %d files", list, count())
	}
	if list := mustList(t, d); len(list) != 0 || count() != 3 { // what is no report stays
		t.Errorf("got %+v and %d files", list, count())
	}
}

func TestDirReplicasErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certstest.Write(t, filepath.Join(dir, replicasDir), nil)
	d := NewDirReplicas(dir, "one", nil)
	if err := d.Report(t.Context(), reportOf("one")); err == nil || !strings.Contains(err.Error(), ": cannot write it: not a directory") {
		t.Errorf("got %v", err)
	}
	if _, err := d.List(t.Context()); err == nil || !strings.Contains(err.Error(), "directory "+filepath.Join(dir, replicasDir)+": cannot read it: ") {
		t.Errorf("got %v", err)
	}
	if err := d.Leave(t.Context()); err == nil || !strings.Contains(err.Error(), ": cannot remove it: not a directory") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyUnwritten(t *testing.T) {
	t.Parallel()
	full := fileError("file x", "write", syscall.ENOSPC)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":         {nil, false},
		"a full disk":     {full, true},
		"wrapped":         {fmt.Errorf("certificate: %w", full), true},
		"two":             {errors.Join(full, fmt.Errorf("certificate: %w", errors.Join(full))), true},
		"one of two":      {fmt.Errorf("certificate: %w", errors.Join(full, errors.New("odd"))), false},
		"something else":  {fmt.Errorf("certificate: %w", errors.New("odd")), false},
		"an unread file":  {fileError("file x", "read", syscall.EIO), false},
		"two of one kind": {fmt.Errorf("%w: %w", full, ErrConflict), false},
	} {
		if got := OnlyUnwritten(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
