// Package clock has what certificates need to know about time.
package clock

import "time"

// Wall returns the time by the wall clock, without its monotonic part: that stands
// still while a machine is suspended, and certificates expire all the same. now may be
// nil, for time.Now.
func Wall(now func() time.Time) time.Time {
	if now == nil {
		return time.Now().Round(0)
	}
	return now().Round(0)
}

// Stamp formats a time for messages and annotations.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Monotonic returns a time to measure how much time has passed, which setting the clock
// does not change. now may be nil, for time.Now.
func Monotonic(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
