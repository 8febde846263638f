package review

import (
	"testing"
	"time"
)

// TestWaitingIsBoundedOnce checks that a request which waits for bytes and then
// for a slot has one patience for both.
func TestWaitingIsBoundedOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	full := NewBudget(1)
	h := holding{budget: full, patience: 20 * time.Millisecond, now: func() time.Time { now = now.Add(15 * time.Millisecond); return now }}
	if !h.takeMore(t.Context(), 1) {
		t.Fatal("an empty budget has no room")
	}
	if h.takeMore(t.Context(), 1) {
		t.Error("a full budget has room")
	}
	if want := 5 * time.Millisecond; h.patience != want {
		t.Errorf("after waiting 15 of 20 milliseconds %s are left, want %s", h.patience, want)
	}
	if NewSlots(0).enter(t.Context(), &h) || h.patience > 0 {
		t.Errorf("after waiting twice %s are left", h.patience)
	}
	if h.takeMore(t.Context(), 2) {
		t.Error("more than the whole budget is taken")
	}
	h.release()
	h.release()
	if !full.rest.TryAcquire(1) || full.rest.TryAcquire(1) {
		t.Error("what was held is not given back exactly once")
	}
}
