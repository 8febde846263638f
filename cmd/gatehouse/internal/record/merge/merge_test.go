package merge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/merge"
)

// at returns a time, in seconds from the start of a recording.
func at(second int) time.Time { return time.Unix(1_700_000_000+int64(second), 0).UTC() }

// header returns that of a segment of a replica.
func header(replica string, second int) *record.Header {
	return &record.Header{
		Format: record.FormatVersion, Program: "v1", Kubernetes: "1.37", CEL: "v0.28", Source: record.FromServer, Config: "c1", Replica: replica,
		Started: at(second), Redaction: record.Redaction{Key: "k1"}, Sampling: "all",
	}
}

// review returns the line of a review that names the objects.
func review(id string, second int, objects ...int) *record.Line {
	r := &record.Review{ID: id, Time: at(second), Endpoint: "validate", Decision: "allowed", Request: json.RawMessage(`{"request":{"uid":"` + id + `"}}`), Response: json.RawMessage(`{"allowed":true}`)}
	if len(objects) > 0 {
		r.Lookups = &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop", Object: objects[0]}}, Lists: []record.ListLookup{{Objects: objects[1:]}}}
	}
	return &record.Line{Review: r}
}

func object(id int, value string) *record.Line {
	return &record.Line{Object: &record.Object{ID: id, Value: json.RawMessage(`{"v":"` + value + `"}`)}}
}

// segment returns a file.
func segment(t testing.TB, h *record.Header, lines ...*record.Line) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := record.NewWriter(&file, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func inputs(files ...[]byte) []merge.Input {
	list := make([]merge.Input, 0, len(files))
	for i, file := range files {
		list = append(list, merge.Input{Name: fmt.Sprintf("file-%d", i), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil }})
	}
	return list
}

