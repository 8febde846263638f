package index_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

var begin = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// reviewOf returns the review of a number. One of eight is refused, and one of sixteen is a login.
func reviewOf(n int) *record.Review {
	r := &record.Review{
		ID: fmt.Sprintf("7c0f8d9e-5d53-4d3e-9a54-%012x", n), Time: begin.Add(time.Duration(n) * 20 * time.Millisecond), Took: time.Duration(300+n%700) * time.Microsecond,
		Endpoint: "validate", Decision: review.Allowed, Response: json.RawMessage(`{"allowed":true}`),
	}
	user, namespace := fmt.Sprintf("system:serviceaccount:team-%d:deployer", n%97), fmt.Sprintf("team-%d", n%97)
	switch {
	case n%16 == 5:
		r.Endpoint, r.Token = "authenticate", &record.Token{Backend: "JWT", Source: "ci", ID: fmt.Sprint("token-", n%50)}
		r.Response = fmt.Appendf(nil, `{"status":{"authenticated":true,"user":{"username":%q}}}`, user)
		return r
	case n%8 == 3:
		r.Decision = review.Denied
		r.Response = fmt.Appendf(nil, `{"allowed":false,"status":{"message":"AdmissionPolicy 'team-label' denied request: no team","details":{"causes":[{"reason":"team","message":"AdmissionPolicy 'team-label' denied request: no team"}]}}}`)
	case n%8 == 4:
		r.Endpoint = "mutate"
		r.Response = json.RawMessage(`{"allowed":true,"patch":[{"op":"add","path":"/x","value":1}],"auditAnnotations":{"profiles":"logs=applied"}}`)
	case n%8 == 6:
		r.Response = json.RawMessage(`{"allowed":true,"warnings":["AdmissionPolicy 'limits' denied request: no limits"]}`)
	}
	kind, group := "Pod", ""
	if n%3 == 0 {
		kind, group = "Deployment", "apps"
	}
	name := fmt.Sprintf("checkout-%d-%05d", n%41, n%99999)
	r.Request = fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":%q,"version":"v1","kind":%q},"resource":{"group":%q,"version":"v1","resource":"x"},`+
		`"namespace":%q,"name":%q,"operation":"CREATE","userInfo":{"username":%q},"object":{"metadata":{"name":%q,"namespace":%q,"labels":{"app":"checkout"}},"spec":{"containers":[{"name":"app","image":"registry.example/checkout:%d"}]}},"oldObject":null,"dryRun":%v}}`,
		r.ID, group, kind, group, namespace, name, user, name, namespace, n%50, n%11 == 0)
	return r
}

func header() *record.Header {
	return &record.Header{Format: record.FormatVersion, Source: record.FromServer, Started: begin, Redaction: record.Redaction{Key: "k1"}}
}

