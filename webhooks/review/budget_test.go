package review

import (
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
)

// TestWaitingIsBoundedOnce checks that a request which waits for bytes and then
// for a slot has one patience for both.
func TestWaitingIsBoundedOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	full := &Budget{clients.Pool{Size: 1}}
	h := reservation{budget: full, client: clients.Unknown(), patience: 20 * time.Millisecond, now: func() time.Time { now = now.Add(15 * time.Millisecond); return now }}
	if err := h.grow(t.Context(), 1); err != nil {
		t.Fatalf("an empty budget has no room: %v", err)
	}
	other := reservation{budget: full, client: clients.Unknown(), patience: h.patience, now: h.now}
	if err := other.grow(t.Context(), 1); !errors.Is(err, errOverload) {
		t.Errorf("a full budget has room: %v", err)
	}
	until := other.until
	if other.acquire(t.Context(), &NewSlots(0).Pool, 1) || other.until != until {
		t.Errorf("what waits again waits until %s, not %s", other.until, until)
	}
	if _, impossible := errors.AsType[tooLargeError](h.grow(t.Context(), 1)); !impossible {
		t.Error("more than the whole budget is taken")
	}
	h.release()
	h.release()
	if !full.Try(other.client, 1) || full.Try(other.client, 1) {
		t.Error("what was held is not given back exactly once")
	}
}

// TestBuffers: a buffer is at most bufferGrowth times as large as what arrived, until that
// is huge, and the last one is not made beside one that is almost as large.
func TestBuffers(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{true, false} {
		for _, limit := range []int64{1, 100, smallBuffer, 60_001, 100_000, 1<<20 + 1, 4 << 20, MaxAdmissionBytes + 1} {
			var full, before int64
			for full < limit {
				next := nextBuffer(full, limit, announced)
				if next <= full || next > max(limit, largeBuffer) || next > max(2*bufferGrowth*full, largeBuffer) && (!announced || full < hugeBuffer) {
					t.Fatalf("for %d bytes, announced %v, a buffer of %d follows one of %d", limit, announced, next, full)
				}
				before, full = full, next
			}
			if before > limit/2+1 && before > largeBuffer {
				t.Errorf("for %d bytes, announced %v, the last buffer follows one of %d", limit, announced, before)
			}
		}
	}
}

// TestLargestBody fits, in as many buffers as it takes.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{1 << 20, 8 << 20, 16 << 20, 64 << 20, 1 << 30} {
		budget := NewBudget(bytes)
		limit := budget.LargestBody() + 1
		h := reservation{budget: budget, client: clients.Unknown()}
		for full := int64(0); full < limit; {
			next := nextBuffer(full, limit, true)
			if !h.tryGrow(next) {
				t.Errorf("of %d bytes, a buffer of %d beside one of %d does not fit, for a body of %d", bytes, next, full, limit-1)
				break
			}
			h.shrink(full)
			full = next
		}
		if err := h.arrived(t.Context()); err != nil {
			t.Errorf("of %d bytes, nothing is left beside a body of %d: %v", bytes, limit-1, err)
		}
		if limit < bytes/3 {
			t.Errorf("of %d bytes, a body has at most %d", bytes, limit-1)
		}
		if h.release(); !budget.Try(h.client, budget.Largest(false)) {
			t.Error("something is not given back")
		}
	}
}
