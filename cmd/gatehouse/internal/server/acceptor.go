package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// handshakeTimeout bounds a TLS handshake.
const handshakeTimeout = 10 * time.Second

// handshakeBytes bounds what a client may send in a handshake, which is kept until then:
// crypto/tls takes 256 KiB of certificates. API servers send less than 16.
const handshakeBytes = 32 << 10

var errLongHandshake = errors.New("tls: the client has sent too much before the end of the handshake")

// handshakeConn is a connection of which the handshake reads a bounded number of bytes.
type handshakeConn struct {
	net.Conn

	connection *connection
	// left bytes may be read until done is set, after the handshake.
	left int
	done bool
	// follow, if set, follows reads after the handshake.
	follow *connection
}

func (c *handshakeConn) Read(into []byte) (int, error) {
	if c.done {
		if c.follow == nil {
			return c.Conn.Read(into)
		}
		c.follow.beforeRead()
		n, err := c.Conn.Read(into)
		c.follow.afterRead(n)
		return n, err
	}
	if c.left == 0 {
		return 0, errLongHandshake
	}
	n, err := c.Conn.Read(into[:min(len(into), c.left)])
	c.left -= n
	return n, err
}

// acceptor accepts connections, does their handshakes and hands each over to one of two
// servers: net/http has one set of limits a server, and callers with a verified client
// certificate need other limits than everybody else.
type acceptor struct {
	listener net.Listener
	tls      *tls.Config
	// onAccept gets a connection before its handshake, and onDrop one that no server
	// gets.
	onAccept func(*tls.Conn) *connection
	onDrop   func(*connection)
	// follow returns what follows the reads of a connection over HTTP/2 without a client certificate, nil for none.
	follow func(*tls.Conn) *connection
	// onFailure gets the error of a handshake, and onRetry the error for which no
	// connection can be accepted for now.
	onFailure func(*tls.Conn, error)
	onRetry   func(error)

	certified, others *handover
}

// serve accepts connections until the listener is closed, and returns its error.
func (a *acceptor) serve() error {
	const longest = time.Second
	var pause time.Duration
	for {
		accepted, err := a.listener.Accept()
		if err != nil {
			if temporary, ok := errors.AsType[net.Error](err); ok && temporary.Temporary() { //nolint:staticcheck // as net/http does: there are too few file descriptors
				a.onRetry(err)
				pause = min(max(2*pause, 5*time.Millisecond), longest)
				time.Sleep(pause)
				continue
			}
			return err
		}
		pause = 0
		inner := &handshakeConn{Conn: accepted, left: handshakeBytes}
		conn := tls.Server(inner, a.tls)
		inner.connection = a.onAccept(conn)
		go a.handshake(conn, inner)
	}
}

// handshake does the handshake of a connection and hands it over.
func (a *acceptor) handshake(conn *tls.Conn, inner *handshakeConn) {
	deadline := time.Now().Add(handshakeTimeout)
	err := conn.SetDeadline(deadline)
	if err == nil {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		err = conn.HandshakeContext(ctx)
		cancel()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		if hello, ok := errors.AsType[tls.RecordHeaderError](err); ok && hello.Conn != nil && looksLikeHTTP(hello.RecordHeader) {
			_, _ = io.WriteString(hello.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") // best effort
			err = errHTTP
		}
		a.onFailure(conn, err)
		a.drop(inner)
		return
	}
	inner.done = true
	to, state := a.others, conn.ConnectionState()
	if len(state.VerifiedChains) == 0 && state.NegotiatedProtocol == "h2" {
		inner.follow = a.follow(conn)
	}
	if len(state.VerifiedChains) > 0 {
		to = a.certified
	} else if socket, ok := inner.Conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		// Otherwise the kernel buffers megabytes, which count as memory of this process.
		_ = socket.SetReadBuffer(socketBytes)  // a larger buffer is no error
		_ = socket.SetWriteBuffer(socketBytes) // as above
	}
	if !to.handOver(conn) {
		a.drop(inner)
	}
}

func (a *acceptor) drop(conn *handshakeConn) {
	_ = conn.Close() // the connection is not used any more
	a.onDrop(conn.connection)
}

// looksLikeHTTP reports whether the first five bytes are those of an HTTP method.
func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	default:
		return false
	}
}

// handover is the listener of a server that gets connections after their handshake.
type handover struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newHandover(addr net.Addr) *handover {
	return &handover{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// handOver hands a connection over, and reports whether the listener was still open.
func (h *handover) handOver(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return h.addr }

// connectionLog logs errors of connections at a bounded rate: anyone who reaches the port
// can cause them. It is the io.Writer of net/http's log.
type connectionLog struct {
	log  *slog.Logger
	rate *rate.Limiter
}

func (c *connectionLog) warn(text string) {
	if c.rate.Allow() {
		c.log.Warn("connection error", "error", text)
	}
}

// Write implements io.Writer for one line.
func (c *connectionLog) Write(text []byte) (int, error) {
	c.warn(strings.TrimSpace(string(text)))
	return len(text), nil
}
