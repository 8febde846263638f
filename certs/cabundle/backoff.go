package cabundle

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstDelay   = 200 * time.Millisecond
	longestDelay = 10 * time.Second
)

// backoff is how long to wait after failures: twice as long after each, up to
// longestDelay, and less by a random part of a half, so that replicas do not ask
// at the same moment when an API server comes back. The zero value has seen none.
type backoff struct{ delay time.Duration }

func (b *backoff) next() time.Duration { return b.between(firstDelay, longestDelay) }

// between is next with other limits.
func (b *backoff) between(first, longest time.Duration) time.Duration {
	b.delay = min(max(2*b.delay, first), longest)
	return b.delay/2 + randomUpTo(b.delay/2)
}

func (b *backoff) reset() { b.delay = 0 }

// randomUpTo is a random time of at most the longest.
func randomUpTo(longest time.Duration) time.Duration {
	return rand.N(longest + 1) //nolint:gosec // no secret
}

// sleep is false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
