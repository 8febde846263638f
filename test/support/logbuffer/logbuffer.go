// Package logbuffer has a buffer for tests that read a log while it is written.
package logbuffer

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is a bytes.Buffer that is safe for concurrent use. Its zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take returns what was written since the last time, and empties the buffer.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// Count returns how often text was written.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }
