package ldap

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// idleTime is for how long a connection is kept that nobody uses: shorter than
// servers and firewalls drop it without a word.
const idleTime = time.Minute

// pool bounds the connections of a directory, and keeps those for searches
// between requests. All of them are bound as the account that searches.
//
// A request has one place in the pool, and with it one connection at a time. The
// places that are taken and the connections that are kept are never more than
// the bound when a connection is opened.
type pool struct {
	places  chan struct{}
	waiting atomic.Int64
	waited  atomic.Uint64

	mu     sync.Mutex
	idle   []*connection // the longest unused one first
	closed bool
}

func newPool(size int) *pool { return &pool{places: make(chan struct{}, size)} }

// enter takes a place, and waits for one until the context ends.
func (p *pool) enter(ctx context.Context) error {
	select {
	case p.places <- struct{}{}:
		return nil
	default:
	}
	p.waited.Add(1)
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	select {
	case p.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("all %d connections are in use: %w", cap(p.places), context.Cause(ctx))
	}
}

// leave gives the place back.
func (p *pool) leave() { <-p.places }

// take returns a kept connection to a server, or nil.
func (p *pool) take(s *server) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.idle) {
		if c.server == s {
			p.idle = slices.Delete(p.idle, i, i+1)
			c.expiry.Stop()
			return c
		}
	}
	return nil
}

// makeRoom closes a kept connection if there would be too many with the one that the caller opens next.
//
// It closes one at most: a second one would be closed in place of another request, which could open its own before that.
func (p *pool) makeRoom() {
	var closing *connection
	p.mu.Lock()
	if len(p.idle) > 0 && len(p.places)+len(p.idle) > cap(p.places) {
		closing = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.mu.Unlock()
	if closing != nil {
		closeAll([]*connection{closing})
	}
}

// put keeps a connection for the next request.
func (p *pool) put(c *connection) {
	p.mu.Lock()
	keep := c.usable() && !p.closed
	if keep {
		c.expiry = time.AfterFunc(idleTime, func() {
			if p.remove(func(other *connection) bool { return other == c }) > 0 {
				c.close()
			}
		})
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// remove forgets kept connections and returns how many.
func (p *pool) remove(which func(*connection) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.idle)
	p.idle = slices.DeleteFunc(p.idle, which)
	return before - len(p.idle)
}

// drop closes the kept connections to a server: when one is found broken, the
// server has ended all of them.
func (p *pool) drop(s *server) {
	var closing []*connection
	p.remove(func(c *connection) bool {
		if c.server == s {
			closing = append(closing, c)
		}
		return c.server == s
	})
	closeAll(closing)
}

// close closes the kept connections, and has none kept from now on.
func (p *pool) close() {
	p.mu.Lock()
	closing := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	closeAll(closing)
}

func closeAll(connections []*connection) {
	for _, c := range connections {
		c.expiry.Stop()
		c.close()
	}
}

func (p *pool) idleOf(s *server) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := 0
	for _, c := range p.idle {
		if c.server == s {
			count++
		}
	}
	return count
}
