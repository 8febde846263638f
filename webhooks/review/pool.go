package review

import (
	"context"
	"slices"
	"sync"
)

// pool is a number of bytes or of slots that callers share. What becomes free goes to
// the waiting caller that holds the least, not to the one that has waited longest.
type pool struct {
	// size is the total, reserved the part that only certified callers get, and small
	// the part that only requests for up to requestBytes get.
	size, reserved, small int64
	// share bounds what one address holds, as a multiple of what is free. Zero is no
	// bound.
	share int64

	mu sync.Mutex
	// used is what all callers hold, and uncertified what callers without a certificate
	// hold.
	used, uncertified int64
	callers           map[Caller]account
	// arriving are requests of a Budget: those over connections that are not proven, and others. What they hold is not used.
	arriving [2]arrivals
	// dropped is what those hold that were dropped and have not ended, and interrupt the first of those to be interrupted.
	dropped   int64
	interrupt *reservation
	// arrivals counts the waiters.
	arrivals int64
}

// account is what one caller holds of a pool, and its requests that wait for more.
type account struct {
	held    int64
	waiting []*waiter
}

// waiter is a request that waits for n. It is the arrived-th of the pool.
type waiter struct {
	n, arrived int64
	granted    chan struct{}
	// arrival is the request if it waits for its place, nil otherwise.
	arrival *reservation
}

// largest returns the most that one request of the caller can get.
func (p *pool) largest(c Caller) int64 {
	switch largest := p.size - p.small; {
	case c.Certified:
		return largest
	case p.share == 0:
		return largest - p.reserved
	default:
		return (largest - p.reserved) * p.share / (p.share + 1)
	}
}

// fits reports whether the caller may take n now. The pool is locked.
func (p *pool) fits(c Caller, held, n int64) bool {
	free := p.size - p.used - n
	if !c.Certified {
		free = min(free, p.size-p.reserved-p.uncertified-n)
	}
	if n > requestBytes {
		free -= p.small
	}
	if c.Certified || p.share == 0 {
		return free >= 0
	}
	if n <= requestBytes && free < p.small {
		// Little is left: a caller gets no more than an equal share, whoever came first.
		callers := int64(max(1, len(p.callers)))
		if held+n > (p.size-p.reserved)*p.share/(p.share*callers+1) {
			return false
		}
	}
	return held+n <= p.share*free
}

// try takes n if it fits, and reports whether it did.
func (p *pool) try(c Caller, n int64) bool {
	p.mu.Lock()
	defer p.unlock()
	if !p.fits(c, p.callers[c].held, n) {
		return false
	}
	p.take(c, n)
	return true
}

// take takes n, which fits. The pool is locked.
func (p *pool) take(c Caller, n int64) {
	p.dropUntil(p.free(c) - n)
	p.addUsed(c, n)
	a := p.callers[c]
	a.held += n
	p.setAccount(c, a)
}

// addUsed adds n to what is held. The pool is locked.
func (p *pool) addUsed(c Caller, n int64) {
	p.used += n
	if !c.Certified {
		p.uncertified += n
	}
}

// acquire takes n, waits for it as long as the request may wait, and reports whether
// it got it. An arrival takes n in place of what it holds, unless it is dropped.
func (p *pool) acquire(ctx context.Context, r *reservation, n int64) bool {
	taken, w := p.takeOrEnqueue(r, n)
	if w == nil {
		return taken
	}
	ctx, done := r.waitContext(ctx)
	defer done()
	select {
	case <-w.granted:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.unlock()
	r.waiter = nil
	if !p.dequeue(r.caller, w) {
		return !r.dropped.Load() // granted, or dropped
	}
	p.grant() // with one caller less, the shares of the others are larger
	return false
}

// takeOrEnqueue takes n, or returns the waiter for it. It does neither for an arrival that was dropped.
func (p *pool) takeOrEnqueue(r *reservation, n int64) (taken bool, w *waiter) {
	p.mu.Lock()
	defer p.unlock()
	a := p.callers[r.caller]
	switch {
	case r.dropped.Load():
		return false, nil
	case p.fits(r.caller, a.held, n):
		p.arrivalsOf(r).Remove(&r.held)
		p.take(r.caller, n)
		return true, nil
	}
	p.arrivals++
	w = &waiter{n: n, arrived: p.arrivals, granted: make(chan struct{})}
	if r.held.Weight() > 0 {
		w.arrival, r.waiter = r, w
	}
	a.waiting = append(a.waiting, w)
	p.setAccount(r.caller, a)
	return false, w
}

// dequeue removes a waiter, and reports whether it still waited. The pool is locked.
func (p *pool) dequeue(c Caller, w *waiter) bool {
	a := p.callers[c]
	i := slices.Index(a.waiting, w)
	if i < 0 {
		return false
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	p.setAccount(c, a)
	return true
}

// setAccount stores a caller's account, and removes an empty one. The pool is locked.
func (p *pool) setAccount(c Caller, a account) {
	if a.held == 0 && len(a.waiting) == 0 {
		delete(p.callers, c)
		return
	}
	if p.callers == nil {
		p.callers = make(map[Caller]account)
	}
	p.callers[c] = a
}

// release gives n back and grants what became free.
func (p *pool) release(c Caller, n int64) {
	p.mu.Lock()
	defer p.unlock()
	a := p.callers[c]
	p.addUsed(c, -n)
	a.held -= n
	p.setAccount(c, a)
	p.grant()
}

// grant gives what is free to waiters: of certified callers first, then of the caller
// that holds the least, then to the one that has waited longest. The pool is locked.
func (p *pool) grant() {
	for {
		var (
			best  *waiter
			owner Caller
			index int
		)
		for c, a := range p.callers {
			i := p.next(c, a)
			if i < 0 {
				continue
			}
			w := a.waiting[i]
			if best == nil || precedes(c, a.held, w.arrived, owner, p.callers[owner].held, best.arrived) {
				best, owner, index = w, c, i
			}
		}
		if best == nil {
			return
		}
		a := p.callers[owner]
		a.waiting = slices.Delete(a.waiting, index, index+1)
		p.setAccount(owner, a)
		if best.arrival != nil {
			p.arrivalsOf(best.arrival).Remove(&best.arrival.held)
		}
		p.take(owner, best.n)
		close(best.granted)
	}
}

// next returns the index of the first of a caller's waiters whose request fits, -1
// without one. The pool is locked.
func (p *pool) next(c Caller, a account) int {
	refused := int64(-1)
	for i, w := range a.waiting {
		if refused >= 0 && w.n >= refused {
			continue
		}
		if p.fits(c, a.held, w.n) {
			return i
		}
		refused = w.n
	}
	return -1
}

// precedes reports whether the waiter of caller c is served before that of caller d.
func precedes(c Caller, held, arrived int64, d Caller, dHeld, dArrived int64) bool {
	switch {
	case c.Certified != d.Certified:
		return c.Certified
	case held != dHeld:
		return held < dHeld
	default:
		return arrived < dArrived
	}
}
