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
	"github.com/gatehouse-dev/gatehouse/internal/fairqueue"
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
	// http2Weight is the weight of a connection over HTTP/2 over which lightBytes were received: net/http holds up to receiveBytes
	// for it. All others have a weight of 1.
	http2Weight = 8
	lightBytes  = 32 << 10
	// turns is how many connections over HTTP/2 that are not proven are read at one time. What they send makes up to as many streams as they may
	// have, each with tens of kilobytes, before any of them is known to a budget.
	turns = 32
)

// connectionLimiter bounds the weight of the connections that anyone can make. When there are too many
// it closes one over which no whole call has arrived, unless the others weigh more, and spares networks and addresses that have few. A
// bound for each client would have to be useless to be harmless: a busy API server begins with a hundred calls that connect at once.
type connectionLimiter struct {
	// limit bounds the weight of all connections.
	limit int
	// firstCall is how long a connection may be without a whole call before it is closed.
	firstCall time.Duration
	// onLimit gets how many connections were closed because of the limit, and a client that had one of them.
	onLimit func(closed int, client netip.Prefix)

	// turns has an element for each connection that is being read, see the constant.
	turns chan struct{}

	mu  sync.Mutex
	all map[net.Conn]*connection
	// clients has the number of connections of each client.
	clients map[netip.Prefix]int
	// unproven has the connections over which no whole call has come, and proven the others.
	unproven, proven fairqueue.Queue[*connection]
}

// connection is one that was accepted.
type connection struct {
	// expires is when it is to be closed behind an answer.
	expires time.Time

	limiter *connectionLimiter
	conn    net.Conn
	client  netip.Prefix
	// http2 is set once the protocol is known.
	http2 bool
	// timer closes the connection if no call comes.
	timer *time.Timer
	// busy is that of busyConnections.
	busy atomic.Bool
	// active reports whether a call is in progress, and closes is how long after it was accepted the connection is closed if none is.
	active   atomic.Bool
	closes   atomic.Int64
	accepted time.Time

	// whole is the number of calls in progress that have arrived whole.
	whole atomic.Int32
	// since is when the last one did.
	since atomic.Int64
	// isProven is set with proven, so that most calls do not take the limiter's lock.
	isProven atomic.Bool
	// turn counts what has to end before another connection is read: that what was read becomes streams, and that these are known to a budget.
	turn atomic.Int32
	// reading reports whether what was read counts, and isRemoved whether nothing counts any more.
	reading, isRemoved atomic.Bool
	// left is how many bytes may come until the connection weighs http2Weight. It is for the reader alone.
	left int

	// The rest is guarded by the limiter's lock: the weight, and whether a whole call has come over the connection.
	weight fairqueue.Entry[*connection]
	proven bool
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
func (l *connectionLimiter) add(conn net.Conn, expires time.Time) *connection {
	c := &connection{expires: expires, accepted: time.Now(), limiter: l, conn: conn, client: login.ClientOf(conn.RemoteAddr().String())}
	c.weight.Value, c.weight.Address = c, c.client
	l.mu.Lock()
	if l.all == nil {
		l.all, l.clients = make(map[net.Conn]*connection), make(map[netip.Prefix]int)
	}
	c.closes.Store(int64(l.firstCall))
	c.timer = time.AfterFunc(l.firstCall, c.closeIdle)
	l.all[c.conn] = c
	l.clients[c.client]++
	l.unproven.Add(&c.weight, 1)
	closed := l.enforce(c)
	l.mu.Unlock()
	l.report(closed)
	return c
}

// find returns a connection that was added, after its handshake. It is nil if the connection was closed because of the
// limit. One with a verified client certificate counts no more.
func (l *connectionLimiter) find(conn net.Conn, certified bool) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[conn]
	if c != nil && certified {
		c.remove()
	}
	return c
}

// follow returns what follows the reads of a connection over HTTP/2, nil if the connection was closed because of the limit.
func (l *connectionLimiter) follow(conn *tls.Conn) *connection {
	c := l.find(conn, false)
	if c != nil {
		c.http2, c.left = true, lightBytes
	}
	return c
}

// beforeRead follows the reads of a connection over HTTP/2 without a client certificate. What came before has become streams by then.
func (c *connection) beforeRead() {
	if c.reading.Swap(false) {
		c.endTurn()
	}
}

// afterRead gets the number of bytes that were read. It returns when it is the connection's turn.
func (c *connection) afterRead(n int) {
	if c.left > 0 {
		if c.left -= n; c.left <= 0 {
			c.weigh()
		}
	}
	if n > 0 && !c.isProven.Load() {
		c.beginTurn()
		c.reading.Store(true)
		if c.isRemoved.Load() {
			c.beforeRead() // there may be no other read
		}
	}
}

func (c *connection) beginTurn() {
	if c.turn.Add(1) == 1 {
		c.limiter.turns <- struct{}{}
	}
}

func (c *connection) endTurn() {
	if c.turn.Add(-1) == 0 {
		<-c.limiter.turns
	}
}

// weigh has the connection weigh http2Weight.
func (c *connection) weigh() {
	l := c.limiter
	l.mu.Lock()
	var closed []*connection
	if l.all[c.conn] == c {
		c.queue().Add(&c.weight, int64(min(http2Weight, l.limit)-1))
		closed = l.enforce(c)
	}
	l.mu.Unlock()
	l.report(closed)
}