// write writes reviews as segments of a file, and closes the last one if whole.
func write(t testing.TB, out io.Writer, from, to, perSegment int, whole bool) *record.Writer {
	t.Helper()
	var w *record.Writer
	var line []byte
	for n := from; n < to; n++ {
		if w == nil || (n-from)%perSegment == 0 {
			if w != nil {
				check(t, w.Close())
			}
			var err error
			w, err = record.NewWriter(out, header())
			check(t, err)
		}
		var err error
		line, err = reviewOf(n).AppendLine(line[:0])
		check(t, err)
		check(t, w.WriteText(line))
	}
	if whole {
		check(t, w.Close())
	} else {
		check(t, w.Flush())
	}
	return w
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func recording(t testing.TB, path string, from, to, perSegment int) string {
	t.Helper()
	file, err := os.Create(path)
	check(t, err)
	write(t, file, from, to, perSegment, true)
	check(t, file.Close())
	return path
}

// start runs an Index until the test ends or calls stop.
func start(t testing.TB, paths ...string) (x *index.Index, stop func()) {
	t.Helper()
	x = index.New(index.Options{Paths: paths, Fallback: t.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return x, stop
}

// wait waits until the state of an Index is as wanted.
func wait(t testing.TB, x *index.Index, is func(index.State) bool) index.State {
	t.Helper()
	deadline, again := time.After(5*time.Minute), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		s := x.State()
		if is(s) {
			return s
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the index is in state %+v", s)
		}
	}
}

func ready(s index.State) bool { return s.Ready }

func hasRows(n int) func(index.State) bool {
	return func(s index.State) bool { return s.Ready && s.Rows == n }
}

func find(t testing.TB, x *index.Index, f index.Filter, skip, most int) ([]index.Row, int) {
	t.Helper()
	rows, total, err := x.Find(t.Context(), f, skip, most)
	check(t, err)
	return rows, total
}

const reviews = 20_000

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := recording(t, filepath.Join(dir, "all.gatehouse.zst"), 0, reviews, 3000)
	for _, name := range []string{"built", "opened"} {
		x, stop := start(t, path)
		s := wait(t, x, ready)
		if s.Rows != reviews || s.Done != s.Total || s.Live || len(s.Problems) > 0 || !s.First.Equal(begin) {
			t.Fatalf("%s: state is %+v", name, s)
		}
		testFilters(t, x)
		stop()
		if _, err := os.Stat(path + record.IndexSuffix); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path + record.IndexSuffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the mode of the index is %v, %v", info.Mode(), err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, ".*")); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
}

func testFilters(t *testing.T, x *index.Index) {
	t.Helper()
	subjects := make([]replay.Subject, reviews)
	for n := range subjects {
		subjects[n] = replay.SubjectOf(reviewOf(n))
	}
	for _, tt := range []struct {
		name   string
		filter index.Filter
		is     func(n int, s *replay.Subject) bool
	}{
		{"all", index.Filter{}, func(int, *replay.Subject) bool { return true }},
		{"namespace", index.Filter{Namespaces: []string{"team-7", "team-8"}}, func(_ int, s *replay.Subject) bool { return s.Namespace == "team-7" || s.Namespace == "team-8" }},
		{"user", index.Filter{Users: []string{"system:serviceaccount:team-7:deployer"}}, func(_ int, s *replay.Subject) bool { return s.User == "system:serviceaccount:team-7:deployer" }},
		{"kind without group", index.Filter{Kinds: []string{"deployment"}}, func(_ int, s *replay.Subject) bool { return s.Kind == "Deployment.apps" }},
		{"kind with group", index.Filter{Kinds: []string{"Deployment.apps"}}, func(_ int, s *replay.Subject) bool { return s.Kind == "Deployment.apps" }},
		{"endpoint", index.Filter{Endpoints: []string{"authenticate"}}, func(_ int, s *replay.Subject) bool { return s.Endpoint == "authenticate" }},
		{"decision", index.Filter{Decisions: []string{"denied"}}, func(n int, _ *replay.Subject) bool { return n%8 == 3 }},
		{"no decision", index.Filter{Decisions: []string{"none"}}, func(int, *replay.Subject) bool { return false }},
		{"policy", index.Filter{Policies: []string{"team-label"}}, func(n int, _ *replay.Subject) bool { return n%8 == 3 }},
		{"policy with kind", index.Filter{Policies: []string{"AdmissionPolicy/limits"}}, func(n int, _ *replay.Subject) bool { return n%8 == 6 }},
		{"effect", index.Filter{Effects: []replay.Effect{replay.Warned}}, func(n int, _ *replay.Subject) bool { return n%8 == 6 }},
		{"policy without this effect", index.Filter{Policies: []string{"limits"}, Effects: []replay.Effect{replay.Refused}}, func(int, *replay.Subject) bool { return false }},
		{"time", index.Filter{From: begin.Add(10 * time.Second), To: begin.Add(20 * time.Second)}, func(n int, _ *replay.Subject) bool { return n >= 500 && n < 1000 }},
		{"name", index.Filter{Text: "OUT-40-0"}, func(_ int, s *replay.Subject) bool { return strings.Contains(s.Name, "out-40-0") }},
		{"name and time", index.Filter{Text: "out-40-0", From: begin.Add(10 * time.Second), To: begin.Add(20 * time.Second)}, func(n int, s *replay.Subject) bool {
			return strings.Contains(s.Name, "out-40-0") && n >= 500 && n < 1000
		}},
		{"unknown user", index.Filter{Users: []string{"(other)"}}, func(int, *replay.Subject) bool { return false }},
		{"no time", index.Filter{To: begin}, func(int, *replay.Subject) bool { return false }},
	} {
		var want []int
		for n := reviews - 1; n >= 0; n-- {
			if tt.is(n, &subjects[n]) {
				want = append(want, n)
			}
		}
		const skip, most = 7, 60
		rows, total := find(t, x, tt.filter, skip, most)
		if total != len(want) {
			t.Errorf("%s: total is %d, want %d", tt.name, total, len(want))
			continue
		}
		want = want[min(skip, len(want)):]
		want = want[:min(most, len(want))]
		if len(rows) != len(want) {
			t.Errorf("%s: %d rows, want %d", tt.name, len(rows), len(want))
			continue
		}
		for i, n := range want {
			subject := subjects[n]
			subject.Recording = rows[i].Recording
			if rows[i].Subject != subject || rows[i].Decision != string(reviewOf(n).Decision) || rows[i].Took != reviewOf(n).Took {
				t.Errorf("%s: row %d is %+v, want %+v", tt.name, i, rows[i], subject)
				break
			}
		}
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	x, _ := start(t, recording(t, filepath.Join(t.TempDir(), "all.gatehouse.zst"), 0, 32, 10))
	wait(t, x, ready)
	for _, tt := range []struct {
		name string
		n    int
		want func(*index.Row) bool
	}{
		{"refused", 3, func(r *index.Row) bool {
			return r.Message == "AdmissionPolicy 'team-label' denied request: no team" && slices.Equal(r.Causes, []replay.Cause{{Rule: replay.Rule{Kind: "AdmissionPolicy", Name: "team-label", Rule: "team"}, Effect: replay.Refused}})
		}},
		{"injected", 4, func(r *index.Row) bool {
			return r.HasPatch && !r.HasWarnings && slices.Equal(r.Causes, []replay.Cause{{Rule: replay.Rule{Kind: "SidecarProfile", Name: "logs"}, Effect: replay.Injected}})
		}},
		{"warned", 6, func(r *index.Row) bool {
			return r.HasWarnings && !r.HasPatch && len(r.Causes) == 1 && r.Causes[0].Effect == replay.Warned
		}},
		{"dry run", 11, func(r *index.Row) bool { return r.DryRun }},
		{"login", 21, func(r *index.Row) bool { return r.Kind == "TokenReview" && r.Name == "token-21" && r.Message == "" }},
	} {
		rows, err := x.ByID(reviewOf(tt.n).ID)
		if err != nil || len(rows) != 1 || !tt.want(&rows[0]) {
			t.Errorf("%s: %+v, %v", tt.name, rows, err)
			continue
		}
		item, err := x.Read(t.Context(), &rows[0])
		if err != nil || item.Review.ID != rows[0].ID || !bytes.Equal(item.Review.Request, reviewOf(tt.n).Request) {
			t.Errorf("%s: read %+v, %v", tt.name, item, err)
		}
	}
	if rows, err := x.ByID("7c0f"); err != nil || len(rows) > 0 {
		t.Errorf("ByID of a prefix returns %v, %v", rows, err)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	x, _ := start(t, recording(t, filepath.Join(t.TempDir(), "all.gatehouse.zst"), 0, 1600, 500))
	wait(t, x, ready)
	buckets, err := x.Histogram(t.Context(), index.Filter{Decisions: []string{"denied"}}, 4)
	check(t, err)
	if got := buckets.Counts["denied"]; !slices.Equal(got, []int{50, 50, 50, 50}) || len(buckets.Decisions) != 1 {
		t.Errorf("the histogram is %+v", buckets)
	}
	found, err := x.TopCauses(t.Context(), index.Filter{Effects: []replay.Effect{replay.Refused}}, false, 5)
	check(t, err)
	if len(found) != 1 || found[0].Name != "team-label" || found[0].Rule.Rule != "" || found[0].Count != 200 {
		t.Errorf("TopCauses is %v", found)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	x, stop := start(t, dir)
	wait(t, x, ready)
	path := filepath.Join(dir, "20261120T120000.000Z-a.gatehouse.zst")
	file, err := os.Create(path)
	check(t, err)
	w := write(t, file, 0, 100, 1000, false)
	s := wait(t, x, hasRows(100))
	if !s.Live {
		t.Errorf("a recording that is being written is not live: %+v", s)
	}
	for n := 100; n < 300; n++ {
		line, err := reviewOf(n).AppendLine(nil)
		check(t, err)
		check(t, w.WriteText(line))
	}
	check(t, w.Flush())
	wait(t, x, hasRows(300))
	rows, _ := find(t, x, index.Filter{}, 0, 1)
	if item, err := x.Read(t.Context(), &rows[0]); err != nil || item.Review.ID != reviewOf(299).ID {
		t.Errorf("a review of the segment that is being written: %v, %v", item, err)
	}
	if _, err := os.Stat(path + record.IndexSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a segment that is not whole has an index: %v", err)
	}
	check(t, w.Close())
	check(t, file.Close())
	wait(t, x, func(s index.State) bool { return !s.Live })
	wait(t, x, func(index.State) bool { _, err := os.Stat(path + record.IndexSuffix); return err == nil })

	// Another replica, whose reviews are between those.
	other := recording(t, filepath.Join(dir, "20261120T120001.000Z-b.gatehouse.zst"), 50, 80, 10)
	wait(t, x, hasRows(330))
	rows, _ = find(t, x, index.Filter{}, 0, 400)
	if !slices.IsSortedFunc(rows, func(a, b index.Row) int { return b.Time.Compare(a.Time) }) {
		t.Error("rows are not sorted")
	}
	same, err := x.ByID(reviewOf(60).ID)
	check(t, err)
	if len(same) != 2 || same[0].Recording == same[1].Recording {
		t.Errorf("reviews of an ID: %v", same)
	}
	wait(t, x, func(index.State) bool { _, err := os.Stat(other + record.IndexSuffix); return err == nil })
	if got := len(x.Sources()); got != 2 {
		t.Errorf("%d sources", got)
	}

	// The Recorder removes an old segment.
	check(t, os.Remove(path))
	wait(t, x, hasRows(30))
	wait(t, x, func(index.State) bool {
		_, err := os.Stat(path + record.IndexSuffix)
		return errors.Is(err, os.ErrNotExist)
	})
	stop()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("files are left: %v", left)
	}
}

// TestGrown checks that a recording that has grown since its index was made is indexed further.
func TestGrown(t *testing.T) {
	t.Parallel()
	path := recording(t, filepath.Join(t.TempDir(), "all.gatehouse.zst"), 0, 100, 30)
	x, stop := start(t, path)
	wait(t, x, hasRows(100))
	stop()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	write(t, file, 100, 170, 30, true)
	check(t, file.Close())
	for range 2 {
		x, stop = start(t, path)
		wait(t, x, hasRows(170))
		if rows, total := find(t, x, index.Filter{Text: "checkout"}, 0, 1); rows[0].ID != reviewOf(169).ID || total != 159 {
			t.Errorf("found %d, %v", total, rows[0])
		}
		stop()
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	write(t, &whole, 0, 100, 30, true)
	for _, tt := range []struct {
		name    string
		text    []byte
		rows    int
		problem string
	}{
		{"no recording", []byte("hello"), 0, "is no recording"},
		{"not zstd behind it", append(bytes.Clone(whole.Bytes()), "hello, this is no frame"...), 100, "not compressed with zstd"},
		{"a frame is damaged", func() []byte {
			text := bytes.Clone(whole.Bytes())
			text[200] ^= 0xff
			return text
		}(), 70, "line"},
		{"cut off", whole.Bytes()[:whole.Len()-10], 90, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "one.gatehouse.zst")
			check(t, os.WriteFile(path, tt.text, 0o600))
			x, _ := start(t, path)
			s := wait(t, x, ready)
			if s.Rows < tt.rows || tt.problem != "" && !strings.Contains(strings.Join(s.Problems, "\n"), tt.problem) {
				t.Errorf("the state is %+v", s)
			}
		})
	}
}

// TestIdle checks that a file that ends early and is old is said to be so, and is read again when it grows.
func TestIdle(t *testing.T) {
	t.Parallel()
	var all bytes.Buffer
	write(t, &all, 0, 1000, 5000, true)
	path := filepath.Join(t.TempDir(), "one.gatehouse.zst")
	check(t, os.WriteFile(path, all.Bytes()[:all.Len()/2], 0o600))
	old := time.Now().Add(-time.Hour)
	check(t, os.Chtimes(path, old, old))
	x, _ := start(t, path)
	s := wait(t, x, func(s index.State) bool { return s.Ready && len(s.Problems) > 0 })
	if s.Live || !strings.Contains(s.Problems[0], "the rest is missing") {
		t.Errorf("the state is %+v", s)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = file.Write(all.Bytes()[all.Len()/2:])
	check(t, errors.Join(err, file.Close()))
	s = wait(t, x, hasRows(1000))
	if len(s.Problems) > 0 {
		t.Errorf("problems: %v", s.Problems)
	}
}

// TestJoined checks a segment that consists of several zstd frames.
func TestJoined(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "one.gatehouse.zst")
	check(t, os.WriteFile(path, joined(t), 0o600))
	x, _ := start(t, path)
	wait(t, x, hasRows(100))
	rows, _ := find(t, x, index.Filter{}, 0, 1)
	if item, err := x.Read(t.Context(), &rows[0]); err != nil || item.Review.ID != reviewOf(99).ID {
		t.Errorf("read %v, %v", item, err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := recording(t, filepath.Join(dir, "all.gatehouse.zst"), 0, 100, 30)
	check(t, os.Mkdir(path+record.IndexSuffix, 0o700)) // root may write to directories that are read-only
	x, _ := start(t, path)
	s := wait(t, x, hasRows(100))
	if !strings.Contains(s.Files[0].Note, "its index cannot be kept beside it") {
		t.Errorf("the state is %+v", s)
	}
	if _, total := find(t, x, index.Filter{Text: "checkout"}, 0, 10); total != 94 {
		t.Errorf("found %d", total)
	}
}
