package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
)

// TestJoin joins files, and reads the result back: reviews with their configuration and objects, and gaps.
func TestJoin(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return begun().Add(time.Duration(second) * time.Second) }
	header := &record.Line{Header: &record.Header{Format: record.FormatVersion, Started: begun()}}
	review := func(id string, second int) *record.Line {
		return &record.Line{Review: &record.Review{ID: id, Time: at(second), Endpoint: "validate", Lookups: &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop", Object: "1"}}}}}
	}
	object := func(value string) *record.Line {
		return &record.Line{Object: &record.Object{Digest: "1", Value: json.RawMessage(`"` + value + `"`)}}
	}
	gap := &record.Line{Gap: &record.Gap{From: at(2), To: at(2), Reviews: 5, Reason: "queue"}}
	first := compressed(t, header, object("x"), review("a1", 1), gap, review("a2", 4))
	second := compressed(t, header, object("y"), review("b1", 3))
	for _, tt := range []struct {
		name          string
		since         int
		files         [][]byte
		want, problem string
	}{
		{name: "two files", files: [][]byte{first, second}, want: "a1 x, a2 x, b1 y; 5 missing"},
		{name: "a file of two segments", files: [][]byte{append(bytes.Clone(second), first...)}, want: "b1 y, a1 x, a2 x; 5 missing"},
		{name: "since", since: 4, files: [][]byte{second, first}, want: "a2 x; 5 missing"},
		{name: "without an end", files: [][]byte{first[:len(first)-8], second}, want: "a1 x, b1 y; 5 missing"},
		{name: "damaged", files: [][]byte{append(bytes.Clone(first), "garbage"...), second}, want: "a1 x, a2 x, b1 y; 5 missing", problem: "the recording is damaged"},
		{name: "no recording", files: [][]byte{[]byte("text"), second}, want: "b1 y; 0 missing", problem: "is no recording"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var files []string
			for i, text := range tt.files {
				files = append(files, filepath.Join(dir, fmt.Sprint(i)))
				if err := os.WriteFile(files[i], text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			since := time.Time{}
			if tt.since > 0 {
				since = at(tt.since)
			}
			var problems []string
			out := filepath.Join(dir, "out")
			j, err := join(t.Context(), out, files, since, func(_ string, err error) { problems = append(problems, err.Error()) }, func(int64) {})
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(problems, "\n"); (text == "") != (tt.problem == "") || !strings.Contains(text, tt.problem) {
				t.Errorf("problems %q, want %q", text, tt.problem)
			}
			if got := joinedText(t, out); got != tt.want || int64(strings.Count(got, ",")+1) != j.reviews {
				t.Errorf("%d reviews, %s, want %s", j.reviews, got, tt.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(write(t, map[string][]byte{"file": first}), "file")
	if _, err := join(ctx, file+".out", []string{file}, time.Time{}, nil, nil); !errors.Is(err, context.Canceled) || exists(file+".out") {
		t.Errorf("error %v", err)
	}
}

// joinedText describes what a recording holds.
func joinedText(t *testing.T, path string) string {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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
		one.Lookups.EachObject(func(digest string) {
			reviews = append(reviews, one.ID+" "+strings.Trim(string(r.Segment().Object(digest)), `"`))
		})
	}
	return fmt.Sprintf("%s; %d missing", strings.Join(reviews, ", "), r.Missing())
}
