package auditlog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
)

const event = `{"apiVersion":"audit.k8s.io/v1","kind":"Event","auditID":"a","stage":"ResponseComplete","verb":"create"}`

// readAll returns the IDs of all Events, how many lines are none, and the error at the end.
func readAll(data []byte) (ids []string, bad int, err error) {
	r, err := NewReader(bytes.NewReader(data))
	for err == nil {
		event, failed := r.Next()
		var line *LineError
		switch {
		case errors.As(failed, &line):
			bad++
		case failed != nil:
			err = failed
		default:
			ids = append(ids, string(event.AuditID))
		}
	}
	return ids, bad, err
}

func compressed(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReader(t *testing.T) {
	t.Parallel()
	b := strings.Replace(event, `"a"`, `"b"`, 1)
	for name, c := range map[string]struct {
		text, ids string
		bad       int
		end       error
	}{
		"nothing":                  {"", "", 0, io.EOF},
		"lines":                    {event + "\n" + b + "\n", "a b", 0, io.EOF},
		"blank lines":              {"\n" + event + "\r\n\n \n" + b + "\n\n", "a b", 0, io.EOF},
		"the last without an end":  {event + "\n" + b, "a b", 0, io.EOF},
		"the last is cut off":      {event + "\n" + b[:40], "a", 0, ErrUnfinished},
		"a batch":                  {`{"apiVersion":"audit.k8s.io/v1","kind":"EventList","items":[` + event + "," + b + "]}\n", "a b", 0, io.EOF},
		"an empty batch":           {`{"apiVersion":"audit.k8s.io/v1","kind":"EventList","items":[]}` + "\n" + b, "b", 0, io.EOF},
		"other lines":              {"I1128 started\n" + event + "\n{}\n[]\n" + `{"apiVersion":"v1","kind":"Event"}` + "\n" + b + "\n", "a b", 4, io.EOF},
		"an Event of another type": {`{"apiVersion":"audit.k8s.io/v1","kind":"Event","stage":{}}` + "\n" + event, "a", 1, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, data := range [][]byte{[]byte(c.text), compressed(t, c.text)} {
				if ids, bad, err := readAll(data); strings.Join(ids, " ") != c.ids || bad != c.bad || !errors.Is(err, c.end) {
					t.Errorf("got %q, %d bad lines, %v", ids, bad, err)
				}
			}
		})
	}
	cut := compressed(t, strings.Repeat(event+"\n", 1000))
	if ids, _, err := readAll(cut[:len(cut)-20]); !errors.Is(err, ErrUnfinished) || len(ids) == 0 {
		t.Errorf("a cut archive: %d Events, %v", len(ids), err)
	}
}

// TestLongLine: a line without end takes no more memory than a line may, also one that a small archive has.
func TestLongLine(t *testing.T) {
	t.Parallel()
	if _, _, err := readAll(compressed(t, `{"a":"`+strings.Repeat("x", maxLine+1))); err == nil || !strings.Contains(err.Error(), "line 1 is longer than 32 MiB") {
		t.Errorf("got %v", err)
	}
}

// TestBlank: a small archive that expands to lines without an Event ends.
func TestBlank(t *testing.T) {
	t.Parallel()
	if _, _, err := readAll(compressed(t, strings.Repeat(" \n", maxBetween/2+1))); err == nil || !strings.Contains(err.Error(), "there is no Event in 64 MiB") {
		t.Errorf("got %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(event + "\n{}\n"))
	f.Add([]byte(`{"apiVersion":"audit.k8s.io/v1","kind":"EventList","items":[` + event + "]}"))
	f.Add(compressed(f, event))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := readAll(data); err == nil {
			t.Error("no error at the end")
		}
	})
}
