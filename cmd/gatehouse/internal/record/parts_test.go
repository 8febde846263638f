package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

// plain returns all files of a recording, decompressed.
func plain(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, name := range files {
		file, err := os.Open(name) // #nosec G304 -- of this test
		if err != nil {
			t.Fatal(err)
		}
		decoder, err := zstd.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&all, decoder); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		decoder.Close()
		_ = file.Close()
	}
	return all.String()
}

// TestReaderParts reads lines whose parts are not there.
func TestReaderParts(t *testing.T) {
	t.Parallel()
	const header = `{"header":{"format":1,"program":"v9"}}` + "\n"
	const object = `{"object":{"id":1,"value":{"a":1}}}` + "\n"
	big := fmt.Sprintf(`{"object":{"id":1,"value":%q}}`, strings.Repeat("x", 1<<20)) + "\n"
	for _, tt := range []struct{ name, lines, want string }{
		{"one", header + object + `{"parts":[[29,1]],"review":{"id":"1","request":0}}` + "\n", "EOF"},
		{"no such object", header + `{"parts":[[29,1]],"review":{"id":"1","request":0}}` + "\n", "refers to a part that is not there"},
		{"behind the line", header + object + `{"parts":[[99,1]],"review":{"id":"1"}}` + "\n", "refers to a part that is not there"},
		{"before the line", header + object + `{"parts":[[-1,1]],"review":{"id":"1"}}` + "\n", "refers to a part that is not there"},
		{"not in order", header + object + `{"parts":[[29,1],[3,1]],"review":{"id":"1","request":0}}` + "\n", "refers to a part that is not there"},
		{"no numbers", header + object + `{"parts":[[a,b]],"review":{"id":"1","request":0}}` + "\n", "refers to a part that is not there"},
		{"no end", header + object + `{"parts":[[28,1` + "\n", "its list of parts has no end"},
		{"no header", `{"parts":[[29,1]],"review":{"id":"1","request":0}}` + "\n", "has no header"},
		{"long line", header + big + `{"parts":[[30,1]` + strings.Repeat(",[31,1]", 1) + manyParts(60) + `],"review":{"id":"1","request":[` + strings.Repeat("0", 99) + `]}}` + "\n", "is longer than"},
		{"expands without end", header + big + strings.Repeat(`{"parts":[[16,1]],"gap":{"reason":0}}`+"\n", 200), "there is no review in 128 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := readAll(compressed(t, tt.lines))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func manyParts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",[%d,1]", 32+i)
	}
	return b.String()
}

// TestNewlines records a review that has several lines.
func TestNewlines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record.New(options(t, dir))
	stop := run(r)
	add(r, "1", []byte("{\n \"request\": {\"uid\":\"1\",\n \"object\":{\n\"data\":{\"a\":\n\"hunter2hunter2\"}}}}"), nil)
	stop()
	all, _ := recorded(t, dir)
	if len(all) != 1 || !json.Valid(all[0].Request) || strings.Contains(string(all[0].Request), "hunter2") {
		t.Errorf("reviews %+v", all)
	}
}
