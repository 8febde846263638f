package clock

import "time"

// Wall is the time by the clock on the wall. Without its monotonic part,
// because that stands still while a machine is suspended, and certificates
// expire all the same.
func Wall(now func() time.Time) time.Time {
	if now == nil {
		return time.Now().Round(0)
	}
	return now().Round(0)
}

func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Monotonic is a time by which to measure how much has passed, whatever clocks are
// set to meanwhile.
func Monotonic(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
