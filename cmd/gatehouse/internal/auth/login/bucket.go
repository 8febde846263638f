package login

import "time"

// Rate is how often something may happen: Burst times at once, and once in Every
// from then on.
type Rate struct {
	Burst int
	Every time.Duration
}

// bucket counts what happens against a Rate. It holds nothing but the moment at
// which it has everything to give again (the generic cell rate algorithm), so
// that tables of them are small. The zero bucket has everything to give. It is not
// safe for concurrent use.
type bucket struct {
	full time.Time
}

// wait returns how long it is until there is one to take.
func (b *bucket) wait(now time.Time, r Rate) time.Duration {
	if b.idle(now) {
		return 0 // The zero time is too long ago to be subtracted from.
	}
	return max(0, b.full.Sub(now)-time.Duration(r.Burst-1)*r.Every)
}

// take takes one, whether or not there is one.
func (b *bucket) take(now time.Time, r Rate) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(r.Every)
}

// give gives back one that was taken.
func (b *bucket) give(r Rate) { b.full = b.full.Add(-r.Every) }

// idle reports whether the bucket is as good as a new one.
func (b *bucket) idle(now time.Time) bool { return !b.full.After(now) }
