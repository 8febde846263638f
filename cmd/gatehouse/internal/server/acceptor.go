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

// greeting is a connection of which a handshake reads a bounded number of bytes.
type greeting struct {
	net.Conn

	// left may be read until over is set, behind the handshake.
	left int
	over bool
}

func (g *greeting) Read(into []byte) (int, error) {
	if g.over {
		return g.Conn.Read(into)
	}
	if g.left == 0 {
		return 0, errLongHandshake
	}
	n, err := g.Conn.Read(into[:min(len(into), g.left)])
	g.left -= n
	return n, err
}

// front takes connections, does their handshakes and gives each to one of two
// servers: net/http has one set of limits a server, and callers with a verified client
// certificate need others than everybody else.
type front struct {
	listener net.Listener
	tls      *tls.Config
	// taken is told of a connection before its handshake, and dropped of one that no
	// server gets.
	taken, dropped func(*tls.Conn)
	// failed is told why a handshake failed, and wait why no connection could be taken
	// for now.
	failed func(*tls.Conn, error)
	wait   func(error)

	certified, others *handover
}

// serve takes connections until the listener is closed, which is its error.
func (f *front) serve() error {
	const longest = time.Second
	var pause time.Duration
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			if temporary, ok := errors.AsType[net.Error](err); ok && temporary.Temporary() { //nolint:staticcheck // as net/http does: there are too few file descriptors
				f.wait(err)
				pause = min(max(2*pause, 5*time.Millisecond), longest)
				time.Sleep(pause)
				continue
			}
			return err
		}
		pause = 0
		below := &greeting{Conn: conn, left: handshakeBytes}
		over := tls.Server(below, f.tls)
		f.taken(over)
		go f.shake(over, below)
	}
}

// shake does the handshake.
func (f *front) shake(conn *tls.Conn, below *greeting) {
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
		f.failed(conn, err)
		f.drop(conn)
		return
	}
	below.over = true
	to := f.others
	if len(conn.ConnectionState().VerifiedChains) > 0 {
		to = f.certified
	} else if socket, ok := below.Conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		// Else the kernel, whose memory counts as ours, keeps megabytes of what is not read.
		_ = socket.SetReadBuffer(receiveBytes)  // without it there is more
		_ = socket.SetWriteBuffer(receiveBytes) // as above
	}
	if !to.give(conn) {
		f.drop(conn)
	}
}

func (f *front) drop(conn *tls.Conn) {
	_ = conn.NetConn().Close() // whatever it says, the connection is not used any more
	f.dropped(conn)
}

// looksLikeHTTP reports whether the first five bytes are those of a method.
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

// give hands a connection over, unless the listener is closed.
func (h *handover) give(conn net.Conn) bool {
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

// connectionLog logs what goes wrong with connections, at a bounded rate: anybody who
// reaches the port can cause it. It is the io.Writer of net/http's log.
type connectionLog struct {
	log  *slog.Logger
	rate *rate.Limiter
}

func (c *connectionLog) warn(text string) {
	if c.rate.Allow() {
		c.log.Warn("connection", "error", text)
	}
}

// Write implements io.Writer for one line.
func (c *connectionLog) Write(text []byte) (int, error) {
	c.warn(strings.TrimSpace(string(text)))
	return len(text), nil
}