// merged merges files, and returns each review as "id@second replica config objects", with a line
// for each segment.
func merged(t *testing.T, o merge.Options) (lines []string, result *merge.Result) {
	t.Helper()
	var out bytes.Buffer
	result, err := merge.Merge(t.Context(), &out, o)
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		return nil, result
	}
	r, err := record.NewReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := record.Header{}
	for {
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, result
		}
		if err != nil {
			t.Fatal(err)
		}
		if h := *r.Header(); h.Started != before.Started || h.Program != before.Program || h.Redaction.Key != before.Redaction.Key {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("segment %s %s %s %s", h.Program, h.Redaction.Key, h.Config, h.Replica)))
			before = h
		}
		text := fmt.Sprintf("%s@%d %s", one.ID, one.Time.Unix()-at(0).Unix(), one.Replica)
		if one.Config != "" {
			text += " " + one.Config
		}
		one.Lookups.EachObject(func(id *int) { text += " " + string(r.Object(*id)) })
		if want := `{"request":{"uid":"` + one.ID + `"}}`; string(one.Request) != want || string(one.Response) != `{"allowed":true}` {
			t.Errorf("review %s: %s %s", one.ID, one.Request, one.Response)
		}
		lines = append(lines, text)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	other := func(change func(*record.Header)) *record.Header {
		h := header("b", 0)
		change(h)
		return h
	}
	first := segment(t, header("a", 0), object(1, "x"), review("a1", 1, 1), review("a3", 3, 1), review("a2", 2, 1))
	for _, tt := range []struct {
		name  string
		files [][]byte
		since time.Time
		want  string
	}{
		{"nothing", nil, time.Time{}, ""},
		{"one file, in the order of time", [][]byte{first}, time.Time{}, `segment v1 k1 c1; a1@1 a {"v":"x"}; a2@2 a {"v":"x"}; a3@3 a {"v":"x"}`},
		{
			"two replicas, objects have new numbers",
			[][]byte{first, segment(t, header("b", 0), object(1, "y"), object(2, "x"), review("b1", 2, 1, 2, 1))},
			time.Time{},
			`segment v1 k1 c1; a1@1 a {"v":"x"}; a2@2 a {"v":"x"}; b1@2 b {"v":"y"} {"v":"x"} {"v":"y"}; a3@3 a {"v":"x"}`,
		},
		{
			"segments that do not overlap, in any order",
			[][]byte{segment(t, header("a", 7200), review("a9", 7201)), first, segment(t, header("a", 3600), review("a5", 3601))},
			time.Time{},
			`segment v1 k1 c1; a1@1 a {"v":"x"}; a2@2 a {"v":"x"}; a3@3 a {"v":"x"}; a5@3601 a; a9@7201 a`,
		},
		{
			"a review that came before its segment was begun",
			[][]byte{segment(t, header("a", 0), review("a1", 10), review("a2", 30)), segment(t, header("b", 40), review("b1", 20))},
			time.Time{},
			`segment v1 k1 c1; a1@10 a; b1@20 b; a2@30 a`,
		},
		{
			"another program and another key begin segments",
			[][]byte{
				segment(t, header("a", 0), object(1, "x"), review("a1", 1, 1), review("a4", 4, 1)),
				segment(t, other(func(h *record.Header) { h.Program = "v2" }), object(1, "x"), review("b2", 2, 1)),
				segment(t, other(func(h *record.Header) { h.Redaction.Key = "k2" }), review("b3", 3)),
			},
			time.Time{},
			`segment v1 k1 c1; a1@1 a {"v":"x"}; segment v2 k1 c1; b2@2 b {"v":"x"}; segment v1 k2 c1; b3@3 b; segment v1 k1 c1; a4@4 a {"v":"x"}`,
		},
		{
			"another configuration is in the review",
			[][]byte{segment(t, header("a", 0), review("a1", 1), review("a3", 3)), segment(t, other(func(h *record.Header) { h.Config = "c2" }), review("b2", 2))},
			time.Time{},
			`segment v1 k1 c1; a1@1 a; b2@2 b c2; a3@3 a`,
		},
		{
			"an unknown configuration begins a segment",
			[][]byte{segment(t, header("a", 0), review("a1", 1), review("a3", 3)), segment(t, other(func(h *record.Header) { h.Config = "" }), review("b2", 2))},
			time.Time{},
			`segment v1 k1 c1; a1@1 a; segment v1 k1; b2@2 b; a3@3 a c1`,
		},
		{"a file of several segments", [][]byte{append(bytes.Clone(first), segment(t, header("a", 60), object(1, "z"), review("a7", 61, 1))...)}, time.Time{}, `segment v1 k1 c1; a1@1 a {"v":"x"}; a2@2 a {"v":"x"}; a3@3 a {"v":"x"}; a7@61 a {"v":"z"}`},
		{"since", [][]byte{first}, at(2), `segment v1 k1 c1; a2@2 a {"v":"x"}; a3@3 a {"v":"x"}`},
		{"an object that the recording does not hold", [][]byte{segment(t, header("a", 0), review("a1", 1, 7))}, time.Time{}, `segment v1 k1 c1; a1@1 a`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lines, result := merged(t, merge.Options{Inputs: inputs(tt.files...), Since: tt.since})
			for i := range lines {
				lines[i] = strings.TrimSpace(lines[i])
			}
			if got := strings.Join(lines, "; "); got != tt.want || len(result.Problems) > 0 {
				t.Errorf("merged\n%s\nwant\n%s\n%v", got, tt.want, result.Problems)
			}
		})
	}
}

// TestMergeResult merges files of which some are damaged.
func TestMergeResult(t *testing.T) {
	t.Parallel()
	gap := &record.Line{Gap: &record.Gap{From: at(2), To: at(3), Reviews: 5, Reason: "queue"}}
	whole := segment(t, header("a", 0), review("a1", 1), gap, review("a2", 4))
	list := append(inputs(whole, whole[:len(whole)-8], []byte("no recording"), nil), merge.Input{Name: "gone", Open: func() (io.ReadCloser, error) { return nil, errors.New("removed") }})
	progress := 0
	lines, result := merged(t, merge.Options{Inputs: list, Progress: func(int64) { progress++ }})
	if len(lines) < 3 || result.Reviews < 2 || result.Gaps < 5 || !result.Begin.Equal(at(1)) || !result.End.Equal(at(4)) {
		t.Errorf("%+v\n%s", result, strings.Join(lines, "\n"))
	}
	if got := fmt.Sprint(result.Configurations, result.Keys); got != "[c1] [k1]" {
		t.Errorf("configurations and keys %s", got)
	}
	var problems []string
	for i := range result.Problems {
		problems = append(problems, result.Problems[i].Error())
	}
	for i, want := range []string{"file-1: line", "file-2: is no recording", "file-3: is empty", "gone: removed"} {
		if i >= len(problems) || !strings.HasPrefix(problems[i], want) {
			t.Errorf("problems %q, want %s", problems, want)
		}
	}
	if !errors.Is(&result.Problems[0], record.ErrTruncated) {
		t.Error("a file that was cut off is not ErrTruncated")
	}
}

