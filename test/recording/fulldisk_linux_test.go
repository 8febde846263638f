package recording

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk fills the disk of a recording, a tmpfs of 1 MiB, and empties it again. It needs the right to mount
// one: RLIMIT_FSIZE would end the program, with SIGXFSZ.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "recording")
	if err := unix.Mount("tmpfs", parent, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(parent, unix.MNT_DETACH) })
	s := start(t, "--record", dir)
	must(t, s.Post(t.Context(), "/validate", pod("before")))
	s.metric(t, reviews, `result="recorded"`, is(1))
	other := filepath.Join(parent, "other")
	_ = os.WriteFile(other, make([]byte, 2<<20), 0o600) // it fails when the disk is full
	for i := range 200 {
		// What cannot be compressed reaches the disk.
		must(t, s.Post(t.Context(), "/validate", admission(fmt.Sprint(i), "pods", "Pod", noise(i))))
	}
	s.metric(t, failing, "", more(0))
	must(t, s.Post(t.Context(), "/validate", pod("full")))
	s.metric(t, dropped, `reason="disk"`, more(0))
	if code, body, err := s.Get(t.Context(), "/readyz?verbose"); err != nil || code != http.StatusOK || !strings.Contains(body, "Recording=False") {
		t.Errorf("/readyz?verbose says %d, %s, %v", code, body, err)
	}
	must(t, os.Remove(other))
	s.metric(t, failing, "", is(0))
	before, err := s.Metric(t.Context(), reviews, `result="recorded"`)
	must(t, err)
	must(t, s.Post(t.Context(), "/validate", pod("after")))
	s.metric(t, reviews, `result="recorded"`, more(before))
}

// noise returns a pod with a text that does not compress.
func noise(seed int) string {
	text, x := make([]byte, 8<<10), uint64(seed+1)*0x9E3779B97F4A7C15
	for i := range text {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		text[i] = "abcdefghijklmnopqrstuvwxyzABCDEF"[x>>59]
	}
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"shop","labels":{"a":"` + string(text) + `"}},"spec":{"containers":[{"name":"app","image":"a"}]}}`
}
