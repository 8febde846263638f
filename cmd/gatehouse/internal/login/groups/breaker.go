package groups

import (
	"sync"
	"time"
)

const (
	// openAfter is the number of failures without an answer in between after which a source
	// is not asked for a while.
	openAfter = 5
	// leastPause is the first pause. Each further one is twice as long, up to maxPause.
	leastPause = 5 * time.Second
	maxPause   = time.Minute
	// maxRetryAfter bounds the time that a source may ask to be left alone.
	maxRetryAfter = 5 * time.Minute
)

// breaker decides whether a source may be asked. After failures, one look-up at a time
// tries whether it answers again. It is safe for concurrent use.
type breaker struct {
	mu       sync.Mutex
	failures int
	pause    time.Duration
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
// RetryAfter is how long the source asks for that, at most maxRetryAfter of it.
func (b *breaker) done(failed bool, retryAfter time.Duration, now time.Time) (open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	if !failed {
		b.failures, b.pause, b.until = 0, 0, time.Time{}
		return false
	}
	b.failures++
	if b.failures < openAfter && retryAfter == 0 {
		return !b.until.IsZero()
	}
	b.pause = min(max(2*b.pause, leastPause), maxPause)
	if until := now.Add(max(b.pause, min(retryAfter, maxRetryAfter))); until.After(b.until) {
		b.until = until
	}
	return true
}
