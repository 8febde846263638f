package review

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// requestBytes is what a request takes as soon as its header was read. It pays for
	// requestOverhead and for the body and the values of an ordinary review, so that
	// most reviews reserve memory once.
	requestBytes = 64 << 10
	// requestOverhead is what a request takes before its body: a stream, a goroutine, a
	// header and pooled memory (measured: 14 KiB, and up to 8 KiB of header).
	requestOverhead = 24 << 10
	// valueBytes is about what a JSON value takes when it is decoded: measured
	// are 76 bytes for short numbers, 106 for empty objects and 246 for small
	// ones.
	valueBytes = 128
	// share bounds what one address may hold: that many times what is free. One
	// address alone can so hold three quarters, and each finds some free.
	share = 3
	// maxRefusals bounds the requests that are being told at one time that there is no
	// memory for them. Further ones are aborted without an answer.
	maxRefusals = 256
)

// Caller is who sends a review.
type Caller struct {
	// Address is the address that the connection comes from, or its network.
	Address netip.Prefix
	// Certified reports whether the caller showed a verified client certificate.
	Certified bool
}

// Budget bounds the memory that reviews take at one time: for requests in
// progress, for the bytes of their bodies that were received, and for what decoding
// these takes. An eighth is kept for certified callers, another for small reviews, and
// no address takes all of the rest. It is safe for concurrent use.
type Budget struct {
	pool

	refusals atomic.Int64
}

// NewBudget makes a budget of that many bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{pool: pool{size: bytes, reserved: bytes / 8, small: bytes / 8, share: share}}
}

// LargestBody is the size of the largest body that can be read, if it is announced.
func (b *Budget) LargestBody() int64 {
	// While the last buffer is filled from the one before, both are held.
	bytes := b.largest(Caller{}) - requestBytes
	return max(0, bytes*bufferGrowth/(bufferGrowth+1), bytes-bufferGrowth*largeBuffer)
}

// Slots bounds the decisions that are made at one time. More than the machine
// has processors only lengthens each. It is safe for concurrent use.
type Slots struct {
	pool
}

// NewSlots makes n slots for all callers, and a quarter as many for certified ones.
func NewSlots(n int) *Slots {
	reserved := int64(n+3) / 4
	return &Slots{pool{size: int64(n) + reserved, reserved: reserved}}
}

// pool is a number of bytes or of slots that callers share. Whoever waits for some
// does not wait for its turn among all: what becomes free goes to the caller that
// holds the least.
type pool struct {
	// size is all there is, reserved the part that only certified callers get, and
	// small the part that only takes of up to requestBytes get.
	size, reserved, small int64
	// share bounds what one address holds to that many times what is free, 0 for no
	// such bound.
	share int64

	mu sync.Mutex
	// used is what all hold, and open what callers do who are not certified.
	used, open int64
	callers    map[Caller]line
	arrived    int64
}

// line is what one caller holds of a pool, and who of it waits for more.
type line struct {
	held    int64
	waiting []*waiter
}

// waiter is a request that waits for n.
type waiter struct {
	n, arrived int64
	granted    chan struct{}
}

// largest is the most that one request of the caller can get.
func (p *pool) largest(c Caller) int64 {
	switch most := p.size - p.small; {
	case c.Certified:
		return most
	case p.share == 0:
		return most - p.reserved
	default:
		return (most - p.reserved) * p.share / (p.share + 1)
	}
}

// fits reports whether the caller may take n now. The pool is locked.
func (p *pool) fits(c Caller, held, n int64) bool {
	free := p.size - p.used - n
	if !c.Certified {
		free = min(free, p.size-p.reserved-p.open-n)
	}
	if n > requestBytes {
		free -= p.small
	}
	if c.Certified || p.share == 0 {
		return free >= 0
	}
	if n <= requestBytes && free < p.small {
		// There is little left. Who has more than others by now gets no more, whoever came
		// first.
		callers := int64(max(1, len(p.callers)))
		if held+n > (p.size-p.reserved)*p.share/(p.share*callers+1) {
			return false
		}
	}
	return held+n <= p.share*free
}

// try takes n if it fits.
func (p *pool) try(c Caller, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.callers[c]
	if !p.fits(c, one.held, n) {
		return false
	}
	p.take(c, one, n)
	return true
}

// take takes n. The pool is locked.
func (p *pool) take(c Caller, one line, n int64) {
	if p.callers == nil {
		p.callers = make(map[Caller]line)
	}
	p.count(c, n)
	one.held += n
	p.callers[c] = one
}

