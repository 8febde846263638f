// Package certstest helps the tests of certs: a clock, files, and an API server in the process.
package certstest

import (
	"os"
	"sync"
	"testing"
	"time"
)

// Week is how long a serving certificate lasts.
const Week = 7 * 24 * time.Hour

// Noon is when these tests begin.
var Noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Clock is a time that a test sets.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a Clock that stands at Noon.
func NewClock() *Clock { return &Clock{now: Noon} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Write replaces a file as a whole.
func Write(t testing.TB, file string, data []byte) {
	t.Helper()
	replacement := file + ".new"
	if err := os.WriteFile(replacement, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replacement, file); err != nil {
		t.Fatal(err)
	}
}

// Remove deletes a file.
func Remove(t testing.TB, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
