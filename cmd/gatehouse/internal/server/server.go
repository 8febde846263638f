// Package server serves reviews over TLS, and health and metrics over plain HTTP. It
// owns timeouts, limits and the shutdown that loses no call.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	readHeaderTimeout = 10 * time.Second
	// unreadTimeout is how long a caller without a client certificate may read nothing of
	// what it is sent over HTTP/2. net/http queues up to 10,000 answers to its pings
	// meanwhile, for which no memory is reserved.
	unreadTimeout = 2 * time.Second
	readTimeout   = 15 * time.Second
	// firstCallTimeout is how long a connection for reviews may be open before its first
	// call. API servers keep connections that they made for a call which found another
	// one, and use them up to 90 seconds later: the side that closes first loses that
	// call, as with idleTimeout. The connection limiter bounds abuse.
	firstCallTimeout = 100 * time.Second
	// writeTimeout runs from the end of the header, so it must exceed the 30
	// seconds that the API server may wait for an answer.
	writeTimeout = 40 * time.Second
	// idleTimeout must exceed the 90 seconds after which the API server closes
	// an idle connection itself: the side that closes first loses the call that
	// is on its way (measured: 17 of 2,927 at equal time-outs).
	idleTimeout = 5 * time.Minute
	// maxHeaderBytes is many times what an API server sends.
	maxHeaderBytes = 16 << 10
	// certifiedStreams bounds the calls in progress on one connection with a client
	// certificate: an API server sends all token reviews over one.
	certifiedStreams = 250
	// streams, frameBytes and receiveBytes bound what HTTP/2 holds for one connection
	// without one: calls, a frame, and what was received and not read yet. With 64 KiB, sixteen reviews of 60 KB at one
	// time wait for each other and take half as much processor time again. See http2Weight.
	streams      = 32
	frameBytes   = 16 << 10
	receiveBytes = 448 << 10
	// socketBytes are the kernel's buffers for one such connection, in either direction and protocol.
	socketBytes = 64 << 10
	// defaultConnectionAge is how long a connection is used: a client with one
	// connection would otherwise stay with one replica for ever, and with the
	// client certificate that it once showed.
	defaultConnectionAge = 10 * time.Minute
	// shutdownTimeout leaves the longest review time to finish.
	shutdownTimeout = 35 * time.Second
)

// Options configure a Server. All are required but for Connections,
// ConnectionAge, HandshakeFailed, Debug and Details.
type Options struct {
	// Connections bounds the connections for reviews without a verified client
	// certificate, of which one over HTTP/2 counts as up to eight. The default is 2,048.
	Connections int
	// Reviews is where the API server connects. TLS is put on top of it.
	Reviews net.Listener
	// TLS serves Reviews.
	TLS *tls.Config
	// Handler answers reviews.
	Handler http.Handler
	// Ops is the listener for health and metrics, without TLS.
	Ops net.Listener
	// Metrics answers /metrics.
	Metrics http.Handler
	// Debug answers /debug/ and /log-level on Ops. It decides itself which callers it
	// answers.
	Debug http.Handler
	// Ready returns an error if the server should not get reviews.
	Ready func() error
	// Details, if set, returns lines for /readyz?verbose, about parts whose failure leaves the server ready.
	Details func() []string
	// DrainDelay is how long the server goes on answering after Run was stopped, so
	// that the API server notices before the listener closes.
	DrainDelay time.Duration
	// ConnectionAge is how long a connection for reviews is used, and up to half
	// as long again. The default is 10 minutes.
	ConnectionAge time.Duration
	// HandshakeFailed gets every TLS handshake that fails, from many goroutines.
	HandshakeFailed func(HandshakeFailure)
	// Log is for errors of connections.
	Log *slog.Logger
}

