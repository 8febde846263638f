package replicas

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestResume goes on where a connection has ended, and gives up one that takes too long.
func TestResume(t *testing.T) {
	t.Parallel()
	const content = "0123456789"
	var ranges []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range"))
		switch {
		case strings.HasSuffix(r.URL.Path, "/stalls"):
			w.Header().Set("Content-Length", "10")
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusPartialContent)
			}
			_, _ = io.WriteString(w, "0")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.Header.Get("Range") == "":
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = io.WriteString(w, content[:4])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
		}
	}))
	defer server.Close()
	r := &Replica{Client: server.Client(), Base: server.URL, Timeout: time.Minute}
	path := filepath.Join(t.TempDir(), "file")
	if err := r.Resume(t.Context(), "file", path, 100); err == nil || !strings.Contains(err.Error(), "the transfer ended early") {
		t.Fatal(err)
	}
	if err := r.Resume(t.Context(), "file", path, 100); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != content || strings.Join(ranges, ",") != ",bytes=4-" {
		t.Errorf("%q %v after %q", text, err, ranges)
	}
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	if err := r.Resume(t.Context(), "file", path, 8); !errors.Is(err, errTooLarge) {
		t.Errorf("a file that is too large: %v", err)
	}
	r.Timeout = 100 * time.Millisecond
	if err := r.Resume(t.Context(), "stalls", path, 100); err == nil || !strings.Contains(err.Error(), "the transfer ended early") {
		t.Errorf("a file that stalls: %v", err)
	}
	var failed *url.Error
	server.Close()
	if err := r.Resume(t.Context(), "file", path, 100); err == nil || errors.As(err, &failed) {
		t.Errorf("no server: %v", err)
	}
}
