package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// change is one call of onChange.
type change struct {
	config *Config
	err    error
}

// texts makes a tree of one file, as reading a directory would.
func texts(content string) tree {
	t := tree{dir: "dir", limits: small(), files: []file{{path: "a.yaml", data: []byte(content)}}}
	t.seal()
	return t
}

// TestWatcher runs the watcher on a directory that is a variable and a clock
// that only moves when everybody waits.
func TestWatcher(t *testing.T) {
	type step struct {
		content string
		polls   int
		want    string // what is reported: the names of the profiles, or the error
	}
	other := strings.Replace(profile, "name: log", "name: trace", 1)
	for name, c := range map[string]struct {
		known string // the content that the caller has already
		steps []step
	}{
		"the first reading is reported":   {"", []step{{content: profile, want: "log"}}},
		"what is known already is not":    {profile, []step{{content: profile, polls: 3}}},
		"a change before the watch began": {other, []step{{content: profile, want: "log"}}},
		"a change is used once it rests":  {profile, []step{{content: profile}, {content: other, polls: 1}, {content: other, polls: 1, want: "trace"}, {content: other, polls: 5}}},
		"half-written, then whole":        {profile, []step{{content: profile}, {content: other[:60], polls: 1}, {content: other, polls: 2, want: "trace"}}},
		"half-written for long": {profile, []step{
			{content: profile}, {content: other[:60], polls: 2, want: "line"}, {content: other[:60], polls: 3}, {content: other, polls: 2, want: "trace"},
		}},
		"a writer that never rests is read all the same": {profile, slices.Concat(
			[]step{{content: profile}},
			slices.Repeat([]step{{content: other, polls: 1}, {content: other + "# ", polls: 1}}, maxReadings/2-1),
			[]step{{content: other, polls: 1}, {content: other + "# ", polls: 1, want: "trace"}},
		)},
		"another error is reported too": {profile, []step{{content: "{", want: "near line 1"}, {content: "a: b: c", polls: 2, want: "mapping values"}}},
		"broken and put back": {profile, []step{
			{content: profile}, {content: "{", polls: 2, want: "line"}, {content: profile, polls: 2, want: "log"}, {content: profile, polls: 1},
		}},
		"changed and put back": {profile, []step{{content: profile}, {content: other, polls: 2, want: "trace"}, {content: profile, polls: 2, want: "log"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var content atomic.Value
				changes := make(chan change, 100)
				w := watcher{
					read:     func() tree { return texts(content.Load().(string)) },
					onChange: func(c *Config, err error) { changes <- change{c, err} },
				}
				if c.known != "" {
					w.known = texts(c.known).state
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				content.Store(c.steps[0].content)
				go func() {
					defer close(done)
					w.run(ctx)
				}()
				for i, s := range c.steps {
					synctest.Wait()
					content.Store(s.content)
					time.Sleep(time.Duration(s.polls) * pollInterval) // the clock of the bubble: no time passes outside
					synctest.Wait()
					var got []change
					for range len(changes) {
						got = append(got, <-changes)
					}
					switch {
					case s.want == "" && len(got) == 0:
					case s.want == "" || len(got) != 1:
						t.Fatalf("step %d: %d changes are reported, want %q", i, len(got), s.want)
					case got[0].err != nil && (got[0].config == nil || !strings.Contains(got[0].err.Error(), s.want)):
						t.Fatalf("step %d: got %v and %v, want %q", i, got[0].config, got[0].err, s.want)
					case got[0].err == nil && got[0].config.Sidecar.Profiles[0].Name != s.want:
						t.Fatalf("step %d: got profile %q, want %q", i, got[0].config.Sidecar.Profiles[0].Name, s.want)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

// watched runs Watch on a directory until the test ends.
func watched(t *testing.T, dir, known string) <-chan change {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan change)
	done := make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, dir, known, func(c *Config, err error) {
			select {
			case changes <- change{c, err}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return changes
}

// until waits for a change that is as wanted. Before it others may come: a file
// can be seen half-written.
func until(t *testing.T, changes <-chan change, what string, wanted func(change) bool) {
	t.Helper()
	// Generous: it is only ever waited for in full when the test fails.
	deadline := time.After(time.Minute)
	for {
		select {
		case c := <-changes:
			if wanted(c) {
				return
			}
		case <-deadline:
			t.Fatalf("no change: %s", what)
		}
	}
}

func hasProfile(name string) func(change) bool {
	return func(c change) bool {
		if c.err != nil {
			return false
		}
		for _, p := range c.config.Sidecar.Profiles {
			if p.Name == name {
				return true
			}
		}
		return false
	}
}

func named(name string) string {
	return strings.Replace(profile, "name: log", "name: "+name, 1)
}

func TestWatchDirectory(t *testing.T) {
	dir := directory(t, map[string]string{"a.yaml": profile})
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	changes := watched(t, dir, c.State)

	write(t, filepath.Join(dir, "a.yaml"), named("second"))
	until(t, changes, "a file was written", hasProfile("second"))

	write(t, filepath.Join(dir, "sub", "deeper", "b.yaml"), named("below"))
	until(t, changes, "a directory was made", hasProfile("below"))

	write(t, filepath.Join(dir, "sub", "deeper", "c.yaml"), "{")
	until(t, changes, "a broken file was written", func(c change) bool {
		var list diagnostic.List
		return errors.As(c.err, &list) && list[0].Source == "sub/deeper/c.yaml"
	})

	err = os.RemoveAll(filepath.Join(dir, "sub"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, changes, "a directory was removed", func(c change) bool {
		return c.err == nil && len(c.config.Sidecar.Profiles) == 1
	})

	write(t, filepath.Join(dir, "sub", "b.yaml"), named("again"))
	until(t, changes, "a directory came back", hasProfile("again"))

	err = os.RemoveAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	until(t, changes, "the directory itself was removed", func(c change) bool {
		return c.err != nil && strings.Contains(c.err.Error(), "no such file or directory")
	})

	write(t, filepath.Join(dir, "a.yaml"), named("reborn"))
	until(t, changes, "the directory itself came back", hasProfile("reborn"))
}

// A kubelet writes a new hidden directory and then renames a link onto ..data.
func TestWatchKubeletVolume(t *testing.T) {
	dir := directory(t, map[string]string{"..1/a.yaml": profile})
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
	changes := watched(t, dir, "")
	until(t, changes, "the first reading", hasProfile("log"))

	write(t, filepath.Join(dir, "..2", "a.yaml"), named("swapped"))
	link(t, "..2", filepath.Join(dir, "..data_tmp"))
	err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, changes, "the volume was swapped", hasProfile("swapped"))
}

// git-sync swaps the link that the directory itself is.
func TestWatchSwappedLink(t *testing.T) {
	base := directory(t, map[string]string{"rev1/a.yaml": profile, "rev2/a.yaml": named("swapped")})
	dir := filepath.Join(base, "current")
	link(t, "rev1", dir)
	changes := watched(t, dir, "")
	until(t, changes, "the first reading", hasProfile("log"))

	for _, rev := range []string{"rev2", "rev1"} {
		link(t, rev, dir+".tmp")
		err := os.Rename(dir+".tmp", dir)
		if err != nil {
			t.Fatal(err)
		}
		until(t, changes, "the link was swapped to "+rev, hasProfile(map[string]string{"rev1": "log", "rev2": "swapped"}[rev]))
	}
	write(t, filepath.Join(base, "rev1", "a.yaml"), named("third"))
	until(t, changes, "a file was written behind the link", hasProfile("third"))
}

func TestStable(t *testing.T) {
	for name, c := range map[string]struct {
		readings string // one letter for the state of each reading; the last one stays
		want     string // the state that is returned, "" is an error
		reads    int
	}{
		"quiet":                   {"a", "a", 2},
		"read during a swap":      {"xb", "b", 3},
		"two changes":             {"abc", "c", 4},
		"back to what it was":     {"aba", "a", 4},
		"restless":                {"abababababababab", "", maxReadings},
		"at rest just before end": {"abababab", "b", maxReadings - 1},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			read := func() tree {
				i := min(reads, len(c.readings)-1)
				reads++
				return texts("# " + c.readings[i:i+1])
			}
			got := stable(read(), read)
			if reads != c.reads {
				t.Errorf("%d readings, want %d", reads, c.reads)
			}
			switch {
			case c.want == "" && (len(got.found) != 1 || !strings.Contains(got.found[0].Message, "changed during each of 10 reads")):
				t.Errorf("got %v, want a finding", got.found)
			case c.want != "" && (len(got.found) != 0 || got.state != texts("# "+c.want).state):
				t.Errorf("got %q with %v, want %q", got.files[0].data, got.found, c.want)
			}
		})
	}
}
