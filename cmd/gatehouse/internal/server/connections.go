package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/internal/clients"
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
	// A connection weighs as much as it had calls in progress at one time, of which each takes tens of kilobytes before anything else knows of
	// it, at most maxWeight. It also does once more than lightBytes came over HTTP/2: net/http holds up to receiveBytes.
	maxWeight  = 16
	lightBytes = 32 << 10
	// handshakeBytes bounds what a client may send in a handshake, which is kept until then:
	// crypto/tls takes 256 KiB of certificates. API servers send less than 16.
	handshakeBytes = 32 << 10
	// Over HTTP/2 a bounded number of bytes may come that no call accounts for: net/http takes any number of frames such as SETTINGS, PING,
	// PRIORITY and empty CONTINUATION, each of which takes processor time. quietBytes may come while there is no stream, which are pings
	// for many hours. callBytes may come once there is one: the headers of all streams, and bodies that net/http holds and no
	// handler has read yet. trailingBytes may come behind the last call, of bodies that were not read to the end. mostBytes bounds all that is
	// allowed for calls in progress.
	quietBytes    = 64 << 10
	callBytes     = streams*maxHeaderBytes + trailingBytes
	trailingBytes = receiveBytes + quietBytes
	mostBytes     = 16 << 20
)

var (
	errLongHandshake = errors.New("tls: the client has sent too much before the end of the handshake")
	errFlood         = errors.New("http2: the client has sent too much that is of no call")
)

// connections are those of a listener. It bounds the weight of those that anyone can make. When there are too many it closes one of a client
// of which no whole call has come, unless those of others weigh more, see goesBefore. A
// bound for each client would have to be useless to be harmless: a busy API server begins with a hundred calls that connect at once.
type connections struct {
	// limit bounds the weight of all connections without a verified client certificate.
	limit int64
	// firstCall is how long a connection may be without a whole call before it is closed.
	firstCall time.Duration
	// onLimit gets how many connections were closed because of the limit, and a client that had one of them.
	onLimit func(closed int, client netip.Prefix)
	// onFlood gets a client that sent too much that is of no call, over a connection that is closed for it.
	onFlood func(client netip.Prefix)

	clients clients.Table

	mu  sync.Mutex
	all map[*connection]struct{}
	// accepted counts the connections.
	accepted int64
	// weight is that of all.
	weight int64
}

// connection is one that was accepted, below TLS. It is a review.Connection.
type connection struct {
	net.Conn

	of     *connections
	client *clients.Client
	// expires is when it is to be closed behind an answer.
	expires time.Time
	// left is how many bytes may still come until the handshake has ended, if it has not, and otherwise until the connection is heavy, 0 for never.
	left       int
	handshaken bool
	// isMetered is true for HTTP/2, over which unspent is how many bytes may still come that no call accounts for.
	isMetered bool
	unspent   atomic.Int64
	// hasStarted is true once net/http has begun to serve the connection. It is for connState alone.
	hasStarted bool
	// timer closes the connection if no call comes.
	timer *time.Timer
	// state is an http.ConnState.
	state atomic.Int32
	// calls is the number of calls in progress, and whole that of those that have arrived whole.
	calls, whole atomic.Int64
	// since is the time when it was accepted, became idle or got a whole call, whichever was last.
	since atomic.Int64
	// isUsed is set once a whole call has come.
	isUsed atomic.Bool
	// order is that in which connections were accepted.
	order int64
	// weight is changed with the lock. It is 0 with a verified client certificate.
	weight atomic.Int64
}

// connectionKey is the key of the connection in the context of a call.
type connectionKey struct{}

// connectionOf returns the connection of a call. There is one in every call that comes from a server.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// reviewConnection returns the connection of a request for review.Options.
func reviewConnection(r *http.Request) review.Connection {
	if c := connectionOf(r); c != nil {
		return c
	}
	return nil
}

// under returns the connection under TLS, if there is TLS.
func under(conn net.Conn) *connection {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	return conn.(*connection) //nolint:forcetypeassert // listeners return no others
}

// connContext is http.Server.ConnContext.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, under(conn))
}

