package server

import (
	"context"
	"crypto/tls"
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
	// maxUncertified bounds the connections without a verified client certificate unless
	// Options do. API servers call for admission without one; each keeps 25 idle
	// connections open, and has one more for each call in progress.
	maxUncertified = 2048
	// maxOps bounds the connections for health and metrics: the kubelet's, and one or
	// two of the scraper of metrics.
	maxOps = 24
	// http2Weight is the weight of a connection over HTTP/2: net/http holds up to receiveBytes for it. An API server has one
	// or a few of them. All others have a weight of 1.
	http2Weight = 8
)

// connectionLimiter bounds the weight of the connections that anyone can make. When there are too many
// it closes some of the client that has the most. A bound for each client would have to
// be useless to be harmless: a busy API server begins with a hundred calls that connect
// at once.
type connectionLimiter struct {
	// limit bounds the weight of all connections.
	limit int
	// firstCall is how long a connection may be open before its first call.
	firstCall time.Duration
	// onLimit gets how many connections were closed because of the limit, and a client that had one of them.
	onLimit func(closed int, client netip.Prefix)

	mu  sync.Mutex
	all map[net.Conn]*connection
	// clients has what each client has, and weight is that of all connections.
	clients map[netip.Prefix]clientConnections
	weight  int
}

// clientConnections are the connections of a client, and their weight.
type clientConnections struct{ number, weight int }

// expendable is the weight by which clients are compared when a connection has to be closed. A client's only connection is the
// last to go.
func (c clientConnections) expendable() int {
	if c.number == 1 {
		return 0
	}
	return c.weight
}

// connection is one that was accepted.
type connection struct {
	// expires is when it is to be closed behind an answer.
	expires time.Time

	limiter *connectionLimiter
	conn    net.Conn
	client  netip.Prefix
	// unused closes the connection if no call comes.
	unused *time.Timer

	// used is set by the first review, so that the reviews after it do not take the
	// limiter's lock.
	used atomic.Bool
	// certified reports whether the caller showed a verified client certificate. It is set
	// before used is.
	certified atomic.Bool

	// The rest is guarded by the limiter's lock: the weight, whether a review came over the connection, whether a call is in
	// progress, and since when it has been idle.
	weight           int
	reviewed, active bool
	idleSince        time.Time
}

// connectionKey is the key of the connection in the context of a call.
type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// callerOf identifies the caller of a request.
func callerOf(r *http.Request) review.Caller {
	caller := review.Caller{Certified: isVerified(r)}
	if c := connectionOf(r.Context()); c != nil {
		caller.Address = c.client
	} else {
		caller.Address = login.ClientOf(r.RemoteAddr)
	}
	return caller
}

// add adds a connection. If there are too many, it closes others, or this one.
func (l *connectionLimiter) add(conn net.Conn, expires time.Time) {
	c := &connection{expires: expires, limiter: l, conn: conn, client: login.ClientOf(conn.RemoteAddr().String()), idleSince: time.Now()}
	l.mu.Lock()
	if l.all == nil {
		l.all, l.clients = make(map[net.Conn]*connection), make(map[netip.Prefix]clientConnections)
	}
	c.unused = time.AfterFunc(l.firstCall, c.closeUnused)
	l.all[c.conn] = c
	l.change(c, 1, 1)
	closed := l.enforce(c)
	l.mu.Unlock()
	l.report(closed)
}

// find returns a connection that was added, once its protocol is known. It is nil if the connection was closed because of the
// limit. One with a verified client certificate counts no more.
func (l *connectionLimiter) find(conn net.Conn, certified bool) *connection {
	l.mu.Lock()
	c := l.all[conn]
	var closed []*connection
	switch {
	case c == nil:
	case certified:
		c.remove()
	case speaksHTTP2(conn):
		l.change(c, 0, min(http2Weight, l.limit)-1)
		closed = l.enforce(c)
		c = l.all[conn]
	}
	l.mu.Unlock()
	l.report(closed)
	return c
}

