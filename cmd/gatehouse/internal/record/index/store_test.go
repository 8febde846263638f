package index

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

// made returns a recording and its index file.
func made(t testing.TB) (recording, indexFile []byte) {
	t.Helper()
	var out bytes.Buffer
	for range 2 {
		w, err := record.NewWriter(&out, &record.Header{Format: record.FormatVersion, Started: time.Unix(1, 0)})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "c"} {
			if err := w.Write(&record.Line{Review: &record.Review{ID: id, Time: time.Unix(1, 0), Endpoint: "validate", Decision: "allowed"}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "one.gatehouse.zst")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	x := New(Options{Fallback: t.TempDir()})
	f := &file{index: x, path: path, grown: make(chan struct{}, 1)}
	f.size.Store(int64(out.Len()))
	if err := f.advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path + record.IndexSuffix)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), text
}

// loaded returns the number of frames that are read of an index file.
func loaded(t testing.TB, recording, text []byte) (*table, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "index")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	from := openIndex(path)
	t.Cleanup(func() { _ = from.Close() })
	tab := newTable()
	return tab, len(tab.load(&file{path: path}, bytes.NewReader(recording), int64(len(recording)), from))
}

// TestLoad checks that an index file that is damaged, or about another recording, is not used.
func TestLoad(t *testing.T) {
	t.Parallel()
	recording, text := made(t)
	change := func(of []byte, at int) []byte {
		out := bytes.Clone(of)
		out[at] ^= 1
		return out
	}
	for _, tt := range []struct {
		name            string
		recording, text []byte
		want            int
	}{
		{"whole", recording, text, 2},
		{"the recording has grown", append(bytes.Clone(recording), recording...), text, 2},
		{"another version", recording, change(text, len(magic)-1), 0},
		{"a head", recording, change(text, len(magic)), 0},
		{"with its sum", recording, resum(change(text, len(magic)+headBytes+120)), 2},
		{"rows of the first frame", recording, change(text, len(magic)+headBytes+120), 0},
		{"another recording", change(recording, len(recording)-1), text, 1},
		{"a shorter recording", recording[:len(recording)-1], text, 1},
		{"cut off", recording, text[:len(text)-1], 1},
		{"empty", recording, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, n := loaded(t, tt.recording, tt.text); n != tt.want {
				t.Errorf("%d frames, want %d", n, tt.want)
			}
		})
	}
}

// resum sets the checksums of an index file, so that what they cover is read.
func resum(text []byte) []byte {
	text = bytes.Clone(text)
	for at := len(magic); at+headBytes <= len(text); {
		h, ok := decodeHead(text[at:], int64(len(text)-at-headBytes), 1<<40)
		if !ok {
			break
		}
		rows := at + headBytes + int(h.values) + int(h.rows)*rowBytes
		sum := checksum(checksum(0, text[at:at+headBytes-4]), text[at+headBytes:rows])
		binary.LittleEndian.PutUint32(text[at+headBytes-4:], sum)
		at += int(h.size())
	}
	return text
}

// FuzzIndexFile checks that an index file is never trusted: whatever is in it, rows can be asked for.
func FuzzIndexFile(f *testing.F) {
	recording, text := made(f)
	f.Add(text)
	f.Add(text[:len(text)-3])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, text []byte) {
		tab, _ := loaded(t, recording, resum(text))
		x := &Index{table: tab}
		if _, _, err := x.Find(t.Context(), Filter{}, 0, 100); err != nil {
			t.Log(err)
		}
		if _, _, err := x.Find(t.Context(), Filter{Text: "a", Decisions: []string{"allowed"}}, 0, 100); err != nil {
			t.Log(err)
		}
		if _, err := x.Histogram(t.Context(), Filter{}, 3); err != nil {
			t.Error(err)
		}
		if _, err := x.TopCauses(t.Context(), Filter{}, true, 3); err != nil {
			t.Error(err)
		}
	})
}
