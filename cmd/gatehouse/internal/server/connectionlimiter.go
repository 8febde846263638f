package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// mostStrangers bounds the connections that show no verified client certificate
	// unless Options do. API servers call for admission without one; each keeps 25
	// connections open that are idle, and has one more for each call in progress.
	mostStrangers = 2048
	// mostOps bounds the connections for health and metrics: the kubelet's, and one or
	// two of whatever reads metrics.
	mostOps = 24
	// strangerPatience is how long a connection may be open before its first call.
	strangerPatience = firstCallTimeout
)

// crowd bounds the connections that anybody can make. Whoever has the most of them
// pays for a new one with an old one, whereas a bound for each address would have
// to be so wide for the first moment of a busy API server, when a hundred calls
// connect at once, that it would bound nothing.
type crowd struct {
	most     int
	patience time.Duration
	// full is told whose connection was closed to make room.
	full func(client netip.Prefix)

	mu      sync.Mutex
	all     map[net.Conn]*connection
	clients map[netip.Prefix]int
}

// connection is one from the moment on which it was taken.
type connection struct {
	// end is from when it is to be closed behind an answer.
	end time.Time

	crowd  *crowd
	conn   net.Conn
	client netip.Prefix
	// patience ends a connection without a call.
	patience *time.Timer

	// kept is set once keep has noted a review, so that the reviews after it take no
	// lock that all connections share.
	kept atomic.Bool
	// certified reports whether the caller showed a verified client certificate. It is set
	// before kept is.
	certified atomic.Bool

	// The rest is guarded by the crowd's lock. A connection is worth keeping once a
	// review came over it, active while there is a call on it, and quiet since it
	// was taken or its last call ended.
	worth, active bool
	quiet         time.Time
}

// connectionKey is the key under which a call's context has its connection.
type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// callerOf identifies the caller of a request.
func callerOf(r *http.Request) review.Caller {
	c := review.Caller{Certified: verified(r)}
	if one := connectionOf(r.Context()); one != nil {
		c.Address = one.client
	} else {
		c.Address = login.ClientOf(r.RemoteAddr)
	}
	return c
}

// enter takes a connection in, and closes one if there are too many, which may be
// the new one.
func (c *crowd) enter(conn net.Conn, end time.Time) {
	one := &connection{end: end, crowd: c, conn: conn, client: login.ClientOf(conn.RemoteAddr().String()), quiet: time.Now()}
	if victim := c.add(one); victim != nil {
		c.full(victim.client)
	}
}

// find returns a connection that was taken in, nil if it was closed for another. One
// with a verified client certificate counts no more: it is not anybody's.
func (c *crowd) find(conn net.Conn, certified bool) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[conn]
	if one != nil && certified {
		one.leave()
	}
	return one
}

// add takes a connection in, and returns the one that was closed for it, if any.
func (c *crowd) add(one *connection) (victim *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all, c.clients = make(map[net.Conn]*connection), make(map[netip.Prefix]int)
	}
	one.patience = time.AfterFunc(c.patience, one.tire)
	c.all[one.conn] = one
	c.clients[one.client]++
	if len(c.all) <= c.most {
		return nil
	}
	victim = c.spare(one)
	victim.hangUp()
	return victim
}

// spare is the connection that is missed least: of the client that has the most of
// them, one without any call so far, else one without a call in progress, the one
// that is quiet for longest. A call in progress is only cut if it is of another
// client than the new connection, which is closed itself otherwise.
func (c *crowd) spare(newcomer *connection) *connection {
	largest := newcomer.client
	for client, n := range c.clients {
		if n > c.clients[largest] {
			largest = client
		}
	}
	var found *connection
	for _, one := range c.all {
		if one.client == largest && one != newcomer && (found == nil || one.missedLess(found)) {
			found = one
		}
	}
	if found == nil || found.active && largest == newcomer.client {
		return newcomer
	}
	return found
}

func (one *connection) missedLess(other *connection) bool {
	switch {
	case one.active != other.active:
		return other.active
	case one.worth != other.worth:
		return other.worth
	default:
		return one.quiet.Before(other.quiet)
	}
}

// hangUp closes the connection at once. With the TLS layer's own Close it would
// wait for the peer. The caller holds the lock.
func (one *connection) hangUp() {
	one.leave()
	below := one.conn
	if over, ok := below.(interface{ NetConn() net.Conn }); ok {
		below = over.NetConn()
	}
	_ = below.Close() // whatever it says, the connection is not used any more
}

// leave forgets the connection, if it is known. The caller holds the lock.
func (one *connection) leave() {
	c := one.crowd
	one.patience.Stop()
	if c.all[one.conn] != one {
		return
	}
	delete(c.all, one.conn)
	if c.clients[one.client]--; c.clients[one.client] == 0 {
		delete(c.clients, one.client)
	}
}

// tire closes the connection if it is still without any call.
func (one *connection) tire() {
	one.crowd.mu.Lock()
	defer one.crowd.mu.Unlock()
	if one.crowd.all[one.conn] == one && !one.worth && !one.active {
		one.hangUp()
	}
}

// keep notes that a review came over the connection; the first says all.
func (one *connection) keep(certified bool) {
	if one.kept.Load() {
		return
	}
	one.certified.Store(certified)
	if one.kept.Swap(true) {
		return
	}
	one.crowd.mu.Lock()
	defer one.crowd.mu.Unlock()
	one.worth = true
	one.patience.Stop()
}

// state follows http.Server.ConnState.
func (c *crowd) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[conn]
	if one == nil {
		return
	}
	switch state {
	case http.StateNew:
	case http.StateActive:
		one.active = true
	case http.StateIdle:
		one.active, one.quiet = false, time.Now()
	case http.StateHijacked, http.StateClosed:
		one.leave()
	}
}

// lasting keeps connections for calls that are worth it, and closes them behind
// the answers of others.
func lasting(next http.Handler, worth func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch one := connectionOf(r.Context()); {
		case !worth(r):
			w.Header().Set("Connection", "close")
		case one != nil:
			one.keep(verified(r))
		}
		next.ServeHTTP(w, r)
	})
}
