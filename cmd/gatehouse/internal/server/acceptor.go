package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// handshakeTimeout bounds a TLS handshake.
const handshakeTimeout = 10 * time.Second

// acceptor is a listener of connections after their handshake. Until then nothing but their number is known of them.
type acceptor struct {
	net.Listener

	tls         *tls.Config
	connections *connections
	// age is how long a connection is used, and up to half as long again: jitter keeps connections that were made together from ending together.
	age time.Duration
	// onFailure gets the error of a handshake, and onRetry the error for which no
	// connection can be accepted for now.
	onFailure func(net.Addr, error)
	onRetry   func(error)

	ready  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// serve accepts connections until the listener is closed, and returns its error.
func (a *acceptor) serve() error {
	const longest = time.Second
	var pause time.Duration
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			if temporary, ok := errors.AsType[net.Error](err); ok && temporary.Temporary() { //nolint:staticcheck // as net/http does: there are too few file descriptors
				a.onRetry(err)
				pause = min(max(2*pause, 5*time.Millisecond), longest)
				time.Sleep(pause)
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		pause = 0
		c := a.connections.add(conn, time.Now().Add(a.age+rand.N(a.age/2+1))) //nolint:gosec // jitter, no secret
		c.left = handshakeBytes
		go a.handshake(c)
	}
}

// handshake does the handshake of a connection and hands it over.
func (a *acceptor) handshake(c *connection) {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	conn := tls.Server(c, a.tls)
	err := conn.HandshakeContext(ctx)
	if err != nil {
		a.onFailure(conn.RemoteAddr(), err)
		a.drop(c)
		return
	}
	c.handshaken, c.left = true, 0
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == "h2" {
		c.meter()
	}
	if len(state.VerifiedChains) > 0 {
		c.certify(state.PeerCertificates[0])
	} else {
		if socket, ok := c.Conn.(*net.TCPConn); ok {
			// Otherwise the kernel buffers megabytes, which count as memory of this process.
			_ = socket.SetReadBuffer(socketBytes)  // a larger buffer is no error
			_ = socket.SetWriteBuffer(socketBytes) // as above
		}
		if c.isMetered {
			c.left = lightBytes
		}
	}
	select {
	case a.ready <- conn:
	case <-a.closed:
		a.drop(c)
	}
}

func (a *acceptor) drop(c *connection) {
	a.connections.mu.Lock()
	defer a.connections.mu.Unlock()
	c.close()
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case conn := <-a.ready:
		return conn, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. What is below has been closed before.
func (a *acceptor) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// connectionLog logs errors of connections at a bounded rate: anyone who reaches the port
// can cause them. It is the io.Writer of net/http's log.
type connectionLog struct {
	log  *slog.Logger
	rate *rate.Limiter
}

func (c *connectionLog) warn(text string) {
	if c.rate.Allow() {
		// Logged when a TLS handshake or a connection fails, for each kind of failure at most once in a while.
		c.log.Warn("connection error", "error", text)
	}
}

// Write implements io.Writer for one line.
func (c *connectionLog) Write(text []byte) (int, error) {
	c.warn(strings.TrimSpace(string(text)))
	return len(text), nil
}
