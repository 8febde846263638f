package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// settled is a tree as if it had been read when nothing had happened for a while.
func settled(t *testing.T, dir string) *tree {
	t.Helper()
	read := readTree(dir, small())
	if read.fingerprint.quiet {
		t.Error("files that were just written look as if they had been there for long")
	}
	last := read.outline()
	last.fingerprint.quiet = true
	return last
}

const keysDocument = "apiVersion: gatehouse.dev/v1alpha1\nkind: AuthenticationConfiguration\njwt: {issuers: [{url: https://a.example, keysFile: keys/a.jwks}]}\n"

func TestLooksAs(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		same   bool
	}{
		"nothing": {func(*testing.T, string) {}, true},
		"a file that is not read": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "README.md"), "x")
			write(t, filepath.Join(dir, ".hidden.yaml"), "x")
		}, true},
		"a new file":      {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "c.yaml"), "") }, false},
		"a file below":    {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "sub/deep/c.yaml"), "") }, false},
		"a file is gone":  {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "a.yaml")) }, false},
		"another size":    {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.yaml"), profile+"# more\n") }, false},
		"written again":   {func(t *testing.T, dir string) { touch(t, filepath.Join(dir, "a.yaml"), later) }, false},
		"renamed":         {func(t *testing.T, dir string) { rename(t, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "0.yaml")) }, false},
		"a swapped link":  {func(t *testing.T, dir string) { swap(t, dir) }, false},
		"a named file":    {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "keys/a.jwks"), "{}") }, false},
		"not readable":    {func(t *testing.T, dir string) { link(t, "nowhere", filepath.Join(dir, "broken.yaml")) }, false},
		"the directory":   {func(t *testing.T, dir string) { removeAll(t, dir) }, false},
		"same size again": {func(t *testing.T, dir string) { sameSize(t, filepath.Join(dir, "a.yaml")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, map[string]string{"a.yaml": profile, "sub/b.yaml": namespace, "c/keys.yaml": keysDocument, "old/x.yaml": "", "new/x.yaml": ""})
			link(t, "old", filepath.Join(dir, "current"))
			rename(t, filepath.Join(dir, "c/keys.yaml"), filepath.Join(dir, "keys.yaml"))
			last := settled(t, dir)
			c.change(t, dir)
			if got := isUnchanged(dir, last); got != c.same {
				t.Errorf("got %v, want %v", got, c.same)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string)          { t.Helper(); must(t, os.Remove(path)) }
func removeAll(t *testing.T, path string)       { t.Helper(); must(t, os.RemoveAll(path)) }
func rename(t *testing.T, from, to string)      { t.Helper(); must(t, os.Rename(from, to)) }
func touch(t *testing.T, p string, m time.Time) { t.Helper(); must(t, os.Chtimes(p, m, m)) }

// swap does what a kubelet does.
func swap(t *testing.T, dir string) {
	t.Helper()
	link(t, "new", filepath.Join(dir, ".tmp"))
	rename(t, filepath.Join(dir, ".tmp"), filepath.Join(dir, "current"))
}

// sameSize puts another file of the same size and time in the place of one.
func sameSize(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	other := path + ".new"
	write(t, other, strings.Replace(profile, "name: log", "name: lag", 1))
	touch(t, other, info.ModTime())
	rename(t, other, path)
}

// What changed just before is read again, because what changes once more within
// the same tick looks the same.
func TestLooksAsWaitsForQuiet(t *testing.T) {
	t.Parallel()
	dir := directory(t, map[string]string{"a.yaml": profile})
	read := readTree(dir, small())
	if isUnchanged(dir, &read) {
		t.Error("a file that was written just now was taken for settled")
	}
	s := newFingerprinter(time.Now().Add(2 * quietFor))
	info, err := os.Stat(filepath.Join(dir, "a.yaml"))
	must(t, err)
	s.file("a.yaml", info)
	if !s.fingerprint().quiet {
		t.Error("a file is never settled")
	}
}

// TestWatcherReadsOnlyWhatLooksOtherwise counts readings.
func TestWatcherReadsOnlyWhatLooksOtherwise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			reads     atomic.Int64
			otherwise atomic.Bool
		)
		w := watcher{
			read:        func() tree { reads.Add(1); return texts(profile) },
			isUnchanged: func(*tree) bool { return !otherwise.Load() },
			onChange:    func(*Config, error) {},
		}
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.run(ctx, events)
		}()
		for _, step := range []struct {
			what string
			do   func()
			want int64
		}{
			{"the first reading", func() {}, 1},
			{"it looks the same", func() { time.Sleep(5 * pollInterval) }, 1},
			{"an event", func() { events <- struct{}{}; time.Sleep(debounce) }, 2},
			{"it looks otherwise", func() { otherwise.Store(true); time.Sleep(pollInterval) }, 3},
			{"it looks the same for long", func() { otherwise.Store(false); time.Sleep(rereadInterval + pollInterval) }, 4},
		} {
			step.do()
			synctest.Wait()
			if got := reads.Load(); got != step.want {
				t.Errorf("%s: %d readings, want %d", step.what, got, step.want)
			}
		}
		cancel()
		<-done
	})
}