// Server serves until it is stopped, once.
type Server struct {
	options  Options
	draining atomic.Bool
	// unready is the last result of /readyz, and wasReady reports whether any was ready.
	unready, wasReady atomic.Bool
	busy              busyConnections
	// limiter is for connections for reviews without a verified client certificate, and
	// opsLimiter for those for health and metrics.
	limiter, opsLimiter connectionLimiter
}

// New returns a server. It does nothing before Run.
func New(o Options) *Server {
	return &Server{
		options:    o,
		busy:       busyConnections{none: make(chan struct{}, 1)},
		limiter:    connectionLimiter{limit: cmp.Or(o.Connections, maxUncertified), firstCall: firstCallTimeout, turns: make(chan struct{}, turns)},
		opsLimiter: connectionLimiter{limit: maxOps, firstCall: firstCallTimeout},
	}
}

// Run serves until ctx ends, then drains: it reports unready and closes each
// connection behind the answer in progress for the drain delay, stops
// listening, and waits until no call is in progress. It returns nil if every call was
// answered. The requests' contexts do not descend from ctx: stopping cancels no review.
func (s *Server) Run(ctx context.Context) error {
	o := &s.options
	connections := &connectionLog{log: o.Log, rate: rate.NewLimiter(1, 20)}
	errorLog := log.New(connections, "", 0)
	s.limiter.onLimit = func(closed int, client netip.Prefix) {
		connections.warn(fmt.Sprintf("the limit of %d connections without a client certificate is reached (one over HTTP/2 counts as up to %d): closed %d, the first from %s", s.limiter.limit, http2Weight, closed, client))
	}
	s.opsLimiter.onLimit = func(closed int, client netip.Prefix) {
		connections.warn(fmt.Sprintf("the limit of %d connections for health and metrics is reached: closed %d, the first from %s", s.opsLimiter.limit, closed, client))
	}
	reviews := s.acceptor(connections)
	others, certified := s.reviews(false, errorLog), s.reviews(true, errorLog)
	ops := &http.Server{
		Handler:           keepAliveIf(always, s.ops()),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnState:         s.opsLimiter.setState,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			s.opsLimiter.add(conn, time.Time{})
			return context.WithValue(ctx, connectionKey{}, s.opsLimiter.find(conn, false))
		},
	}
	failed := make(chan error, 2)
	go func() { failed <- fmt.Errorf("serving reviews: %w", reviews.serve()) }() //nolint:contextcheck // stopping cancels no handshake
	go func() { _ = others.Serve(reviews.others) }()                             // ends with Shutdown
	go func() { _ = certified.Serve(reviews.certified) }()                       // ends with Shutdown
	go func() { failed <- fmt.Errorf("serving health and metrics: %w", ops.Serve(o.Ops)) }()
	defer func() { _ = ops.Close() }() // health is answered to the very end

	select {
	case err := <-failed:
		_ = o.Reviews.Close()
		_ = others.Close()
		_ = certified.Close()
		return err
	case <-ctx.Done():
	}

	s.draining.Store(true)
	o.Log.Info("draining", "delay", o.DrainDelay.String())
	delay := time.NewTimer(o.DrainDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case err := <-failed:
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	_ = o.Reviews.Close() // from here on a caller knows that its call was not accepted
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		return err
	}
	s.busy.wait(end)
	if err := errors.Join(others.Shutdown(end), certified.Shutdown(end)); err != nil {
		return fmt.Errorf("calls were still in progress after %s: %w", shutdownTimeout, err)
	}
	return nil
}

