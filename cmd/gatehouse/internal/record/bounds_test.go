package record_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// params are objects of which each look-up returns others, as if a tenant changed them between reviews.
type params struct {
	text  string
	count int
	same  []*unstructured.Unstructured
}

func (p *params) next() *unstructured.Unstructured {
	p.count++
	return &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"resourceVersion": fmt.Sprint(p.count)}, "data": map[string]any{"a": p.text}}}
}

func (*params) Namespace(string) (*corev1.Namespace, bool)       { return nil, false }
func (*params) Namespaced(schema.GroupVersionKind) (bool, error) { return true, nil }
func (p *params) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return p.next(), nil
}

func (p *params) List(schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return p.same, nil
}

// wait waits until a Recorder has seen n reviews.
func wait(r *record.Recorder, n int64) {
	for s := r.Stats(); s.Recorded+s.Skipped+s.Dropped["queue"]+s.Dropped["disk"]+s.Dropped["size"] < n; s = r.Stats() {
		runtime.Gosched()
	}
}

// whole returns the number of reviews in a recording. It fails if a Reader refuses any of its files.
func whole(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.Open(name) // #nosec G304 -- of this test
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.NewReader(file)
		for err == nil {
			if _, err = r.NextText(); err == nil {
				n++
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		_ = file.Close()
	}
	return n
}

// TestEverythingReadsBack records what is hostile or large. What a Recorder says that it has recorded, a
// Reader reads.
func TestEverythingReadsBack(t *testing.T) {
	t.Parallel()
	text := make([]byte, 500_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	objects := &params{text: hex.EncodeToString(text)}
	snapshot, err := webhooks.Compile(webhooks.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot = snapshot.With(webhooks.Lookups{Objects: objects, Now: time.Now})
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	get := func(o webhooks.Lookups) { _, _ = o.Objects.Get(kind, "shop", "limits") }
	list := func(o webhooks.Lookups) { _, _ = o.Objects.List(kind, "shop", nil) }
	small := admissionReview("1", `{"kind":"A"}`)
	part := func(i int) string {
		text := strings.Repeat(fmt.Sprint(i%10), 60_000)
		return fmt.Sprintf(`{"kind":"A","spec":{"a":["a%d",%q],"b":["b%[1]d",%[2]q]},"status":{"c":["c%[1]d",%[2]q]}}`, i, text)
	}
	for _, tt := range []struct {
		name    string
		reviews int
		body    func(i int) []byte
		lookup  func(webhooks.Lookups)
		params  int // that a list returns
		dropped int64
	}{
		{"param that changes", 80, func(int) []byte { return small }, get, 0, 0},
		{"params of one review", 3, func(int) []byte { return small }, list, 7, 0},
		{"params of one review that are too large", 3, func(int) []byte { return small }, list, 80, 3},
		{"long list", 3, func(int) []byte { return admissionReview("1", `{"data":[`+strings.Repeat("0,", 1_500_000)+`0]}`) }, nil, 0, 0},
		{"many lists", 2, func(int) []byte {
			return admissionReview("1", `{"data":{`+strings.Repeat(`"a":[`+strings.Repeat("0,", 500)+`0],`, 2000)+`"a":0}}`)
		}, nil, 0, 0},
		{"many members", 2, func(int) []byte {
			return admissionReview("1", `{`+strings.Repeat(`"data":0,"data":[`+strings.Repeat("0,", 500)+`0],`, 2000)+`"a":0}`)
		}, nil, 0, 0},
		{"large", 3, func(int) []byte {
			return admissionReview("1", fmt.Sprintf(`{"a":%q}`, objects.text+objects.text+objects.text))
		}, nil, 0, 0},
		{"largest", 2, func(int) []byte {
			return admissionReview("1", fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", review.MaxAdmissionBytes-1000)))
		}, nil, 0, 0},
		{"large parts", 300, func(i int) []byte { return admissionReview(fmt.Sprint(i), part(i/2)) }, nil, 0, 0},
		{"values in hashes", 1, func(int) []byte {
			var env []string
			for i := range len(redacted.Prefix) - 8 {
				for k := i + 8; k < len(redacted.Prefix); k++ {
					env = append(env, fmt.Sprintf(`{"name":"A","value":%q}`, redacted.Prefix[i:k]))
				}
			}
			return admissionReview("1", `{"spec":{"containers":[{"env":[`+strings.Join(env, ",")+`]}]}}`)
		}, nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(t, dir)
			o.MaxBytes = 1 << 30
			r := record.New(o)
			stop := run(r)
			objects.same = nil
			waiting := 0
			if len(tt.body(0)) < 300_000 {
				waiting = 8
			}
			for range tt.params {
				objects.same = append(objects.same, objects.next())
			}
			for i := range tt.reviews {
				trace := r.Begin()
				if traced := trace.Snapshot(snapshot); tt.lookup != nil {
					tt.lookup(traced.Lookups())
				}
				answer := fmt.Appendf(nil, `{"response":{"allowed":true,"warnings":[%q]}}`, strings.Repeat("gatehouse-", 10_000))
				trace.Finish(&review.Outcome{Endpoint: "validate", UID: types.UID(fmt.Sprint(i)), Decision: review.Allowed, Started: time.Now()}, review.Exchange{Body: tt.body(i), Answer: answer})
				wait(r, int64(i+1-waiting))
			}
			stop()
			s := r.Stats()
			if s.Dropped["size"] != tt.dropped || s.Recorded != int64(tt.reviews)-tt.dropped {
				t.Errorf("stats %+v, want %d dropped", s, tt.dropped)
			}
			if got := whole(t, dir); got != s.Recorded {
				t.Errorf("%d reviews can be read of %d", got, s.Recorded)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
			if len(files) > 1+tt.reviews/8 {
				t.Errorf("%d segments for %d reviews", len(files), tt.reviews)
			}
		})
	}
}

// TestLongLists redacts lists whose hashes would take 26 times their memory.
func TestLongLists(t *testing.T) {
	t.Parallel()
	list := `[` + strings.Repeat("0,", 500_000) + `0]`
	for _, tt := range []struct{ name, object string }{
		{"list", `{"kind":"Widget","data":` + list + `,"spec":{"numbers":[1,2,3]}}`},
		{"list in a map", `{"kind":"Widget","data":{"a":"kept","b":` + list + `},"spec":{"numbers":[1,2,3]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := admissionReview("1", tt.object)
			out, _ := redactor(t).RedactRequest(nil, body)
			if len(out) > 8*len(body) || !bytes.Contains(out, []byte(`"data":"`+redacted.Prefix)) || !bytes.Contains(out, []byte(`"numbers":[1,2,3]`)) {
				t.Errorf("%d bytes of %d: %.200s", len(out), len(body), out)
			}
			if object := redactor(t).Object([]byte(tt.object)); len(object) > 8*len(tt.object) {
				t.Errorf("an object has %d bytes of %d", len(object), len(tt.object))
			}
		})
	}
	small := admissionReview("1", `{"data":{"a":["kept",0,0,0]}}`)
	if out, _ := redactor(t).RedactRequest(nil, small); bytes.Count(out, []byte(redacted.Prefix)) != 5 {
		t.Errorf("a short list is not redacted one by one: %s", out)
	}
}

// TestMemory records a large review. Its memory does not stay.
func TestMemory(t *testing.T) {
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r := record.New(options(t, t.TempDir()))
	stop := run(r)
	defer stop()
	add(r, "1", admissionReview("1", `{}`), nil)
	wait(r, 1)
	before := inUse()
	add(r, "2", admissionReview("2", `{"a":"`+strings.Repeat("x", 7<<19)+`"}`), nil)
	wait(r, 2)
	add(r, "3", admissionReview("3", `{}`), nil)
	wait(r, 3)
	if after := inUse(); after > before+(4<<20) {
		t.Errorf("%d MiB stay in memory", (after-before)>>20)
	}
	runtime.KeepAlive(r)
}

// TestConfigurationOutlivesSegments replaces a configuration that was active longer than the recording
// is kept. It stays while reviews that it decided do.
func TestConfigurationOutlivesSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, record.ConfigurationName("old"))
	synctest.Test(t, func(t *testing.T) {
		o := options(t, dir)
		o.MaxAge = 10 * time.Minute
		r := record.New(o)
		r.Configuration("old", []byte("kind: A\n"))
		stop := run(r)
		defer stop()
		for i := range 6 {
			add(r, fmt.Sprint(i), admissionReview("1", `{}`), nil)
			time.Sleep(5 * time.Minute)
			if i == 0 { // the clock of files is not that of the test
				if err := os.Chtimes(name, time.Now(), time.Now()); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.Configuration("new", []byte("kind: B\n"))
		for _, tt := range []struct {
			after time.Duration
			want  bool
		}{{5 * time.Minute, true}, {2 * time.Hour, true}, {10 * time.Minute, false}} {
			time.Sleep(tt.after)
			if _, err := os.Stat(name); (err == nil) != tt.want {
				t.Errorf("%s later: %v, want it there: %v", tt.after, err, tt.want)
			}
		}
	})
}

// TestFilesAreRemoved removes what a Recorder writes to. It begins a new segment, and stores the
// configuration again.
func TestFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		o := options(t, dir)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		r := record.New(o)
		r.Configuration("d", []byte("kind: A\n"))
		stop := run(r)
		add(r, "1", admissionReview("1", `{}`), nil)
		time.Sleep(5 * time.Second)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Fatalf("%v, %v", entries, err)
		}
		for _, entry := range entries {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		add(r, "2", admissionReview("2", `{}`), nil)
		time.Sleep(5 * time.Second)
		stop()
	})
	all, _ := recorded(t, dir)
	_, err := os.Stat(filepath.Join(dir, record.ConfigurationName("d")))
	if len(all) != 1 || all[0].ID != "2" || err != nil || strings.Count(log.String(), "is gone") != 1 {
		t.Errorf("reviews %+v, configuration %v, log %s", all, err, &log)
	}
}

// TestReplicasShareDirectory fills a directory. What another replica is writing is removed last.
func TestReplicasShareDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, size int, age time.Duration) string {
		name = filepath.Join(dir, name)
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(name, make([]byte, size), 0o600), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	closed := file("20261120T080000.000Z-other"+record.SegmentSuffix, 400<<10, 30*time.Minute)
	open := file("20261120T090000.000Z-other"+record.SegmentSuffix, 400<<10, 20*time.Minute)
	own := file("20261120T093000.000Z-replica-1"+record.SegmentSuffix, 600<<10, 10*time.Minute)
	dead := file("20261120T030000.000Z-dead"+record.SegmentSuffix, 400<<10, 2*time.Hour)
	o := options(t, dir)
	o.MaxBytes = 1 << 20
	r := record.New(o)
	stop := run(r)
	add(r, "1", admissionReview("1", `{}`), nil)
	stop()
	for _, one := range []struct {
		name, file string
		want       bool
	}{{"closed", closed, false}, {"open", open, true}, {"own", own, false}, {"dead", dead, false}} {
		if _, err := os.Stat(one.file); (err == nil) != one.want {
			t.Errorf("%s: %v, want it there: %v", one.name, err, one.want)
		}
	}
}
