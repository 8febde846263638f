package groups

import (
	"sync"
	"time"
)

const (
	// openAfter is the number of failures without an answer in between after which a source
	// is not asked for a while.
	openAfter = 5
	// pause is how long.
	pause = 30 * time.Second
)

// breaker decides whether a source may be asked. After failures, one look-up at a time
// tries whether it answers again. It is safe for concurrent use.
type breaker struct {
	mu       sync.Mutex
	failures int
	// until is when the source may be asked again, and probing reports whether a look-up
	// tries that now.
	until   time.Time
	probing bool
}

// allow reports whether the source may be asked now. If so, done must be called.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return true
	}
	if b.probing || now.Before(b.until) {
		return false
	}
	b.probing = true
	return true
}

// done notes the end of a look-up, and reports whether the source is left alone from now on.
func (b *breaker) done(failed bool, now time.Time) (open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	if !failed {
		b.failures, b.until = 0, time.Time{}
		return false
	}
	if b.failures++; b.failures >= openAfter {
		b.until = now.Add(pause)
	}
	return !b.until.IsZero()
}
