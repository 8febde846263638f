package clients

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Pool is a number of bytes, or of decisions, that clients share. What becomes free goes to the waiting client that holds the least, not
// to the one that has waited longest. The exported fields are set before it is used. It is safe for concurrent use.
type Pool struct {
	// Kind is what it is in the accounts of its clients.
	Kind Kind
	// Size is the total, and Reserved the part of it that only clients with a certificate get.
	Size, Reserved int64
	// Spare is the part that is left to takes of at most Small.
	Spare, Small int64
	// Share, if set, bounds what an address holds as a multiple of what is free, so that some always is. Its network may hold more than
	// twice as much.
	Share int64

	mu sync.Mutex
	// used is what all clients hold, and strangers what those without a certificate do.
	used, strangers int64
	// waiting are in the order in which they came.
	waiting []*waiter
}

type waiter struct {
	client  *Client
	n       int64
	granted chan struct{}
}

// Largest returns the most that a client can hold.
func (p *Pool) Largest(certified bool) int64 {
	switch most := p.Size - p.Spare; {
	case certified:
		return most
	case p.Share == 0:
		return most - p.Reserved
	default:
		return (most - p.Reserved) * p.Share / (p.Share + 1)
	}
}

// Try takes n if it is free for the client, and reports whether it did.
func (p *Pool) Try(c *Client, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(c, n) {
		return false
	}
	p.add(c, n)
	return true
}

// Acquire takes n, waits for it for some time, and reports whether it got it.
func (p *Pool) Acquire(ctx context.Context, c *Client, n int64, wait time.Duration) bool {
	w := &waiter{client: c, n: n, granted: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.grant()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-w.granted:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i < 0
}

// Release gives n back.
func (p *Pool) Release(c *Client, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(c, -n)
	p.grant()
}

// fits reports whether n is free for the client. The pool is locked.
func (p *Pool) fits(c *Client, n int64) bool {
	free := p.Size - p.used - n
	if !c.Certified {
		free = min(free, p.Size-p.Reserved-p.strangers-n)
	}
	if n > p.Small {
		free -= p.Spare
	}
	if c.Certified || p.Share == 0 {
		return free >= 0
	}
	network := c.network()
	return c.held[p.Kind]+n <= p.Share*free && (network == c || network.held[p.Kind]+n <= (2*p.Share+1)*free)
}

// add adds n to what the client holds. The pool is locked.
func (p *Pool) add(c *Client, n int64) {
	p.used += n
	if !c.Certified {
		p.strangers += n
	}
	c.Add(p.Kind, n)
}

// grant gives what is free to those who wait: to the client that holds the least, and then to whoever came first. The pool is locked.
func (p *Pool) grant() {
	for {
		next := -1
		for i, w := range p.waiting {
			if p.fits(w.client, w.n) && (next < 0 || w.client.precedes(p.waiting[next].client, p.Kind)) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.add(w.client, w.n)
		close(w.granted)
	}
}
