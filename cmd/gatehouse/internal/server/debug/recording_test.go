package debug_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
)

// newRecording returns a subject that serves a directory with these files.
func newRecording(t *testing.T, files map[string]string) (s *subject, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = newSubject(false)
	s.Handler = debug.Handler(debug.Options{Level: debug.NewLevel(&s.variable, slog.New(slog.DiscardHandler)), Recording: dir})
	return s, dir
}

func TestRecordingList(t *testing.T) {
	t.Parallel()
	s, dir := newRecording(t, map[string]string{
		"20260101T000000.000Z-b.gatehouse.zst": "later", "20250101T000000.000Z-a.gatehouse.zst": "first", "configuration.yaml": "c", "key": "secret", ".hidden.gatehouse.zst": "no",
	})
	if err := os.Mkdir(filepath.Join(dir, "directory.gatehouse.zst"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, text := s.ask(t, http.MethodGet, debug.RecordingPath, "")
	var list debug.Recording
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	var names []string
	for _, f := range list.Files {
		names = append(names, f.Name)
		if f.Bytes == 0 || f.Modified.IsZero() {
			t.Errorf("%+v has no size or time", f)
		}
	}
	if got, want := strings.Join(names, " "), "20250101T000000.000Z-a.gatehouse.zst 20260101T000000.000Z-b.gatehouse.zst"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if code, text := s.ask(t, http.MethodGet, debug.RecordingPath, ""); code != http.StatusOK || text != "{\"files\":[]}\n" {
		t.Errorf("without a directory: %d %s", code, text)
	}
}

func TestRecordingFile(t *testing.T) {
	t.Parallel()
	s, dir := newRecording(t, map[string]string{"a.gatehouse.zst": "first", "key": "secret"})
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "outside.gatehouse.zst"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link.gatehouse.zst": "../outside.gatehouse.zst", "key.gatehouse.zst": "key"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	off := newSubject(true)
	for _, tt := range []struct {
		name, method, path string
		subject            *subject
		change             func(*http.Request)
		code               int
		answer             string
	}{
		{"segment", "GET", "/a.gatehouse.zst", s, nil, 200, "first"},
		{"part of a segment", "GET", "/a.gatehouse.zst", s, func(r *http.Request) { r.Header.Set("Range", "bytes=2-") }, 206, "rst"},
		{"size", "HEAD", "/a.gatehouse.zst", s, nil, 200, ""},
		{"another file", "GET", "/key", s, nil, 404, "is not the name of a file of the recording"},
		{"removed", "GET", "/b.gatehouse.zst", s, nil, 404, "no such file"},
		{"link out of the directory", "GET", "/link.gatehouse.zst", s, nil, 500, "not a regular file"},
		{"link in the directory", "GET", "/key.gatehouse.zst", s, nil, 500, "not a regular file"},
		{"escaped path", "GET", "/..%2foutside.gatehouse.zst", s, nil, 404, "is not the name of a file"},
		{"hidden file", "GET", "/.gatehouse.zst", s, nil, 404, "is not the name of a file"},
		{"write", "PUT", "/a.gatehouse.zst", s, nil, 405, "only GET"},
		{"write of the list", "POST", "", s, nil, 405, "only GET"},
		{"another host", "GET", "/a.gatehouse.zst", s, func(r *http.Request) { r.RemoteAddr = "10.0.0.7:50000" }, 403, "hint: kubectl exec"},
		{"list for another host", "GET", "", s, func(r *http.Request) { r.RemoteAddr = "10.0.0.7:50000" }, 403, "hint: kubectl exec"},
		{"page in a browser", "GET", "", s, func(r *http.Request) { r.Host = "attacker.example" }, 403, "must be localhost"},
		{"not recording", "GET", "", off, nil, 404, "hint: gatehouse serve --record DIR"},
		{"not recording a file", "GET", "/a.gatehouse.zst", off, nil, 404, "hint: gatehouse serve --record DIR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			change := tt.change
			if change == nil {
				change = func(*http.Request) {}
			}
			code, answer := tt.subject.ask(t, tt.method, debug.RecordingPath+tt.path, "", change)
			if code != tt.code || !strings.Contains(answer, tt.answer) || strings.Contains(answer, dir) || strings.Contains(answer, "secret") {
				t.Errorf("the answer is %d %q, want %d %q", code, answer, tt.code, tt.answer)
			}
		})
	}
}
