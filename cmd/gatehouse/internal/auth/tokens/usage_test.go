package tokens

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

func known(ids ...string) []authn.Token {
	list := make([]authn.Token, len(ids))
	for i, id := range ids {
		list[i].Name = id
	}
	return list
}

func open(t testing.TB, dir string) *Usage {
	t.Helper()
	u, err := OpenUsage(dir, func(err error) { t.Errorf("problem: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func stored(t testing.TB, dir string) map[string]time.Time {
	t.Helper()
	used, err := Directory{StateDir: dir}.Used(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// run runs a Usage for as long as do takes.
func run(u *Usage, do func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { u.Run(ctx) })
	do()
	cancel()
	group.Wait()
}

func TestUsageIsWrittenAtABoundedRate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		u := open(t, dir)
		u.Know(known("a", "b", "c"))
		start := time.Now().UTC().Truncate(time.Second)
		run(u, func() {
			u.Note("a", start)
			time.Sleep(usageInterval - 1) // the clock of the bubble
			synctest.Wait()
			if got := stored(t, dir); len(got) != 0 {
				t.Errorf("written too early: %v", got)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := stored(t, dir); !maps.Equal(got, map[string]time.Time{"a": start}) {
				t.Errorf("after ten seconds: %v", got)
			}
			file := filepath.Join(dir, UsageFile)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * usageInterval)
			synctest.Wait()
			if _, err := os.Stat(file); err == nil {
				t.Error("written without anything new")
			}
			u.Note("b", start.Add(time.Minute))
		})
		want := map[string]time.Time{"a": start, "b": start.Add(time.Minute)}
		if got := stored(t, dir); !maps.Equal(got, want) {
			t.Errorf("at the end: got %v, want %v", got, want)
		}
		info, err := os.Stat(filepath.Join(dir, UsageFile))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	})
}

func TestUsageOutlivesTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	u := open(t, dir)
	u.Know(known("a", "b", "gone"))
	run(u, func() {
		u.Note("a", noon)
		u.Note("a", noon.Add(-time.Hour)) // late, and no news
		u.Note("gone", noon)
		u.Note("never-heard-of", noon)
	})
	u = open(t, dir)
	u.Know(known("a", "b", "new"))
	run(u, func() {})
	if got := stored(t, dir); !maps.Equal(got, map[string]time.Time{"a": noon}) {
		t.Errorf("after the second start: %v", got)
	}
	u.Know(known("b", "new"))
	u.Know(known("a", "b", "new"))
	if got := u.Used(); len(got) != 0 {
		t.Errorf("a token that came back has a past: %v", got)
	}
}

func TestUsageFileThatIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty":      "",
		"cut off":    `{"lastUsed":{"a":"2026-11-20T12:00:00Z"`,
		"no object":  `[]`,
		"no time":    `{"lastUsed":{"a":"noon"}}`,
		"more":       `{"lastUsed":{}} {}`,
		"not a file": "",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, UsageFile)
		if name == "not a file" {
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, file, content)
		}
		var problems []error
		u, err := OpenUsage(dir, func(err error) { problems = append(problems, err) })
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), UsageFile) {
			t.Errorf("%s: %v, %v", name, err, problems)
			continue
		}
		u.Know(known("a"))
		u.Note("a", time.Unix(1, 0))
		if len(u.Used()) != 1 {
			t.Errorf("%s: nothing is noted", name)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, dir := range []string{file, filepath.Join(file, "x"), "/proc/self"} {
		if _, err := OpenUsage(dir, func(error) {}); err == nil {
			t.Errorf("%s was taken for a state directory", dir)
		}
	}
}

// A disk that is full is told of once, and written to when it is not.
func TestUsageTellsOnceThatItCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var problems []error
		u, err := OpenUsage(dir, func(err error) { problems = append(problems, err) })
		if err != nil {
			t.Fatal(err)
		}
		u.Know(known("a"))
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		run(u, func() {
			u.Note("a", time.Now())
			time.Sleep(5 * usageInterval)
			synctest.Wait()
			if len(problems) != 1 {
				t.Errorf("problems: %v", problems)
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			time.Sleep(usageInterval)
			synctest.Wait()
			if len(stored(t, dir)) != 1 || len(problems) != 1 {
				t.Errorf("it was not written in the end: %v", problems)
			}
		})
	})
}

func TestUsageIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := open(t, dir)
	u.Know(known("a"))
	run(u, func() {
		var group sync.WaitGroup
		for worker := range 4 {
			group.Go(func() {
				for i := range 1000 {
					u.Note("a", time.Unix(int64(i*4+worker), 0))
					u.Note(fmt.Sprintf("unknown-%d", i), time.Unix(1, 0))
				}
			})
		}
		for i := range 100 {
			u.Know(known("a", fmt.Sprintf("b%d", i)))
		}
		group.Wait()
	})
	if got := stored(t, dir); !maps.Equal(got, map[string]time.Time{"a": time.Unix(3999, 0).UTC()}) {
		t.Errorf("got %v", got)
	}
}

func TestNoteAllocatesNothing(t *testing.T) {
	u := open(t, t.TempDir())
	u.Know(known("a"))
	at := time.Unix(0, 0)
	if n := testing.AllocsPerRun(100, func() {
		at = at.Add(time.Second)
		u.Note("a", at)
		u.Note("unknown", at)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNote(b *testing.B) {
	u := open(b, b.TempDir())
	u.Know(known("a"))
	at := time.Unix(1_800_000_000, 0)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			u.Note("a", at)
		}
	})
}

// FuzzUsageFile reads anything, and what it reads it writes the same.
func FuzzUsageFile(f *testing.F) {
	for _, seed := range []string{`{"lastUsed":{"a":"2026-11-20T12:00:00Z"}}`, `{"lastUsed":null}`, `{"lastUsed":{"":"0001-01-01T00:00:00Z"}}`, `[`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		document, err := decodeUsage(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), UsageFile)
		ours := map[string]time.Time{}
		for id, at := range document.LastUsed {
			if year := at.UTC().Year(); len(id) < 64 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) && year > 0 && year < 10000 {
				ours[id] = at.UTC().Truncate(time.Second)
			}
		}
		if err := writeUsage(file, maps.All(ours)); err != nil {
			t.Fatal(err)
		}
		again, err := readUsage(file)
		if err != nil || !maps.EqualFunc(again, ours, time.Time.Equal) {
			t.Fatalf("%v\n%v\n%v", err, again, ours)
		}
	})
}
