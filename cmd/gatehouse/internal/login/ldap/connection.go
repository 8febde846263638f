package ldap

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-ldap/ldap/v3"
)

const (
	// handshakeBytes is what a server may send until TLS stands: an answer to
	// StartTLS, from nobody knows whom, and certificates.
	handshakeBytes = 1 << 20
	// answerBytes is what a server may send in answer to one question.
	answerBytes = 32 << 20
	// unbindTime is for a message that fits into any buffer.
	unbindTime = time.Second
)

// connection is a connection to a server, encrypted, for one user at a time.
type connection struct {
	server *server
	raw    *limited
	ldap   *ldap.Conn
	// broken is set once nothing more can be asked: what is under way may be the
	// answer to an earlier question.
	broken bool
}

// connect opens a connection. Nobody is bound to it yet.
func (s *server) connect(ctx context.Context) (*connection, error) {
	dialer := &net.Dialer{}
	dialed, err := dialer.DialContext(ctx, "tcp", s.address.Address)
	if err != nil {
		return nil, s.unreachable(ctx, "connect", err)
	}
	c := &connection{server: s, raw: &limited{Conn: dialed}}
	c.raw.left.Store(handshakeBytes)
	s.open.Add(1)
	if s.address.StartTLS {
		err = c.startTLS(ctx)
	} else {
		err = c.handshake(ctx)
	}
	if err != nil {
		c.broken = true
		c.close()
		return nil, s.unreachable(ctx, "begin TLS", err)
	}
	return c, nil
}

// unreachable is failure for a server with which there is no connection yet: its
// refusal is its failure.
func (s *server) unreachable(ctx context.Context, doing string, err error) error {
	f := s.failure(ctx, doing, err)
	f.down = true
	return f
}

func (c *connection) handshake(ctx context.Context) error {
	encrypted := tls.Client(c.raw, c.server.tls)
	err := encrypted.HandshakeContext(ctx)
	if err != nil {
		return err
	}
	c.ldap = ldap.NewConn(encrypted, true)
	c.ldap.Start()
	return nil
}

func (c *connection) startTLS(ctx context.Context) error {
	c.ldap = ldap.NewConn(c.raw, false)
	c.ldap.Start()
	return c.within(ctx, func() error { return c.ldap.StartTLS(c.server.tls) })
}

// within runs a request until the context ends. The library knows no contexts,
// but ends a request when its connection is closed.
func (c *connection) within(ctx context.Context, request func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	err := request()
	_, answered := resultCode(err)
	if !stop() || err != nil && !answered {
		c.broken = true
	}
	return err
}

// bind binds as somebody, once for a connection. It never sends an empty name or
// password: the server would take that for nobody in particular and say yes.
func (c *connection) bind(ctx context.Context, dn, password string, controls ...ldap.Control) (*ldap.SimpleBindResult, error) {
	if dn == "" || password == "" {
		return nil, errUnauthenticated
	}
	c.raw.left.Store(answerBytes)
	var result *ldap.SimpleBindResult
	err := c.within(ctx, func() error {
		var err error
		result, err = c.ldap.SimpleBind(ldap.NewSimpleBindRequest(dn, password, controls))
		return err
	})
	return result, err
}

var errUnauthenticated = errors.New("a bind without a name or a password is not allowed")

// search searches below a DN. The result is given with some errors too.
func (c *connection) search(ctx context.Context, r *ldap.SearchRequest) (*ldap.SearchResult, error) {
	c.raw.left.Store(answerBytes)
	r.Scope, r.DerefAliases = ldap.ScopeWholeSubtree, ldap.NeverDerefAliases
	// The server need not work on when nobody waits any more.
	r.TimeLimit = secondsUntilEnd(ctx)
	var result *ldap.SearchResult
	err := c.within(ctx, func() error {
		var err error
		result, err = c.ldap.Search(r)
		return err
	})
	return result, err
}

// secondsUntilEnd returns the seconds until the context's deadline, rounded up, or 0
// without one.
func secondsUntilEnd(ctx context.Context) int {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(1, int(time.Until(deadline)/time.Second)+1)
}

// close ends the connection, politely if there is somebody to be polite to.
func (c *connection) close() {
	c.server.open.Add(-1)
	if c.ldap == nil {
		_ = c.raw.Close()
		return
	}
	if !c.broken && !c.ldap.IsClosing() && c.raw.SetDeadline(time.Now().Add(unbindTime)) == nil {
		_ = c.ldap.Unbind()
	}
	// The library waits for its writer, which may wait for the network.
	_ = c.raw.Close()
	_ = c.ldap.Close()
}

// limited is a network connection that a peer cannot fill memory with.
type limited struct {
	net.Conn
	// left is how many bytes more may come.
	left atomic.Int64
}

var errTooMuch = errors.New("the response of the server is too large")

func (l *limited) Read(buffer []byte) (int, error) {
	n, err := l.Conn.Read(buffer)
	if l.left.Add(-int64(n)) < 0 {
		return 0, errTooMuch
	}
	return n, err
}