// connState is http.Server.ConnState. It takes no lock for a call, and leaves it to closeIdle to set the timer.
func connState(conn net.Conn, state http.ConnState) {
	c := under(conn)
	switch state {
	case http.StateNew:
	case http.StateActive:
		if c.hasStarted { // before the first stream is a state without one, see http2serverConn.serve
			c.account(func(unspent int64) int64 { return max(unspent, callBytes) })
		}
	case http.StateIdle:
		c.since.Store(time.Now().UnixNano())
		if c.hasStarted {
			c.account(func(unspent int64) int64 { return min(max(unspent, quietBytes), trailingBytes) })
		}
		c.hasStarted = true
	case http.StateHijacked, http.StateClosed:
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.remove()
	}
	c.state.Store(int32(state)) //nolint:gosec // there are five
}

// add adds a connection. If there are too many, it closes others, or this one.
func (l *connections) add(conn net.Conn, expires time.Time) *connection {
	c := &connection{Conn: conn, of: l, expires: expires, client: l.clients.Open(login.ClientOf(conn.RemoteAddr().String()), "")}
	c.since.Store(time.Now().UnixNano())
	l.mu.Lock()
	if l.all == nil {
		l.all = make(map[*connection]struct{})
	}
	l.accepted++
	c.order = l.accepted
	l.all[c] = struct{}{}
	c.timer = time.AfterFunc(l.firstCall, c.closeIdle)
	l.mu.Unlock()
	c.weigh(1)
	return c
}

// weigh sets the weight of a connection, if it is still open and that is more, and closes connections until the limit holds.
func (c *connection) weigh(weight int64) {
	l := c.of
	var closed []*connection
	l.mu.Lock()
	if _, open := l.all[c]; open {
		c.addWeight(max(0, min(weight, maxWeight, l.limit)-c.weight.Load()))
	}
	for l.weight > l.limit {
		next := l.expendable(c)
		next.close()
		closed = append(closed, next)
	}
	l.mu.Unlock()
	if len(closed) > 0 {
		l.onLimit(len(closed), closed[0].client.Address)
	}
}

// addWeight adds to the weight of a connection. The caller holds the lock.
func (c *connection) addWeight(n int64) {
	c.of.weight += n
	c.weight.Add(n)
	c.client.Add(clients.Connections, n)
}

// expendable returns the connection to close for the last one. A whole call in progress is only cut for a client that holds
// less. The caller holds the lock.
func (l *connections) expendable(last *connection) *connection {
	var known int64
	for c := range l.all {
		if c.client.IsKnown() {
			known += c.weight.Load()
		}
	}
	var found *connection
	for c := range l.all {
		if c.weight.Load() > 0 && c.client.IsKnown() == (2*known > l.weight) && (found == nil || c.goesBefore(found)) {
			found = c
		}
	}
	if found.whole.Load() > 0 && found.client.Held(clients.Connections) <= last.client.Held(clients.Connections) {
		return last
	}
	return found
}

// goesBefore reports whether a connection is closed before another one whose client is as known: one without a whole call in progress, then
// the heavier one if the clients are not known, then one of a client that does not hold less than the average, then the one over which
// nothing has come for longer, and of several the one that was accepted first.
func (c *connection) goesBefore(other *connection) bool {
	if busy := c.whole.Load() > 0; busy != (other.whole.Load() > 0) {
		return !busy
	}
	if mine, others := c.weight.Load(), other.weight.Load(); mine != others && !c.client.IsKnown() {
		return mine > others
	}
	if modest := c.client.IsModest(clients.Connections); modest != other.client.IsModest(clients.Connections) {
		return !modest
	}
	return cmp.Or(cmp.Compare(c.since.Load(), other.since.Load()), cmp.Compare(c.order, other.order)) < 0
}

// close closes the connection at once: the TLS layer's own Close would wait for the
// peer. The caller holds the lock.
func (c *connection) close() {
	c.remove()
	_ = c.Close() // the connection is not used any more
}

// remove removes the connection from the others, if it is among them. The caller holds the lock.
func (c *connection) remove() {
	if _, open := c.of.all[c]; !open {
		return
	}
	delete(c.of.all, c)
	c.timer.Stop()
	c.addWeight(-c.weight.Load())
	c.of.clients.Close(c.client)
}

