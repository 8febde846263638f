package review

import (
	"net/http"
	"net/netip"
	"time"
)

// networkBits is the length of the networks of IPv4 addresses.
const networkBits = 24

// Network returns the network that the caller's address belongs to: a /24 of IPv4, or a /64 of IPv6.
func (c Caller) Network() netip.Prefix {
	if !c.Address.Addr().Is4() {
		return c.Address
	}
	network, _ := c.Address.Addr().Prefix(networkBits) // an address of IPv4 has that many bits
	return network
}

// arrivals are requests whose bodies have not arrived. What they hold is free for all other requests: a request without its
// body must keep nobody from a decision. When it is needed, they are dropped, the oldest first.
type arrivals struct {
	// bytes is what all of them hold, and networks what those of each network hold.
	bytes          int64
	networks       map[netip.Prefix]int64
	oldest, newest *reservation
}

// arrival is a request among the arrivals. It is guarded by the budget's lock.
type arrival struct {
	// writer is that of the answer, with which the read of the body is interrupted.
	writer http.ResponseWriter
	// proven reports whether a whole call has come over the connection before.
	proven  bool
	network netip.Prefix

	older, newer *reservation
	// held is what the request holds there. It is zero if it is not among the arrivals.
	held int64
	// dropped reports whether its memory was taken from it.
	dropped bool
	// waiter waits for its place, if enough of its body has arrived. It is nil otherwise.
	waiter *waiter
}

// enter reserves memory for a request before its body, without waiting, and reports whether it could. The request of a
// caller without a certificate is an arrival until it has a place, and holds requestOverhead until then, and its body.
func (b *Budget) enter(r *reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.fits(r.caller, b.callers[r.caller].held, requestBytes):
		return false
	case r.caller.Certified:
		r.reserved = requestBytes
		b.take(r.caller, requestBytes)
	default:
		r.reserved, r.arriving, r.network = requestOverhead, true, r.caller.Network()
		b.dropArrivals(r.caller, requestOverhead)
		b.add(r, requestOverhead)
	}
	return true
}

// growArrival reserves n more bytes for an arrival, and reports whether it could. Without drop, it drops no other for them, and
// does not reserve what would keep the arrival from a place.
func (b *Budget) growArrival(r *reservation, n int64, drop bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.free(r.caller)
	if free < n || !drop && (free-b.arrivingBytes() < n || !b.fits(r.caller, b.callers[r.caller].held, r.reserved+n)) {
		return false
	}
	b.dropArrivals(r.caller, n)
	if r.dropped {
		return false // just now, or before
	}
	b.add(r, n)
	return true
}

// leave gives back what an arrival holds.
func (b *Budget) leave(r *reservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(r)
}

// isDropped reports whether the memory of an arrival was given to others.
func (b *Budget) isDropped(r *reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.dropped
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
func (p *pool) arrivingBytes() int64 { return p.arriving[0].bytes + p.arriving[1].bytes }

// dropArrivals drops arrivals until n bytes are free beside the others, if so many can be. Those over connections that have
// proven nothing go first. The pool is locked.
func (p *pool) dropArrivals(c Caller, n int64) {
	for p.arrivingBytes() > 0 && p.free(c)-p.arrivingBytes() < n {
		if p.arriving[0].bytes > 0 {
			p.drop(p.arriving[0].expendable())
		} else {
			p.drop(p.arriving[1].expendable())
		}
	}
}

// drop takes its memory from an arrival and interrupts it. The pool is locked, which keeps the request's handler from
// returning meanwhile.
func (p *pool) drop(r *reservation) {
	p.remove(r)
	r.dropped = true
	if r.waiter != nil {
		p.dequeue(r.caller, r.waiter)
		close(r.waiter.granted)
		return
	}
	_ = http.NewResponseController(r.writer).SetReadDeadline(time.Unix(1, 0)) // both protocols support it, and do not block
}

// arrivalsOf returns those that a request belongs to.
func (p *pool) arrivalsOf(r *reservation) *arrivals {
	if r.proven {
		return &p.arriving[1]
	}
	return &p.arriving[0]
}

// add adds n bytes to what a request holds as an arrival, which it becomes if it holds nothing so far. The pool is locked.
func (p *pool) add(r *reservation, n int64) {
	a := p.arrivalsOf(r)
	if r.held == 0 {
		a.push(r)
	}
	if a.networks == nil {
		a.networks = make(map[netip.Prefix]int64)
	}
	r.held += n
	a.bytes += n
	a.networks[r.network] += n
}

// remove removes an arrival, if the request is one. The pool is locked.
func (p *pool) remove(r *reservation) {
	if r.held == 0 {
		return
	}
	a := p.arrivalsOf(r)
	a.bytes -= r.held
	if a.networks[r.network] -= r.held; a.networks[r.network] == 0 {
		delete(a.networks, r.network)
	}
	a.unlink(r)
	r.held = 0
}

// expendable returns the oldest arrival, but for those of networks that hold less than half of the average. These become the
// newest, so that it need not look at them each time: networks that hold more have at least half of all bytes.
func (a *arrivals) expendable() *reservation {
	for r := a.oldest; ; r = a.oldest {
		if 2*a.networks[r.network]*int64(len(a.networks)) >= a.bytes {
			return r
		}
		a.unlink(r)
		a.push(r)
	}
}

func (a *arrivals) push(r *reservation) {
	r.older = a.newest
	if a.newest == nil {
		a.oldest = r
	} else {
		a.newest.newer = r
	}
	a.newest = r
}

func (a *arrivals) unlink(r *reservation) {
	if r.older == nil {
		a.oldest = r.newer
	} else {
		r.older.newer = r.newer
	}
	if r.newer == nil {
		a.newest = r.older
	} else {
		r.newer.older = r.older
	}
	r.older, r.newer = nil, nil
}