// TestMergeMany merges more reviews and objects than fit into one segment, which come out of order.
func TestMergeMany(t *testing.T) {
	t.Parallel()
	const replicas, reviews = 3, 3000
	random := rand.New(rand.NewPCG(1, 2))
	var files [][]byte
	want := 0
	for replica := range replicas {
		var lines []*record.Line
		for n := range reviews {
			lines = append(lines, object(n+1, fmt.Sprint(replica, n)), review(fmt.Sprintf("%d-%d", replica, n), n+random.IntN(100), n+1))
			want++
		}
		files = append(files, segment(t, header(fmt.Sprint(replica), 0), lines...))
	}
	lines, result := merged(t, merge.Options{Inputs: inputs(files...)})
	segments, last := 0, 0
	for _, line := range lines {
		if strings.HasPrefix(line, "segment") {
			segments++
			continue
		}
		var id, replica, value string
		var second int
		if _, err := fmt.Sscanf(strings.ReplaceAll(line, "@", " "), "%s %d %s %s", &id, &second, &replica, &value); err != nil {
			t.Fatal(line, err)
		}
		if second < last || value != `{"v":"`+strings.ReplaceAll(id, "-", " ") && !strings.Contains(line, strings.ReplaceAll(id, "-", " ")) {
			t.Fatalf("%s after second %d", line, last)
		}
		last = second
	}
	if result.Reviews != int64(want) || len(lines)-segments != want || segments < replicas*reviews/1000 {
		t.Errorf("%d reviews, %d lines, %d segments", result.Reviews, len(lines), segments)
	}
}

func TestMergeEnds(t *testing.T) {
	t.Parallel()
	file := segment(t, header("a", 0), review("a1", 1))
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := merge.Merge(ctx, io.Discard, merge.Options{Inputs: inputs(file)}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("full disk", func(t *testing.T) {
		t.Parallel()
		full := errors.New("no space left on device")
		if _, err := merge.Merge(t.Context(), failing{full}, merge.Options{Inputs: inputs(file)}); !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzMerge merges two files of anything. What is written is a recording, in which every review is
// one of the inputs.
func FuzzMerge(f *testing.F) {
	f.Add(segment(f, header("a", 0), object(1, "x"), review("a1", 1, 1, 1)), segment(f, header("b", 0), review("b1", 1)))
	f.Add([]byte(`{"header":{"format":1}}`+"\n"+`{"review":{"id":"1","lookups":{"objects":[{"object":-3}]}}}`+"\n"), []byte(`{"header":{"format":1}}`+"\n"+`{"gap":{"reviews":-1}}`+"\n"))
	compressed := func(t *testing.T, text []byte) []byte {
		encoder, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return encoder.EncodeAll(text, nil)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, files := range [][]merge.Input{inputs(a, b), inputs(compressed(t, a), compressed(t, b))} {
			var out bytes.Buffer
			result, err := merge.Merge(t.Context(), &out, merge.Options{Inputs: files})
			if err != nil {
				t.Fatal(err)
			}
			again, err := merge.Merge(t.Context(), io.Discard, merge.Options{Inputs: inputs(slices.Clone(out.Bytes()))})
			if err != nil || out.Len() > 0 && (again.Reviews != result.Reviews || len(again.Problems) > 0) {
				t.Fatalf("%+v, read again %+v, %v", result, again, err)
			}
		}
	})
}

// TestFrames checks that a zstd frame has a bounded number of reviews.
func TestFrames(t *testing.T) {
	t.Parallel()
	lines := make([]*record.Line, 0, record.MaxSegmentReviews+1)
	for i := range record.MaxSegmentReviews + 1 {
		lines = append(lines, review(fmt.Sprint(i), i))
	}
	var out bytes.Buffer
	if _, err := merge.Merge(t.Context(), &out, merge.Options{Inputs: inputs(segment(t, header("a", 0), lines...))}); err != nil {
		t.Fatal(err)
	}
	if frames := bytes.Count(out.Bytes(), []byte{0x28, 0xb5, 0x2f, 0xfd}); frames != 2 {
		t.Errorf("%d frames", frames)
	}
	r, err := record.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	reviews := 0
	for ; err == nil; reviews++ {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) || reviews-1 != len(lines) {
		t.Errorf("%d reviews, %v", reviews-1, err)
	}
}