// certify notes that the client has shown a verified certificate. The connection counts no more.
func (c *connection) certify(certificate *x509.Certificate) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.all[c]; !open {
		return
	}
	c.addWeight(-c.weight.Load())
	c.client.Know()
	l.clients.Close(c.client)
	c.client = l.clients.Open(netip.Prefix{}, string(certificate.RawSubject))
}

// closeIdle closes the connection if its time has passed and no call is in progress, and looks again later otherwise.
func (c *connection) closeIdle() {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.all[c]; !open {
		return
	}
	wait := l.firstCall // that of an active one becomes no shorter
	if http.ConnState(c.state.Load()) != http.StateActive {
		if c.isUsed.Load() {
			wait = idleTimeout
		}
		if wait -= time.Since(time.Unix(0, c.since.Load())); wait <= 0 {
			c.close()
			return
		}
	}
	c.timer.Reset(wait)
}

// areBusy reports whether a call is in progress over a connection, or may be about to arrive over a new one. http.Server.Shutdown
// drops a request that it reads while it shuts down, and its caller does not know whether it was
// served (measured: most stops under load lost one call on HTTP/1.1).
func (l *connections) areBusy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.all {
		if http.ConnState(c.state.Load()) != http.StateIdle {
			return true
		}
	}
	return false
}

// Read implements net.Conn. The handshake reads a bounded number of bytes.
func (c *connection) Read(into []byte) (int, error) {
	if !c.handshaken {
		if c.left == 0 {
			return 0, errLongHandshake
		}
		into = into[:min(len(into), c.left)]
	}
	n, err := c.Conn.Read(into)
	if c.left > 0 {
		if c.left = max(0, c.left-n); c.left == 0 && c.handshaken {
			c.weigh(maxWeight)
		}
	}
	if c.isMetered && c.unspent.Add(-int64(n)) < 0 {
		c.of.onFlood(c.client.Address)
		return 0, errFlood
	}
	return n, err
}

// meter begins to account for what comes over HTTP/2.
func (c *connection) meter() {
	c.isMetered = true
	c.unspent.Store(quietBytes)
}

// account changes how many bytes may still come that no call accounts for.
func (c *connection) account(next func(unspent int64) int64) {
	for {
		unspent := c.unspent.Load()
		if c.unspent.CompareAndSwap(unspent, min(next(unspent), mostBytes)) {
			return
		}
	}
}

// accountFor allows the body of a call, as it is read and before.
func (c *connection) accountFor(r *http.Request) {
	if !c.isMetered || r.Body == nil || r.Body == http.NoBody {
		return
	}
	early := int64(receiveBytes)
	if r.ContentLength >= 0 {
		early = min(early, r.ContentLength)
	}
	c.account(func(unspent int64) int64 { return max(unspent, callBytes) + early })
	r.Body = &accountedBody{r.Body, c}
}

// accountedBody is the body of a call over HTTP/2.
type accountedBody struct {
	io.ReadCloser

	connection *connection
}

// Read implements io.Reader. What is read was more in frames and records: a byte in a record of its own takes forty.
func (b *accountedBody) Read(into []byte) (int, error) {
	const frame = 64
	n, err := b.ReadCloser.Read(into)
	b.connection.account(func(unspent int64) int64 { return unspent + 2*int64(n) + frame })
	return n, err //nolint:wrapcheck // net/http knows its type
}

// begin notes that the header of a call has arrived, and end that it is answered.
func (c *connection) begin() {
	if n := c.calls.Add(1); n > c.weight.Load() && n <= maxWeight && !c.client.Certified {
		c.weigh(n)
	}
}

func (c *connection) end() { c.calls.Add(-1) }

// Client implements review.Connection.
func (c *connection) Client() *clients.Client { return c.client }

// Begin implements review.Connection.
func (c *connection) Begin() {
	c.whole.Add(1)
	c.since.Store(time.Now().UnixNano())
	if !c.isUsed.Load() {
		c.isUsed.Store(true)
		c.client.Know()
	}
}

// End implements review.Connection.
func (c *connection) End() { c.whole.Add(-1) }

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

// opsListener is the listener for health and metrics.
type opsListener struct {
	net.Listener

	connections *connections
}

// Accept implements net.Listener.
func (l opsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http knows its type
	}
	c := l.connections.add(conn, time.Time{})
	c.handshaken = true // there is no TLS
	return c, nil
}
