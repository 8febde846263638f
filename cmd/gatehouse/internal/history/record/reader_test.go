package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
)

// segment returns a segment with n reviews of the same object.
func segment(t testing.TB, n int) []byte {
	t.Helper()
	lines := []*record.Line{
		{Header: &record.Header{Format: record.FormatVersion, Program: "v9", Started: time.Unix(0, 0).UTC()}},
		{Object: &record.Object{Digest: "a1", Value: json.RawMessage(`{"kind":"Namespace"}`)}},
	}
	for i := range n {
		lines = append(lines, &record.Line{Review: &record.Review{
			ID: strings.Repeat("x", i+1), Endpoint: "validate", Request: json.RawMessage(`{"kind":"AdmissionReview"}`),
			Lookups: &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop", Object: "a1"}}},
		}})
	}
	var text []byte
	var err error
	for _, line := range append(lines, &record.Line{Gap: &record.Gap{Reviews: 3, Reason: "queue"}}) {
		if text, err = record.AppendLine(text, line); err != nil {
			t.Fatal(err)
		}
	}
	return compressed(t, string(text))
}

func compressed(t testing.TB, text string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := zstd.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// readAll returns the number of reviews of a file and the error after them.
func readAll(file []byte) (n int, r *record.Reader, err error) {
	r, err = record.NewReader(bytes.NewReader(file))
	if err != nil {
		return 0, nil, err
	}
	for {
		if _, err = r.Next(); err != nil {
			return n, r, err
		}
		n++
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	whole := segment(t, 3)
	header := `{"header":{"format":1,"program":"v9"}}` + "\n"
	for _, tt := range []struct {
		name string
		file []byte
		// reviews is how many can be read before the error.
		reviews int
		want    string
	}{
		{"whole", whole, 3, "EOF"},
		{"two segments in one file", append(bytes.Clone(whole), whole...), 6, "EOF"},
		{"empty", nil, 0, "is empty"},
		{"not compressed", []byte(header), 0, "not compressed with zstd"},
		{"no header", compressed(t, `{"review":{"id":"1"}}`+"\n"), 0, "has no header"},
		{"newer format", compressed(t, `{"header":{"format":2,"program":"v10"}}`+"\n"), 0, "use gatehouse v10 or later"},
		{"another NDJSON", compressed(t, header+"[1]\n"), 0, "line 2: is not a line of a recording"},
		{"cut line", compressed(t, header+`{"review":{"id":"1"}}`+"\n"+`{"review":{"id`), 1, "the segment has no end"},
		{"cut file", whole[:len(whole)-8], 0, "the segment has no end"},
		{"damaged second segment", append(bytes.Clone(whole), "garbage"...), 3, "the recording is damaged"},
		{"expands without end", compressed(t, header+strings.Repeat(`{"gap":{"reason":"`+strings.Repeat("x", 1<<20)+`"}}`+"\n", 130)), 0, "line 129: there is no review in 128 MiB"},
		{"endless line", compressed(t, header+strings.Repeat(" ", 50<<20)), 0, "line 2: is longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, _, err := readAll(tt.file)
			if n != tt.reviews || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%d reviews, %v; want %d, %s", n, err, tt.reviews, tt.want)
			}
		})
	}
}

// TestReaderAfterFlush reads what a writer that was killed has flushed, and the object that a review names.
func TestReaderAfterFlush(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := record.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`{"header":{"format":1}}`, `{"object":{"digest":"a","value":{"kind":"Namespace"}}}`, `{"review":{"id":"1","lookups":{"namespaces":[{"name":"shop","object":"a"}]}}}`} {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, `{"review":{"id":"of a line that is cut`); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := record.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	one, err := r.Next()
	if err != nil || string(r.Segment().Object(one.Lookups.Namespaces[0].Object)) != `{"kind":"Namespace"}` {
		t.Fatalf("%+v, %v", one, err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, record.ErrUnfinished) {
			t.Errorf("error %v, want ErrUnfinished", err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(segment(f, 2))
	f.Add(compressed(f, `{"header":{"format":1}}`+"\n{}\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, data := range [][]byte{file, compressed(t, string(file))} {
			if _, r, err := readAll(data); r != nil && err == nil {
				t.Error("no error at the end")
			}
		}
	})
}