// queue returns the queue that the connection is in. The caller holds the lock.
func (c *connection) queue() *fairqueue.Queue[*connection] {
	if c.proven {
		return &c.limiter.proven
	}
	return &c.limiter.unproven
}

// enforce closes connections until the limit holds, and returns them. The last one was added, or got a weight, just now. The
// caller holds the lock.
func (l *connectionLimiter) enforce(last *connection) (closed []*connection) {
	for l.unproven.Weight()+l.proven.Weight() > int64(l.limit) {
		next := l.expendable(last)
		next.close()
		closed = append(closed, next)
	}
	return closed
}

// report reports connections that were closed because of the limit.
func (l *connectionLimiter) report(closed []*connection) {
	if len(closed) > 0 {
		l.onLimit(len(closed), closed[0].client)
	}
}

// expendable returns the connection to close. A whole call in progress is only cut for a connection of another client, and never
// if it is over the only connection of its client; otherwise the last connection is closed itself.
func (l *connectionLimiter) expendable(last *connection) *connection {
	if l.unproven.Weight() >= l.proven.Weight() {
		return l.unproven.Expendable()
	}
	var found *connection
	for _, c := range l.all {
		if c.proven && c != last && (found == nil || c.closesBefore(found)) {
			found = c
		}
	}
	if found == nil || found.whole.Load() > 0 && (found.client == last.client || l.clients[found.client] == 1) {
		return last
	}
	return found
}

// closesBefore reports whether a proven connection is more expendable than another one: one without a whole call in progress,
// then one that is not the only one of its client, then one of a network and an address that have not less than the average, then
// the one over which a whole call has not come for longer.
func (c *connection) closesBefore(other *connection) bool {
	l := c.limiter
	rank := func(c *connection) [3]bool {
		return [3]bool{c.whole.Load() > 0, l.clients[c.client] == 1, l.proven.IsModest(&c.weight)}
	}
	mine, others := rank(c), rank(other)
	for i, spared := range mine {
		if spared != others[i] {
			return others[i]
		}
	}
	return c.since.Load() < other.since.Load()
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
	c.timer.Stop()
	c.isRemoved.Store(true)
	c.beforeRead()
	if l.all[c.conn] != c {
		return
	}
	delete(l.all, c.conn)
	c.queue().Remove(&c.weight)
	if l.clients[c.client]--; l.clients[c.client] == 0 {
		delete(l.clients, c.client)
	}
}

// closeIdle closes the connection if its time has passed and no call is in progress, and looks again later otherwise.
func (c *connection) closeIdle() {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[c.conn] != c {
		return
	}
	wait := l.firstCall // that of an active one becomes no shorter
	if !c.active.Load() {
		if wait = time.Duration(c.closes.Load()) - time.Since(c.accepted); wait <= 0 {
			c.close()
			return
		}
	}
	c.timer.Reset(wait)
}

// reviewConnection returns the connection of a request for review.Options.
func reviewConnection(r *http.Request) review.Connection {
	if c := connectionOf(r.Context()); c != nil {
		return c
	}
	return nil
}

// Enter implements review.Connection.
func (c *connection) Enter() (proven bool) {
	if c.isProven.Load() {
		return true
	}
	if c.http2 {
		c.beginTurn()
	}
	return false
}

// Entered implements review.Connection.
func (c *connection) Entered() {
	if c.http2 {
		c.endTurn()
	}
}

// BeginWhole implements review.Connection.
func (c *connection) BeginWhole() {
	c.whole.Add(1)
	c.since.Store(time.Now().UnixNano())
	if !c.isProven.Load() {
		c.prove()
	}
}

// EndWhole implements review.Connection.
func (c *connection) EndWhole() { c.whole.Add(-1) }

// prove notes that a whole call has come over the connection.
func (c *connection) prove() {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	c.isProven.Store(true)
	if l.all[c.conn] != c || c.proven {
		return
	}
	weight := c.weight.Weight()
	l.unproven.Remove(&c.weight)
	c.proven = true
	l.proven.Add(&c.weight, weight)
}

// setState follows http.Server.ConnState.
func (l *connectionLimiter) setState(conn net.Conn, state http.ConnState) {
	if c := l.find(conn, false); c != nil {
		c.setState(state)
	}
}

// setState follows http.Server.ConnState. It takes no lock for a call, and leaves it to closeIdle to set the timer.
func (c *connection) setState(state http.ConnState) {
	switch state {
	case http.StateNew:
	case http.StateActive:
		c.active.Store(true)
	case http.StateIdle:
		wait := c.limiter.firstCall
		if c.isProven.Load() {
			wait = idleTimeout
		}
		c.closes.Store(int64(time.Since(c.accepted) + wait))
		c.active.Store(false)
	case http.StateHijacked, http.StateClosed:
		c.limiter.mu.Lock()
		defer c.limiter.mu.Unlock()
		c.remove()
	}
}

// keepAliveIf keeps connections open for calls that satisfy a condition, and closes them
// behind the answers of others.
func keepAliveIf(condition func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !condition(r) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
