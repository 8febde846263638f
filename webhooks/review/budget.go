package review

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
)

const (
	// requestBytes is reserved for a request at least, once its body has arrived. It covers
	// requestOverhead and a small review, with its values and its Index.
	requestBytes = 64 << 10
	// requestOverhead is the memory of a request beside its body: a stream, a goroutine, a
	// header and pooled memory (measured: 14 KiB, and up to 8 KiB of header). Until the body has arrived, the limit of connections bounds it.
	requestOverhead = 24 << 10
	// valueBytes is about the memory of a decoded JSON value. Measured are 76 bytes for
	// short numbers, 106 for empty objects and 246 for small ones.
	valueBytes = 128
	// share bounds what one client may hold, as a multiple of what is free. One client
	// alone can hold three quarters, and every other finds some free.
	share = 3
)

// Budget bounds the memory of all reviews in progress: of the requests, of the received bytes of their bodies, and of the
// decoded values. An eighth is reserved for clients with a certificate and another eighth for small reviews, and no single
// client gets all of the rest. It is safe for concurrent use.
type Budget struct {
	clients.Pool
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{clients.Pool{Kind: clients.Memory, Size: bytes, Reserved: bytes / 8, Spare: bytes / 8, Small: requestBytes, Share: share}}
}

// LargestBody returns the size of the largest body that can be read, if it is announced.
func (b *Budget) LargestBody() int64 {
	// While the last buffer is filled from the one before, both are held.
	bytes := b.Largest(false) - requestBytes
	return max(0, bytes*2/3, bytes-2*hugeBuffer)
}

// Slots bounds the decisions that are made at one time. More decisions than
// processors only make each slower.
type Slots struct {
	clients.Pool
}

// NewSlots returns n slots for all clients, and a quarter as many for certified ones.
func NewSlots(n int) *Slots {
	reserved := int64(n+3) / 4
	return &Slots{clients.Pool{Kind: clients.Decisions, Size: int64(n) + reserved, Reserved: reserved}}
}

// reservation is the memory that one request holds, and how long it may still wait
// for more, or for a slot. It is not safe for concurrent use.
type reservation struct {
	budget *Budget
	client *clients.Client
	// reserved is taken from the budget, and used the part of it that is in use.
	reserved, used int64
	// patience is how long the request may wait, from the time when it first has to. That is over at until.
	patience time.Duration
	until    time.Time
	now      func() time.Time
}

// tooLargeError is the error of a request that needs more memory than it can ever get.
// Its value is how much it could get beside what it has.
type tooLargeError int64

func (e tooLargeError) Error() string { return fmt.Sprintf("more than %d bytes are needed", int64(e)) }

var errOverload = errors.New("too many bytes in flight")

// acquire takes n of a pool, waits for it as long as the request may wait, and reports whether it got it.
func (r *reservation) acquire(ctx context.Context, p *clients.Pool, n int64) bool {
	if p.Try(r.client, n) {
		return true
	}
	now := r.now()
	if r.until.IsZero() {
		r.until = now.Add(r.patience)
	}
	return p.Acquire(ctx, r.client, n, r.until.Sub(now))
}

// reserve reserves n bytes in all.
func (r *reservation) reserve(ctx context.Context, n int64) error {
	if n <= r.reserved {
		return nil
	}
	if largest := r.budget.Largest(r.client.Certified); n > largest {
		return tooLargeError(max(0, largest-r.used))
	}
	if !r.acquire(ctx, &r.budget.Pool, n-r.reserved) {
		return errOverload
	}
	r.reserved = n
	return nil
}

// grow reserves n more bytes, and waits for them as long as the request may wait.
func (r *reservation) grow(ctx context.Context, n int64) error {
	err := r.reserve(ctx, r.used+n)
	if err == nil {
		r.used += n
	}
	return err
}

// tryGrow is grow without waiting.
func (r *reservation) tryGrow(n int64) bool {
	if more := r.used + n - r.reserved; more > 0 {
		if !r.budget.Try(r.client, more) {
			return false
		}
		r.reserved += more
	}
	r.used += n
	return true
}

// arrived reserves what a request takes whose body has arrived.
func (r *reservation) arrived(ctx context.Context) error {
	r.used += requestOverhead
	return r.reserve(ctx, max(r.used, requestBytes))
}

// shrink gives n bytes back to the reservation. They stay reserved until trim.
func (r *reservation) shrink(n int64) { r.used -= n }

// trim gives back to the budget what is not used, but for requestBytes.
func (r *reservation) trim() {
	if surplus := r.reserved - max(r.used, requestBytes); surplus > 0 {
		r.budget.Release(r.client, surplus)
		r.reserved -= surplus
	}
}

// release gives everything back. A second call does nothing.
func (r *reservation) release() {
	if r.reserved > 0 {
		r.budget.Release(r.client, r.reserved)
		r.reserved = 0
	}
}