// count adds n to what is held. The pool is locked.
func (p *pool) count(c Caller, n int64) {
	p.used += n
	if !c.Certified {
		p.open += n
	}
}

// acquire takes n, and waits for it as long as the request may wait.
func (p *pool) acquire(ctx context.Context, h *holding, n int64) bool {
	if p.try(h.caller, n) {
		return true
	}
	ctx, done := h.wait(ctx)
	defer done()
	w := p.queue(h.caller, n)
	select {
	case <-w.granted:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.callers[h.caller]
	i := slices.Index(one.waiting, w)
	if i < 0 {
		return true // granted in the same moment
	}
	one.waiting = slices.Delete(one.waiting, i, i+1)
	p.put(h.caller, one)
	p.grant() // with one caller less, the shares of the others are larger
	return false
}

// queue adds a waiter.
func (p *pool) queue(c Caller, n int64) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived++
	w := &waiter{n: n, arrived: p.arrived, granted: make(chan struct{})}
	one := p.callers[c]
	one.waiting = append(one.waiting, w)
	p.put(c, one)
	p.grant() // what was released since try
	return w
}

// put stores a caller's line, unless there is nothing in it. The pool is locked.
func (p *pool) put(c Caller, one line) {
	if one.held == 0 && len(one.waiting) == 0 {
		delete(p.callers, c)
		return
	}
	if p.callers == nil {
		p.callers = make(map[Caller]line)
	}
	p.callers[c] = one
}

// release gives n back.
func (p *pool) release(c Caller, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.callers[c]
	p.count(c, -n)
	one.held -= n
	p.put(c, one)
	p.grant()
}

// grant gives what is free to those who wait: to certified callers first, then to
// the caller that holds the least, then to who waits for longest. The pool is locked.
func (p *pool) grant() {
	for {
		var (
			best  *waiter
			whose Caller
			at    int
		)
		for c, one := range p.callers {
			i := p.next(c, one)
			if i < 0 {
				continue
			}
			w := one.waiting[i]
			if best == nil || before(c, one.held, w.arrived, whose, p.callers[whose].held, best.arrived) {
				best, whose, at = w, c, i
			}
		}
		if best == nil {
			return
		}
		one := p.callers[whose]
		one.waiting = slices.Delete(one.waiting, at, at+1)
		p.take(whose, one, best.n)
		close(best.granted)
	}
}

// next is the index of the first of a caller's waiters for which there is enough, -1
// without one. The pool is locked.
func (p *pool) next(c Caller, one line) int {
	refused := int64(-1)
	for i, w := range one.waiting {
		if refused >= 0 && w.n >= refused {
			continue
		}
		if p.fits(c, one.held, w.n) {
			return i
		}
		refused = w.n
	}
	return -1
}

// before reports whether the caller c is served before the caller d.
func before(c Caller, held, arrived int64, d Caller, itsHeld, itsArrived int64) bool {
	switch {
	case c.Certified != d.Certified:
		return c.Certified
	case held != itsHeld:
		return held < itsHeld
	default:
		return arrived < itsArrived
	}
}

// holding is what one request holds of a budget and how long it may still wait
// for more. It is not safe for concurrent use.
type holding struct {
	budget *Budget
	caller Caller
	// held is reserved, and used the part of it for which there is a use.
	held, used int64
	patience   time.Duration
	now        func() time.Time
}

// tooMuchError is the error of a request that needs more than there can be. It is how much
// there can be beside what the request has.
type tooMuchError int64

func (t tooMuchError) Error() string { return fmt.Sprintf("more than %d bytes are needed", int64(t)) }

var errOverload = errors.New("too many bytes in flight")

// enter reserves what a request takes before its body. It does not wait.
func (b *Budget) enter(c Caller) bool { return b.try(c, requestBytes) }

// grow reserves n more bytes.
func (h *holding) grow(ctx context.Context, n int64) error {
	if h.used+n > h.held {
		more := h.used + n - h.held
		if most := h.budget.largest(h.caller); h.used+n > most {
			return tooMuchError(max(0, most-h.used))
		}
		if !h.budget.acquire(ctx, h, more) {
			return errOverload
		}
		h.held += more
	}
	h.used += n
	return nil
}

// tryGrow is grow without waiting.
func (h *holding) tryGrow(n int64) bool {
	if more := h.used + n - h.held; more > 0 {
		if !h.budget.try(h.caller, more) {
			return false
		}
		h.held += more
	}
	h.used += n
	return true
}

// shrink notes that n bytes are not used any more. They stay reserved.
func (h *holding) shrink(n int64) { h.used -= n }

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
	h.budget.release(h.caller, h.held)
	h.budget = nil
}