// acceptor returns the acceptor of connections for reviews.
func (s *Server) acceptor(connections *connectionLog) *acceptor {
	o := &s.options
	config := o.TLS.Clone()
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	age := cmp.Or(o.ConnectionAge, defaultConnectionAge)
	addr := o.Reviews.Addr()
	return &acceptor{
		listener: o.Reviews, tls: config, others: newHandover(addr), certified: newHandover(addr),
		onAccept: func(conn *tls.Conn) *connection {
			// Jitter keeps connections that were made together from ending together.
			c := s.limiter.add(conn, time.Now().Add(age+rand.N(age/2+1))) //nolint:gosec // jitter, no secret
			s.busy.set(c, true)
			return c
		},
		follow:  s.limiter.follow,
		onDrop:  func(c *connection) { s.setState(c, http.StateClosed) },
		onRetry: func(err error) { connections.warn(err.Error()) },
		onFailure: func(conn *tls.Conn, err error) {
			if o.HandshakeFailed != nil {
				o.HandshakeFailed(classifyHandshakeError(err))
			}
			connections.warn(fmt.Sprintf("http: TLS handshake error from %s: %v", conn.RemoteAddr(), err))
		},
	}
}

// reviews returns the server for connections with a verified client certificate, or for
// all others. Anyone can make these, so each gets little memory before a handler decides.
func (s *Server) reviews(certified bool, errorLog *log.Logger) *http.Server {
	server := &http.Server{
		Handler:           s.closing(s.options.Handler),
		ReadHeaderTimeout: firstCallTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: certifiedStreams},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if over, ok := conn.(*tls.Conn); ok {
				if inner, ok := over.NetConn().(*handshakeConn); ok {
					s.setState(inner.connection, state)
				}
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, s.limiter.find(conn, certified))
		},
	}
	if !certified {
		// net/http keeps the memory of a connection over HTTP/2 that was closed with streams until its idle timeout has passed: it starts the
		// timer when it closes the streams. The limiter closes idle connections instead.
		server.IdleTimeout = 0
		server.HTTP2 = &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes,
			MaxReceiveBufferPerConnection: receiveBytes, MaxReceiveBufferPerStream: receiveBytes,
			WriteByteTimeout: unreadTimeout,
		}
	}
	return server
}

// setState follows http.Server.ConnState for a connection for reviews.
func (s *Server) setState(c *connection, state http.ConnState) {
	s.busy.set(c, state == http.StateNew || state == http.StateActive)
	c.setState(state)
}

// closing asks the caller for a new connection while the server drains, and when the
// connection has expired: by the header on HTTP/1.1, by the GOAWAY that net/http makes of
// it on HTTP/2. Neither loses a call.
func (s *Server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// http.Server.ReadTimeout would begin with the connection. A handler may set a
		// later deadline.
		now := time.Now()
		_ = http.NewResponseController(w).SetReadDeadline(now.Add(review.BodyTime(review.Caller{Certified: isVerified(r)}, 0))) // both protocols support it
		// There is no connection if it was closed because of the limit.
		if c := connectionOf(r.Context()); s.draining.Load() || c == nil || now.After(c.expires) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// logReadiness logs when a server that was ready is not, and when it is ready again.
func (s *Server) logReadiness(err error) {
	was := s.unready.Swap(err != nil)
	switch {
	case err != nil && !was && s.wasReady.Load():
		s.options.Log.Warn("not ready", "reason", err.Error())
	case err == nil && (was || !s.wasReady.Load()):
		s.wasReady.Store(true)
		s.options.Log.Info("ready")
	}
}

// ops answers /livez while the process runs, /readyz by Options.Ready, /metrics, and the
// paths of Options.Debug.
func (s *Server) ops() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		err := s.options.Ready()
		if s.draining.Load() {
			err = errors.New("draining")
		}
		s.logReadiness(err)
		if err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
		if r.URL.Query().Has("verbose") && s.options.Details != nil {
			for _, line := range s.options.Details() {
				_, _ = w.Write([]byte(line + "\n"))
			}
		}
	})
	mux.Handle("/metrics", s.options.Metrics)
	if s.options.Debug != nil {
		mux.Handle("/debug/", s.options.Debug)
		mux.Handle("/log-level", s.options.Debug)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connectionOf(r.Context()); c != nil {
			c.BeginWhole() // such calls have no bodies
			defer c.EndWhole()
		}
		mux.ServeHTTP(w, r)
	})
}