func speaksHTTP2(conn net.Conn) bool {
	over, ok := conn.(*tls.Conn)
	return ok && over.ConnectionState().NegotiatedProtocol == "h2"
}

// change adds to the number and the weight of the connections of a connection's client. The caller holds the lock.
func (l *connectionLimiter) change(c *connection, number, weight int) {
	of := l.clients[c.client]
	of.number += number
	of.weight += weight
	c.weight += weight
	l.weight += weight
	if of.number == 0 {
		delete(l.clients, c.client)
	} else {
		l.clients[c.client] = of
	}
}

// enforce closes connections until the limit holds, and returns them. The last one was added, or got a weight, just now. The
// caller holds the lock.
func (l *connectionLimiter) enforce(last *connection) (closed []*connection) {
	for l.weight > l.limit {
		expendable := l.expendable(last)
		expendable.close()
		closed = append(closed, expendable)
	}
	return closed
}

// report reports connections that were closed because of the limit.
func (l *connectionLimiter) report(closed []*connection) {
	if len(closed) > 0 {
		l.onLimit(len(closed), closed[0].client)
	}
}

// expendable returns the connection to close: of the client whose connections have the largest weight, one without any review
// so far, else one without a call in progress, the one that has been idle for longest. If each client has only one, it is the
// one that has been idle for longest. A call in progress is only cut for a connection of another client, and never if it is
// over the only connection of its client; otherwise the last connection is closed itself.
func (l *connectionLimiter) expendable(last *connection) *connection {
	largest := last.client
	for client, of := range l.clients {
		if of.expendable() > l.clients[largest].expendable() {
			largest = client
		}
	}
	single := l.clients[largest].number == 1 // then each client has only one
	var found *connection
	for _, c := range l.all {
		switch {
		case c == last:
		case single:
			if !c.active && (found == nil || c.idleSince.Before(found.idleSince)) {
				found = c
			}
		case c.client == largest && (found == nil || c.closesBefore(found)):
			found = c
		}
	}
	if found == nil || found.active && largest == last.client {
		return last
	}
	return found
}

// closesBefore reports whether a connection is more expendable than another one.
func (c *connection) closesBefore(other *connection) bool {
	switch {
	case c.active != other.active:
		return other.active
	case c.reviewed != other.reviewed:
		return other.reviewed
	default:
		return c.idleSince.Before(other.idleSince)
	}
}

// close closes the connection at once: the TLS layer's own Close would wait for the
// peer. The caller holds the lock.
func (c *connection) close() {
	c.remove()
	conn := c.conn
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	_ = conn.Close() // the connection is not used any more
}

// remove removes the connection from the limiter, if it is in there. The caller holds
// the lock.
func (c *connection) remove() {
	l := c.limiter
	c.unused.Stop()
	if l.all[c.conn] != c {
		return
	}
	delete(l.all, c.conn)
	l.change(c, -1, -c.weight)
}

// closeUnused closes the connection if it is still without any call.
func (c *connection) closeUnused() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.limiter.all[c.conn] == c && !c.reviewed && !c.active {
		c.close()
	}
}

// setUsed notes that a review came over the connection.
func (c *connection) setUsed(certified bool) {
	if c.used.Load() {
		return
	}
	c.certified.Store(certified)
	if c.used.Swap(true) {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.reviewed = true
	c.unused.Stop()
}

// setState follows http.Server.ConnState.
func (l *connectionLimiter) setState(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[conn]
	if c == nil {
		return
	}
	switch state {
	case http.StateNew:
	case http.StateActive:
		c.active = true
	case http.StateIdle:
		c.active, c.idleSince = false, time.Now()
	case http.StateHijacked, http.StateClosed:
		c.remove()
	}
}

// keepAliveIf keeps connections open for calls that satisfy a condition, and closes them
// behind the answers of others.
func keepAliveIf(condition func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !condition(r) {
			w.Header().Set("Connection", "close")
		} else if c := connectionOf(r.Context()); c != nil {
			c.setUsed(isVerified(r))
		}
		next.ServeHTTP(w, r)
	})
}
