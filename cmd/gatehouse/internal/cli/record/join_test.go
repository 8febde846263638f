package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

// lines returns a segment of these lines.
func lines(t testing.TB, config string, lines ...*record.Line) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := record.NewWriter(&file, &record.Header{Format: record.FormatVersion, Source: record.FromServer, Config: config, Replica: "a", Started: begun(), Redaction: record.Redaction{Key: "k1"}})
	for _, line := range lines {
		err = errors.Join(err, w.Write(line))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestJoin joins files, and reads the result back: reviews with their configuration and objects, and gaps.
func TestJoin(t *testing.T) {
	t.Parallel()
	review := func(id string, second int, objects ...int) *record.Line {
		r := &record.Review{ID: id, Time: begun().Add(time.Duration(second) * time.Second), Endpoint: "validate", Decision: "allowed", Request: json.RawMessage(`{"request":{}}`)}
		if len(objects) > 0 {
			r.Lookups = &record.Lookups{Lists: []record.ListLookup{{Objects: objects}}}
		}
		return &record.Line{Review: r}
	}
	object := func(id int, value string) *record.Line {
		return &record.Line{Object: &record.Object{ID: id, Value: json.RawMessage(`"` + value + `"`)}}
	}
	gap := func(second int) *record.Line {
		at := begun().Add(time.Duration(second) * time.Second)
		return &record.Line{Gap: &record.Gap{From: at, To: at, Reviews: 5, Reason: "queue"}}
	}
	first := lines(t, "c1", object(1, "x"), object(2, "unused"), review("a1", 1, 1), gap(2), review("a2", 4, 1))
	second := lines(t, "c2", object(1, "y"), review("b1", 3, 1, 7))
	foreign := append(bytes.Clone(first), "garbage"...)
	for _, tt := range []struct {
		name          string
		since         int
		files         [][]byte
		want, problem string
	}{
		{name: "two files", files: [][]byte{first, second}, want: "c1 a1 x, c1 a2 x, c2 b1 y; 5 missing"},
		{name: "a file of two segments", files: [][]byte{append(bytes.Clone(second), first...)}, want: "c2 b1 y, c1 a1 x, c1 a2 x; 5 missing"},
		{name: "since", since: 4, files: [][]byte{second, first}, want: "c1 a2 x; 0 missing"},
		{name: "gaps alone", since: 2, files: [][]byte{lines(t, "c1", review("a1", 1), gap(2)), second}, want: "c2 b1 y; 5 missing"},
		{name: "cut off", files: [][]byte{first[:len(first)-8], second}, want: "c2 b1 y; 0 missing", problem: "the recording ends here"},
		{name: "damaged", files: [][]byte{foreign, second}, want: "c1 a1 x, c1 a2 x, c2 b1 y; 5 missing", problem: "the recording ends here"},
		{name: "no recording", files: [][]byte{[]byte("text"), second}, want: "c2 b1 y; 0 missing", problem: "is no recording"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			since := time.Time{}
			if tt.since > 0 {
				since = begun().Add(time.Duration(tt.since) * time.Second)
			}
			var out bytes.Buffer
			j := newJoiner(&out, since, func(int64) {})
			var problems []string
			for _, file := range tt.files {
				if err := j.add(t.Context(), filepath.Join(write(t, map[string][]byte{"file": file}), "file")); err != nil {
					problems = append(problems, err.Error())
				}
			}
			if text := strings.Join(problems, "\n"); (text == "") != (tt.problem == "") || !strings.Contains(text, tt.problem) {
				t.Errorf("problems %q, want %q", text, tt.problem)
			}
			if got := joinedText(t, out.Bytes()); got != tt.want || int64(strings.Count(got, ",")+1) != j.reviews {
				t.Errorf("%d reviews, %s, want %s", j.reviews, got, tt.want)
			}
		})
	}
}

// joinedText describes what a recording holds.
func joinedText(t *testing.T, file []byte) string {
	t.Helper()
	r, err := record.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var reviews []string
	for {
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var objects []string
		one.Lookups.EachObject(func(id *int) { objects = append(objects, strings.Trim(string(r.Object(*id)), `"`)) })
		reviews = append(reviews, r.Header().Config+" "+one.ID+" "+strings.TrimSpace(strings.Join(objects, " ")))
	}
	var missing int64
	for _, gap := range r.Gaps() {
		missing += gap.Reviews
	}
	return fmt.Sprintf("%s; %d missing", strings.Join(reviews, ", "), missing)
}

// TestJoinEnds ends with the context, and if the file cannot be written.
func TestJoinEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(write(t, map[string][]byte{"file": segment(t, "a", admitted("a0", "shop", "cart", "joe", "allowed"))}), "file")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newJoiner(io.Discard, time.Time{}, nil).add(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	full := errors.New("no space left on device")
	reader, writer := io.Pipe()
	_ = reader.CloseWithError(full)
	err := newJoiner(writer, time.Time{}, nil).add(t.Context(), path)
	if _, failed := errors.AsType[*writeError](err); !failed || !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}
