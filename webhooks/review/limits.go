package review

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// firstStep is what a body may take before it has shown that it is larger.
	firstStep = 64 << 10
	// valueBytes is about what a JSON value takes when it is decoded: measured
	// are 76 bytes for short numbers, 106 for empty objects and 246 for small
	// ones.
	valueBytes = 128
)

// Budget bounds the memory that reviews take at one time: for their bodies, and
// for what decoding these takes. An eighth is kept for the first step of both, so
// that small reviews never wait behind large ones. It is safe for
// concurrent use.
type Budget struct {
	first, rest *semaphore.Weighted
	size        int64
}

// NewBudget makes a budget of that many bytes, and an eighth more for small
// reviews. It must be larger than the largest body that is to be read.
func NewBudget(bytes int64) *Budget {
	return &Budget{
		first: semaphore.NewWeighted(max(bytes/8, 8*firstStep)),
		rest:  semaphore.NewWeighted(bytes),
		size:  bytes,
	}
}

// holding is what one request holds of a budget and how long it may still wait
// for more. It is not safe for concurrent use.
type holding struct {
	budget      *Budget
	first, rest int64
	patience    time.Duration
	now         func() time.Time
}

// takeFirst reserves at most the first step.
func (h *holding) takeFirst(ctx context.Context, bytes int64) bool {
	if !h.take(ctx, h.budget.first, bytes) {
		return false
	}
	h.first += bytes
	return true
}

// takeForValues reserves what decoding that many values takes.
func (h *holding) takeForValues(ctx context.Context, values int) bool {
	bytes := int64(values) * valueBytes
	if bytes > firstStep {
		return h.takeMore(ctx, bytes)
	}
	return h.takeFirst(ctx, bytes)
}

// takeMore reserves what goes beyond that.
func (h *holding) takeMore(ctx context.Context, bytes int64) bool {
	if bytes > h.budget.size || !h.take(ctx, h.budget.rest, bytes) {
		return false
	}
	h.rest += bytes
	return true
}

func (h *holding) take(ctx context.Context, from *semaphore.Weighted, bytes int64) bool {
	if from.TryAcquire(bytes) {
		return true
	}
	ctx, done := h.wait(ctx)
	defer done()
	return from.Acquire(ctx, bytes) == nil
}

// wait is ctx for as long as the request may still wait; done takes the time
// that has passed from its patience.
func (h *holding) wait(ctx context.Context) (waiting context.Context, done func()) {
	waiting, cancel := context.WithTimeout(ctx, h.patience)
	start := h.now()
	return waiting, func() {
		cancel()
		h.patience -= h.now().Sub(start)
	}
}

// release gives everything back, once.
func (h *holding) release() {
	if h.budget == nil {
		return
	}
	h.budget.first.Release(h.first)
	h.budget.rest.Release(h.rest)
	h.budget = nil
}

// Slots bounds the decisions that are made at one time. More than the machine
// has processors only lengthens each. It is safe for concurrent use.
type Slots struct {
	slots chan struct{}
}

// NewSlots makes n slots.
func NewSlots(n int) *Slots { return &Slots{slots: make(chan struct{}, n)} }

// enter takes a slot, and waits for one as long as the request may wait.
func (s *Slots) enter(ctx context.Context, h *holding) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	ctx, done := h.wait(ctx)
	defer done()
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Slots) leave() { <-s.slots }
