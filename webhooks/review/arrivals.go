package review

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fairqueue"
)

// arrivals are requests whose bodies have not arrived, with the bytes that they hold. What they hold is free for all other
// requests: a request without its body must keep nobody from a decision. When it is needed, they are dropped.
type arrivals = fairqueue.Queue[*reservation]

// arrival is a request among the arrivals. It is guarded by the budget's lock.
type arrival struct {
	// held is what the request holds there.
	held fairqueue.Entry[*reservation]
	// buffer is what net/http may hold of its body.
	buffer int64
	// writer is that of the answer, with which the read of the body is interrupted.
	writer http.ResponseWriter
	// proven reports whether a whole call has come over the connection before.
	proven bool
	// dropped reports whether its memory was taken from it, and lost is how much it holds of that until it ends.
	dropped atomic.Bool
	lost    int64
	// interrupted waits for the interruption of a dropped one, and next is the one to be interrupted after it.
	interrupted sync.WaitGroup
	next        *reservation
	// waiter waits for its place, if enough of its body has arrived. It is nil otherwise.
	waiter *waiter
}

// enter reserves memory for a request before its body, without waiting, and reports whether it could. The request of a
// caller without a certificate is an arrival until it has a place, and holds what it uses until then.
func (b *Budget) enter(r *reservation) bool {
	b.mu.Lock()
	defer b.unlock()
	switch {
	case !b.fits(r.caller, b.callers[r.caller].held, requestBytes):
		return false
	case r.caller.Certified:
		r.used -= r.buffer
		r.reserved = requestBytes
		b.take(r.caller, requestBytes)
		return true
	}
	r.reserved, r.arriving = r.used, true
	r.held.Value, r.held.Address = r, r.caller.Address
	return b.add(r, r.used)
}

// growArrival reserves n more bytes for an arrival, and reports whether it could. Without drop, it drops no other for them, and
// does not reserve what would keep the arrival from a place.
func (b *Budget) growArrival(r *reservation, n int64, drop bool) bool {
	b.mu.Lock()
	defer b.unlock()
	if !drop && (b.free(r.caller)-b.arrivingBytes() < n || !b.fits(r.caller, b.callers[r.caller].held, r.reserved+n)) {
		return false
	}
	return !r.dropped.Load() && b.add(r, n)
}

// add adds n bytes to what an arrival holds, for which it drops others, and reports whether it could. Arrivals hold half of what is free.
// A quarter is for those that were dropped and have not ended, of which half is for requests over proven connections, and for addresses
// that hold little. The pool is locked.
func (p *pool) add(r *reservation, n int64) bool {
	a, free := p.arrivalsOf(r), p.free(r.caller)
	a.Add(&r.held, n)
	p.dropUntil(free / 2)
	// Dropped requests hold memory until they end.
	most := free / 4
	if !r.proven && !a.IsModest(&r.held) {
		most /= 2
	}
	switch {
	case r.dropped.Load():
		return false
	case p.dropped > most:
		a.Add(&r.held, -n)
		return false
	default:
		return true
	}
}

// leave gives back what an arrival holds, or held when it was dropped. After that its writer is used no more.
func (b *Budget) leave(r *reservation) {
	b.mu.Lock()
	b.arrivalsOf(r).Remove(&r.held)
	b.dropped -= r.lost
	b.unlock()
	if r.dropped.Load() {
		r.interrupted.Wait()
	}
}

// free returns what neither requests that are no arrivals hold nor is kept from the caller. The pool is locked.
func (p *pool) free(c Caller) int64 {
	free := p.size - p.used
	if !c.Certified {
		free = min(free, p.size-p.reserved-p.uncertified)
	}
	return free
}

// arrivingBytes returns what all arrivals hold. The pool is locked.
func (p *pool) arrivingBytes() int64 { return p.arriving[0].Weight() + p.arriving[1].Weight() }

// dropUntil drops arrivals until the others hold at most that many bytes: over connections that are not proven, unless those over
// proven ones hold more. The pool is locked.
func (p *pool) dropUntil(most int64) {
	for p.arrivingBytes() > max(0, most) {
		if p.arriving[0].Weight() >= p.arriving[1].Weight() {
			p.drop(p.arriving[0].Expendable())
		} else {
			p.drop(p.arriving[1].Expendable())
		}
	}
}

// drop takes its memory from an arrival, which unlock interrupts. The pool is locked.
func (p *pool) drop(r *reservation) {
	r.lost = r.held.Weight()
	p.dropped += r.lost
	p.arrivalsOf(r).Remove(&r.held)
	r.interrupted.Add(1)
	r.dropped.Store(true)
	p.interrupt, r.next = r, p.interrupt
	if r.waiter != nil {
		p.dequeue(r.caller, r.waiter)
		close(r.waiter.granted)
	}
}

// unlock unlocks the pool and interrupts the requests that were dropped. While it is locked, thousands of requests may wait for the lock, so
// that whoever has it does nothing that allocates memory for each request.
func (p *pool) unlock() {
	r := p.interrupt
	p.interrupt = nil
	p.mu.Unlock()
	for r != nil {
		next := r.next
		_ = http.NewResponseController(r.writer).SetReadDeadline(time.Unix(1, 0)) // both protocols support it, and do not block
		r.interrupted.Done()
		r = next
	}
}

// arrivalsOf returns those that a request belongs to.
func (p *pool) arrivalsOf(r *reservation) *arrivals {
	if r.proven {
		return &p.arriving[1]
	}
	return &p.arriving[0]
}
