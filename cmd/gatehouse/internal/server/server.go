// Package server serves reviews over TLS, and health and metrics over plain HTTP. It has the timeouts, the limits of
// connections, and a shutdown that answers every call in progress. Server is the listeners; Reviews is the handler that
// answers the endpoints.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
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
	// unreadTimeout is how long a caller may read nothing of
	// what it is sent over HTTP/2. net/http queues up to 10,000 answers to its pings
	// meanwhile, for which no memory is reserved.
	unreadTimeout = 2 * time.Second
	readTimeout   = 15 * time.Second
	// firstCallTimeout is how long a connection for reviews may be open before its first
	// call. API servers keep connections that they made for a call which found another
	// one, and use them up to 90 seconds later: the side that closes first loses that
	// call, as with idleTimeout. The limit of connections bounds abuse.
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
	// streams, frameBytes and receiveBytes bound what HTTP/2 holds for one connection: calls in progress, a frame, and what was received
	// and not read yet. Clients with more calls make another connection. With 64 KiB received, sixteen reviews of 60 KB at one
	// time wait for each other and take half as much processor time again. See maxWeight.
	streams      = 32
	frameBytes   = 16 << 10
	receiveBytes = 448 << 10
	// socketBytes are the kernel's buffers for a connection without a client certificate, in either direction and protocol.
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
	// certificate, of which one over HTTP/2 counts as up to 16. The default is 2,048.
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
	// reviews are the connections for reviews, and ops those for health and metrics.
	reviews, ops connections
}

// New returns a server. It does nothing before Run.
func New(o Options) *Server {
	return &Server{
		options: o,
		reviews: connections{limit: int64(cmp.Or(o.Connections, maxUncertified)), firstCall: firstCallTimeout},
		ops:     connections{limit: maxOps, firstCall: firstCallTimeout},
	}
}

// Run serves until ctx ends, and then drains: for the drain delay, /readyz fails and each connection is closed after its
// answer. After that, Run stops listening, and waits until no call is in progress. It returns nil if every call was
// answered. The contexts of requests do not descend from ctx, so stopping cancels no review.
func (s *Server) Run(ctx context.Context) error {
	o := &s.options
	problems := &connectionLog{log: o.Log, rate: rate.NewLimiter(1, 20)}
	s.reviews.onLimit = func(closed int, client netip.Prefix) {
		problems.warn(fmt.Sprintf("the limit of %d connections without a client certificate is reached (one over HTTP/2 counts as up to %d): closed %d, the first from %s", s.reviews.limit, maxWeight, closed, client))
	}
	s.reviews.onFlood = func(client netip.Prefix) {
		problems.warn(fmt.Sprintf("closed a connection from %s, which sent HTTP/2 frames that are of no call, such as SETTINGS or PING, without end", client))
	}
	s.ops.onLimit = func(closed int, client netip.Prefix) {
		problems.warn(fmt.Sprintf("the limit of %d connections for health and metrics is reached: closed %d, the first from %s", s.ops.limit, closed, client))
	}
	accepted := s.acceptor(problems)
	reviews, ops := s.httpServer(s.closing(o.Handler), problems), s.httpServer(keepAliveIf(always, s.opsHandler()), problems)
	ops.ReadHeaderTimeout, ops.ReadTimeout, ops.IdleTimeout = readHeaderTimeout, readTimeout, idleTimeout
	failed := make(chan error, 2)
	go func() { failed <- fmt.Errorf("serving reviews: %w", accepted.serve()) }() //nolint:contextcheck // stopping cancels no handshake
	go func() { _ = reviews.Serve(accepted) }()                                   // ends with Shutdown
	go func() { failed <- fmt.Errorf("serving health and metrics: %w", ops.Serve(opsListener{o.Ops, &s.ops})) }()
	defer func() { _ = ops.Close() }() // health is answered to the very end

	select {
	case err := <-failed:
		_ = o.Reviews.Close()
		_ = reviews.Close()
		return err
	case <-ctx.Done():
	}

	s.draining.Store(true)
	// Logged when the server was asked to stop: it answers until the delay is over.
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
	s.awaitCalls(end)
	if err := reviews.Shutdown(end); err != nil {
		return fmt.Errorf("calls were still in progress after %s: %w", shutdownTimeout, err)
	}
	return nil
}

// awaitCalls returns when no connection is busy, or with ctx. The listener has been closed.
func (s *Server) awaitCalls(ctx context.Context) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for s.reviews.areBusy() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// acceptor returns the acceptor of connections for reviews.
func (s *Server) acceptor(problems *connectionLog) *acceptor {
	o := &s.options
	config := o.TLS.Clone()
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return &acceptor{
		Listener: o.Reviews, tls: config, connections: &s.reviews, age: cmp.Or(o.ConnectionAge, defaultConnectionAge),
		ready: make(chan net.Conn), closed: make(chan struct{}),
		onRetry: func(err error) { problems.warn(err.Error()) },
		onFailure: func(from net.Addr, err error) {
			if o.HandshakeFailed != nil {
				o.HandshakeFailed(classifyHandshakeError(err))
			}
			problems.warn(fmt.Sprintf("http: TLS handshake error from %s: %v", from, err))
		},
	}
}

// httpServer returns a server for connections that anyone can make, so that each gets little memory before a handler decides. It has no
// idle timeout: net/http keeps the memory of a connection over HTTP/2 that was closed with streams until that has passed, because it
// starts the timer when it closes the streams. The limit of connections closes idle ones instead.
func (*Server) httpServer(handler http.Handler, problems *connectionLog) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: firstCallTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(problems, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes,
			MaxReceiveBufferPerConnection: receiveBytes, MaxReceiveBufferPerStream: receiveBytes,
			WriteByteTimeout: unreadTimeout,
		},
		ConnState:   connState,
		ConnContext: connContext,
	}
}

// closing asks the caller for a new connection while the server drains, and when the
// connection has expired: by the header on HTTP/1.1, by the GOAWAY that net/http makes of
// it on HTTP/2. Neither loses a call.
func (s *Server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// http.Server.ReadTimeout would begin with the connection. A handler may set a
		// later deadline.
		now, c := time.Now(), connectionOf(r)
		c.begin()
		defer c.end()
		c.accountFor(r)
		_ = http.NewResponseController(w).SetReadDeadline(now.Add(review.BodyTime(c.client.Certified, 0))) // both protocols support it
		if s.draining.Load() || now.After(c.expires) {
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
		// Logged when /readyz begins to fail, with the reason.
		s.options.Log.Warn("not ready", "reason", err.Error())
	case err == nil && (was || !s.wasReady.Load()):
		s.wasReady.Store(true)
		// Logged when /readyz succeeds for the first time, or again.
		s.options.Log.Info("ready")
	}
}

// opsHandler answers /livez while the process runs, /readyz by Options.Ready, /metrics, and the
// paths of Options.Debug.
func (s *Server) opsHandler() http.Handler {
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
		c := connectionOf(r)
		c.Begin() // such calls have no bodies
		defer c.End()
		mux.ServeHTTP(w, r)
	})
}
