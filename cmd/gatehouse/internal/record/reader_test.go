package record_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

// segment returns a segment with n reviews of the same object.
func segment(t testing.TB, n int) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := record.NewWriter(&file, &record.Header{Format: record.FormatVersion, Program: "v9", Source: record.FromServer, Started: time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	lines := []*record.Line{{Object: &record.Object{ID: 1, Value: json.RawMessage(`{"kind":"Namespace"}`)}}}
	for i := range n {
		lines = append(lines, &record.Line{Review: &record.Review{
			ID: strings.Repeat("x", i+1), Endpoint: "validate", Request: json.RawMessage(`{"kind":"AdmissionReview"}`),
			Lookups: &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop", Object: 1}}},
		}})
	}
	lines = append(lines, &record.Line{Gap: &record.Gap{Reviews: 3, Reason: "queue"}})
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
		{"cut line", compressed(t, header+`{"review":{"id":"1"}}`+"\n"+`{"review":{"id`), 1, "line 3: the recording ends here"},
		{"cut file", whole[:len(whole)-8], 0, "the recording ends here"},
		{"damaged second segment", append(bytes.Clone(whole), "garbage"...), 3, "the recording ends here"},
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

// TestReaderRepetition reads reviews that differ in nothing, of which 200,000 take a few KiB.
func TestReaderRepetition(t *testing.T) {
	t.Parallel()
	const n = 200_000
	line := []byte(`{"review":{"id":"1","endpoint":"validate","request":{"kind":"AdmissionReview","request":{"object":{"data":"` + strings.Repeat("x", 1000) + `"}}}}}` + "\n")
	var file bytes.Buffer
	w, err := record.NewWriter(&file, &record.Header{Format: record.FormatVersion})
	for i := 0; i < n && err == nil; i++ {
		err = w.WriteText(line)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := record.NewReader(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := 0
	for ; err == nil; got++ {
		_, err = r.NextText()
	}
	if ratio := n * len(line) / file.Len(); got-1 != n || !errors.Is(err, io.EOF) || ratio < 2000 {
		t.Errorf("%d reviews, %v, expanded %d times; want %d", got-1, err, ratio, n)
	}
}

// TestReaderAfterFlush reads what a writer that was killed has flushed.
func TestReaderAfterFlush(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := record.NewWriter(&file, &record.Header{Format: record.FormatVersion})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Write(&record.Line{Review: &record.Review{ID: "1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	n, r, err := readAll(file.Bytes())
	if n != 2 || !errors.Is(err, record.ErrUnfinished) || !errors.Is(err, record.ErrTruncated) || record.IsDamaged(err) {
		t.Errorf("%d reviews, %v; want 2, ErrUnfinished", n, err)
	}
	if _, again := r.Next(); !errors.Is(again, record.ErrUnfinished) {
		t.Errorf("Next again: %v", again)
	}
}

// TestReaderWithinALine reads a segment of which the last line is written in part: blocks are written when they are full.
func TestReaderWithinALine(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := record.NewWriter(&file, &record.Header{Format: record.FormatVersion})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{}) // so that the line takes several blocks
	long := make([]byte, 1<<20)
	_, _ = random.Read(long)
	for _, id := range []string{"1", hex.EncodeToString(long)} {
		if err := errors.Join(w.Write(&record.Line{Review: &record.Review{ID: id}}), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, err := readAll(file.Bytes()[:file.Len()-1000]); n != 1 || !errors.Is(err, record.ErrUnfinished) || record.IsDamaged(err) {
		t.Errorf("%d reviews, %v; want 1, ErrUnfinished", n, err)
	}
}

func TestReaderObjects(t *testing.T) {
	t.Parallel()
	r, err := record.NewReader(bytes.NewReader(segment(t, 1)))
	if err != nil {
		t.Fatal(err)
	}
	review, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Object(review.Lookups.Namespaces[0].Object)); got != `{"kind":"Namespace"}` {
		t.Errorf("object = %s", got)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) || len(r.Gaps()) != 1 || r.Gaps()[0].Reviews != 3 {
		t.Errorf("gaps = %+v, %v", r.Gaps(), err)
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
