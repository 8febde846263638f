package replicas_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/test/support/portforward"
)

func begun() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// recorder is a replica that records to a directory. It counts requests for files, and notes their ranges.
type recorder struct {
	t        *testing.T
	dir      string
	requests atomic.Int64
	ranges   chan string
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	return &recorder{t: t, dir: t.TempDir(), ranges: make(chan string, 100)}
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path != debug.RecordingPath {
		r.requests.Add(1)
		r.ranges <- q.Header.Get("Range")
	}
	debug.Handler(debug.Options{Level: debug.NewLevel(new(slog.LevelVar), slog.New(slog.DiscardHandler)), Recording: r.dir}).ServeHTTP(w, q)
}

// write writes a file that was modified so many minutes after the beginning.
func (r *recorder) write(name, text string, minutes int) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	at := begun().Add(time.Duration(minutes) * time.Minute)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recorder) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

func newMirror(t *testing.T, s *portforward.APIServer, now func() time.Time) *replicas.Mirror {
	t.Helper()
	cluster, err := replicas.NewCluster(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return replicas.NewMirror(cluster, filepath.Join(t.TempDir(), "mirror"), now)
}

// content returns the files of a directory with their content.
func content(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSuffix(entry.Name(), ".gatehouse.zst")+"="+string(text))
	}
	return strings.Join(out, " ")
}

func TestMirror(t *testing.T) {
	t.Parallel()
	a, b := newRecorder(t), newRecorder(t)
	shared := newRecorder(t)
	s := portforward.NewAPIServer(t, map[string]http.Handler{
		"a": a, "b": b, "c": shared, "d": shared, "off": debug.Handler(debug.Options{Level: debug.NewLevel(new(slog.LevelVar), slog.New(slog.DiscardHandler))}),
	})
	a.write("1-a.gatehouse.zst", "one", 0)
	b.write("1-b.gatehouse.zst", "b", 1)
	shared.write("1-c.gatehouse.zst", "shared", 2)
	now := begun().Add(time.Hour)
	m := newMirror(t, s, func() time.Time { return now })
	if state := m.State(); strings.Join(state.Text(), " ") != "Fetching the recordings of the replicas." {
		t.Errorf("before the first pass: %q", state.Text())
	}
	expect := func(step, files, text string) {
		t.Helper()
		m.Sync(t.Context())
		state := m.State()
		if got := content(t, m.Dir); got != files {
			t.Errorf("%s: files %s, want %s", step, got, files)
		}
		if got := strings.Join(state.Text(), " "); !strings.Contains(got, text) {
			t.Errorf("%s: %s, want %s", step, got, text)
		}
	}
	expect("first", "1-a=one 1-b=b 1-c=shared", "Recordings of 4 of 5 replicas: 3 segments, 0.0 MiB.")
	if n := shared.requests.Load(); n != 1 {
		t.Errorf("a file of two replicas was fetched %d times", n)
	}
	for len(a.ranges) > 0 {
		<-a.ranges
	}

	a.write("1-a.gatehouse.zst", "one more", 3)
	a.write("2-a.gatehouse.zst", "two", 4)
	expect("grown", "1-a=one more 1-b=b 1-c=shared 2-a=two", "4 segments")
	if first, second := <-a.ranges, <-a.ranges; first+second != "bytes=3-" || len(a.ranges) > 0 {
		t.Errorf("ranges %q %q and %d more", first, second, len(a.ranges))
	}

	// A segment that no replica has any more stays while there is space.
	b.remove("1-b.gatehouse.zst")
	expect("removed there", "1-a=one more 1-b=b 1-c=shared 2-a=two", "4 segments")

	// Without space for all, the newest ones stay.
	m.MaxBytes = 12
	expect("little space", "1-b=b 1-c=shared 2-a=two", "Not fetched, because there is no space for them: 1 older segment")

	s.Dead, s.Forbidden = "a", "b"
	m.MaxBytes = replicas.MirrorBytes
	expect("not reached", "1-b=b 1-c=shared 2-a=two", `Not read: replica b: unable to upgrade connection: pods "b" is forbidden: User "joe" cannot create resource "pods/portforward"`)
}

// TestMirrorHostile has a replica whose names and sizes are lies.
func TestMirrorHostile(t *testing.T) {
	t.Parallel()
	s := portforward.NewAPIServer(t, map[string]http.Handler{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == debug.RecordingPath {
			_, _ = io.WriteString(w, `{"files":[{"name":"../../evil.gatehouse.zst","bytes":1},{"name":"../x.yaml","bytes":1},{"name":"1.gatehouse.zst","bytes":-5},{"name":"2.gatehouse.zst","bytes":1}]}`)
			return
		}
		for range 1 << 10 { // 32 MiB
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	})})
	m := newMirror(t, s, begun)
	m.Sync(t.Context())
	entries, err := os.ReadDir(m.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "2.gatehouse.zst" {
		t.Fatalf("%v %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Size() > 17<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if state := m.State(); len(state.Problems) > 0 {
		t.Errorf("%+v", state)
	}
	if matches, _ := filepath.Glob(filepath.Join(m.Dir, "..", "..", "evil*")); len(matches) > 0 {
		t.Errorf("files outside of the directory: %s", matches)
	}
}

// TestMirrorLook follows the replicas only while somebody looks.
func TestMirrorLook(t *testing.T) {
	t.Parallel()
	looks := make(chan struct{}, 10)
	s := portforward.NewAPIServer(t, map[string]http.Handler{"a": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		looks <- struct{}{}
		_, _ = fmt.Fprint(w, `{"files":[]}`)
	})})
	ctx, cancel := context.WithCancel(t.Context())
	m := newMirror(t, s, begun)
	var background sync.WaitGroup
	m.Look(ctx, background.Go)
	m.Look(ctx, background.Go)
	<-looks
	cancel()
	background.Wait()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m, err := replicas.ReadMetrics(strings.NewReader(`# TYPE a gauge
a{x="1",y="1"} 1
a{x="1",y="2"} 2
a{x="2",y="2"} 4
# TYPE b counter
b 7
c 8
# TYPE h histogram
h_bucket{le="+Inf"} 1
h_sum 1
h_count 1
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m.SumBy("a", "x"), m.SumBy("a", "x", "y", "2"), m.Series("a", "x", "2"), m.Series("h"), m.Series("none")); got != "map[1:3 2:4] map[1:2 2:4] [{map[x:2 y:2] 4}] [] []" {
		t.Error(got)
	}
	for name, want := range map[string]float64{"b": 7, "c": 8} {
		if got, ok := m.Value(name); !ok || got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	if _, ok := m.Value("none"); ok {
		t.Error("there is a value without a metric")
	}
	for _, tt := range []struct{ name, text, want string }{
		{"no metrics", "<html>", "the answer has no metrics in the format of Prometheus"},
		{"too large", strings.Repeat("# comment\n", 2<<20), "larger than 16 MiB"},
	} {
		if _, err := replicas.ReadMetrics(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	s := portforward.NewAPIServer(t, map[string]http.Handler{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "path{is=%q} 1\n", r.URL.Path) })})
	cluster, err := replicas.NewCluster(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := cluster.Pods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Fatal(len(pods), err)
	}
	running, err := cluster.Running(pods)
	if err != nil || len(running) != 1 {
		t.Fatal(len(running), err)
	}
	if m, err = running[0].Metrics(t.Context()); err != nil || len(m.Series("path", "is", "/metrics")) != 1 {
		t.Error(err)
	}
}
