package cabundle

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay   = 200 * time.Millisecond
	longestDelay = 10 * time.Second
)

// backoff returns delays after failures: each is twice as long as the one before, up to
// longestDelay, minus a random part of a half, so that replicas do not retry at the same
// time. Its zero value is ready for use.
type backoff struct{ delay time.Duration }

func (b *backoff) next() time.Duration { return b.between(firstDelay, longestDelay) }

// between is next with other limits.
func (b *backoff) between(first, longest time.Duration) time.Duration {
	b.delay = min(max(2*b.delay, first), longest)
	return b.delay/2 + randomUpTo(b.delay/2)
}

func (b *backoff) reset() { b.delay = 0 }

// randomUpTo returns a random duration of at most longest.
func randomUpTo(longest time.Duration) time.Duration {
	return rand.N(longest + 1) //nolint:gosec // no secret
}
