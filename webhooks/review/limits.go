package review

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// Budget bounds the bytes of request bodies that are in memory at one time. It
// is safe for concurrent use.
type Budget struct {
	bytes *semaphore.Weighted
	size  int64
}

// NewBudget makes a budget of that many bytes. It must be larger than the
// largest body that is to be read.
func NewBudget(bytes int64) *Budget {
	return &Budget{bytes: semaphore.NewWeighted(bytes), size: bytes}
}

// reserve takes bytes from the budget, and waits for them no longer than that
// and until ctx ends.
func (b *Budget) reserve(ctx context.Context, bytes int64, wait time.Duration) bool {
	if b.bytes.TryAcquire(bytes) {
		return true
	}
	if bytes > b.size {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return b.bytes.Acquire(ctx, bytes) == nil
}

func (b *Budget) release(bytes int64) { b.bytes.Release(bytes) }

// Slots bounds the decisions that are made at one time. More than the machine
// has processors only lengthens each. It is safe for concurrent use.
type Slots struct {
	slots chan struct{}
}

// NewSlots makes n slots.
func NewSlots(n int) *Slots { return &Slots{slots: make(chan struct{}, n)} }

// enter takes a slot, and waits for one no longer than that and until ctx ends.
func (s *Slots) enter(ctx context.Context, wait time.Duration) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Slots) leave() { <-s.slots }
