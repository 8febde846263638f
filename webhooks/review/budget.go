package review

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// requestBytes is reserved for a request at least, once its body has arrived. It covers
	// requestOverhead and a small review, with its values and its Index.
	requestBytes = 64 << 10
	// requestOverhead is the memory of a request before its body: a stream, a goroutine, a
	// header and pooled memory (measured: 14 KiB, and up to 8 KiB of header).
	requestOverhead = 24 << 10
	// streamBuffer bounds what net/http allocates for the body of a stream that has an announced length when the first byte has
	// arrived, and holds until all has.
	streamBuffer = 16 << 10
	// valueBytes is about the memory of a decoded JSON value. Measured are 76 bytes for
	// short numbers, 106 for empty objects and 246 for small ones.
	valueBytes = 128
	// share bounds what one address may hold, as a multiple of what is free. One address
	// alone can hold three quarters, and every other finds some free.
	share = 3
)

// Caller is who sends a review.
type Caller struct {
	// Address is the address that the connection comes from, or its network.
	Address netip.Prefix
	// Certified reports whether the caller showed a verified client certificate.
	Certified bool
}

// Budget bounds the memory of all reviews in progress: of the requests themselves, of
// the received bytes of their bodies, and of the decoded values. An eighth is kept for
// certified callers, another for small reviews, and no address takes all of the rest. Requests whose bodies have not arrived
// are arrivals. It is safe for concurrent use.
type Budget struct {
	pool

	refusals atomic.Int64
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{pool: pool{size: bytes, reserved: bytes / 8, small: bytes / 8, share: share}}
}

// LargestBody returns the size of the largest body that can be read, if it is announced.
func (b *Budget) LargestBody() int64 {
	// While the last buffer is filled from the one before, both are held.
	bytes := b.largest(Caller{}) - requestBytes
	return max(0, bytes*bufferGrowth/(bufferGrowth+1), bytes-bufferGrowth*largeBuffer)
}

// Slots bounds the decisions that are made at one time. More decisions than
// processors only make each slower. It is safe for concurrent use.
type Slots struct {
	pool
}

// NewSlots returns n slots for all callers, and a quarter as many for certified ones.
func NewSlots(n int) *Slots {
	reserved := int64(n+3) / 4
	return &Slots{pool{size: int64(n) + reserved, reserved: reserved}}
}

// reservation is the memory that one request holds, and how long it may still wait
// for more, or for a slot. It is not safe for concurrent use.
type reservation struct {
	budget *Budget
	caller Caller
	// reserved is taken from the budget, and used the part of it that is in use.
	reserved, used int64
	maxWait        time.Duration
	now            func() time.Time
	// arriving reports whether the request is an arrival, or was one when it was dropped.
	arriving bool

	arrival
}

// tooLargeError is the error of a request that needs more memory than it can ever get.
// Its value is how much it could get beside what it has.
type tooLargeError int64

func (e tooLargeError) Error() string { return fmt.Sprintf("more than %d bytes are needed", int64(e)) }

var errOverload = errors.New("too many bytes in flight")

// grow reserves n more bytes, and waits for them as long as the request may wait.
func (r *reservation) grow(ctx context.Context, n int64) error {
	if r.used+n > r.reserved {
		more := r.used + n - r.reserved
		if largest := r.budget.largest(r.caller); r.used+n > largest {
			return tooLargeError(max(0, largest-r.used))
		}
		if r.arriving && !r.budget.growArrival(r, more, true) || !r.arriving && !r.budget.acquire(ctx, r, more) {
			return errOverload
		}
		r.reserved += more
	}
	r.used += n
	return nil
}

// tryGrow is grow without waiting, and without dropping arrivals for another one.
func (r *reservation) tryGrow(n int64) bool {
	if more := r.used + n - r.reserved; more > 0 {
		if r.arriving && !r.budget.growArrival(r, more, false) || !r.arriving && !r.budget.try(r.caller, more) {
			return false
		}
		r.reserved += more
	}
	r.used += n
	return true
}

// shrink gives n bytes back to the reservation. They stay reserved until trim.
func (r *reservation) shrink(n int64) { r.used -= n }

// trim gives back to the budget what is not used, but for requestBytes.
func (r *reservation) trim() {
	if surplus := r.reserved - max(r.used, requestBytes); surplus > 0 {
		r.budget.release(r.caller, surplus)
		r.reserved -= surplus
	}
}

// waitContext returns ctx for as long as the request may still wait. The function
// done subtracts the time that has passed.
func (r *reservation) waitContext(ctx context.Context) (waiting context.Context, done func()) {
	waiting, cancel := context.WithTimeout(ctx, r.maxWait)
	start := r.now()
	return waiting, func() {
		cancel()
		r.maxWait -= r.now().Sub(start)
	}
}

// release gives everything back. A second call does nothing.
func (r *reservation) release() {
	if r.budget == nil {
		return
	}
	if r.arriving {
		r.budget.leave(r)
	} else {
		r.budget.release(r.caller, r.reserved)
	}
	r.budget = nil
}

// place has an arrival be dropped no more: its body has arrived, or enough of it. It waits, as long as the request may wait,
// until the caller may hold so much.
func (r *reservation) place(ctx context.Context) error {
	if !r.arriving {
		return nil
	}
	r.used -= r.buffer
	n := max(r.used, requestBytes)
	if !r.budget.acquire(ctx, r, n) {
		return errOverload
	}
	r.reserved, r.arriving = n, false
	return nil
}

// isDropped reports whether the memory of the request was given to others before its body had arrived.
func (r *reservation) isDropped() bool { return r.arriving && r.dropped.Load() }
