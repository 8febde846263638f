package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// LiveLine is a line on a terminal that shows how far long work is. On anything else it shows
// nothing. It is safe for concurrent use.
type LiveLine struct {
	out   io.Writer
	every time.Duration

	mu      sync.Mutex
	last    time.Time
	visible bool
}

// NewLiveLine returns a line on out, which shows nothing unless out is a terminal.
func NewLiveLine(out io.Writer) *LiveLine {
	l := &LiveLine{last: time.Now(), every: 200 * time.Millisecond}
	if IsTerminal(out) {
		l.out = out
	}
	return l
}

// Show shows a text in place of the last one, now and then.
func (l *LiveLine) Show(text func() string) {
	if l.out == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.last) >= l.every {
		l.last, l.visible = now, true
		_, _ = fmt.Fprintf(l.out, "\r\x1b[K%s", text()) // progress only
	}
}

// Clear removes the line.
func (l *LiveLine) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visible {
		_, _ = io.WriteString(l.out, "\r\x1b[K") // progress only
		l.visible = false
	}
}
