// Package server holds the two listeners: one for reviews, with TLS, and one for
// health and metrics. It owns time-outs, limits and the way to end without
// losing a call.
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
	// call. API servers have connections that they made for a call which found another
	// one, and use them up to 90 seconds later: whoever closes first loses that call, as
	// with idleTimeout. What strangers could make of it the crowd bounds.
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
	// without one: calls, a frame, and what was received and not read yet.
	streams      = 32
	frameBytes   = 16 << 10
	receiveBytes = 64 << 10
	// defaultConnectionAge is how long a connection is used: a client with one
	// connection would otherwise stay with one replica for ever, and with the
	// client certificate that it once showed.
	defaultConnectionAge = 10 * time.Minute
	// shutdownTimeout leaves the longest review time to finish.
	shutdownTimeout = 35 * time.Second
)

// Options are what a Server is made of. All are required but for Connections,
// ConnectionAge, HandshakeFailed and Debug.
type Options struct {
	// Connections bounds those for reviews that show no verified client certificate. The
	// default is 2,048.
	Connections int
	// Reviews is where the API server connects. TLS is put on top of it.
	Reviews net.Listener
	// TLS serves Reviews.
	TLS *tls.Config
	// Handler answers reviews.
	Handler http.Handler
	// Ops is where health and metrics are asked for, without TLS.
	Ops net.Listener
	// Metrics answers /metrics.
	Metrics http.Handler
	// Debug answers /debug/ and /log-level on Ops, which nobody else may reach who
	// should not: it decides itself whom it answers.
	Debug http.Handler
	// Ready says why the server should not get reviews, and nil if it should.
	Ready func() error
	// DrainDelay is how long the server goes on answering after it has been
	// told to stop, so that the API server learns of it before the listener
	// closes.
	DrainDelay time.Duration
	// ConnectionAge is how long a connection for reviews is used, and up to half
	// as long again. The default is 10 minutes.
	ConnectionAge time.Duration
	// HandshakeFailed is told of every TLS handshake that fails, at once and from
	// many goroutines.
	HandshakeFailed func(HandshakeFailure)
	// Log is for what goes wrong with connections.
	Log *slog.Logger
}

// Server serves until it is told to stop, once.
type Server struct {
	options  Options
	draining atomic.Bool
	// unready is what /readyz said last, wasReady whether it ever said yes.
	unready, wasReady atomic.Bool
	busy              busy
	// crowd are the connections for reviews without a verified client certificate, and
	// opsCrowd those for health and metrics.
	crowd, opsCrowd crowd
}

// New makes a server. It does nothing before Run.
func New(o Options) *Server {
	return &Server{
		options:  o,
		crowd:    crowd{most: cmp.Or(o.Connections, mostStrangers), patience: strangerPatience},
		opsCrowd: crowd{most: mostOps, patience: strangerPatience},
	}
}

// Run serves until ctx ends, then drains: it reports unready and closes each
// connection behind the answer in progress for the drain delay, stops
// listening, and waits until every connection that it had taken is answered. It returns nil after a drain in
// which every call was answered. The requests' contexts do not descend from
// ctx: being told to stop cancels no review.
func (s *Server) Run(ctx context.Context) error {
	o := &s.options
	connections := &connectionLog{log: o.Log, rate: rate.NewLimiter(1, 20)}
	errorLog := log.New(connections, "", 0)
	s.crowd.full = func(client netip.Prefix) {
		connections.warn(fmt.Sprintf("there are %d without a client certificate: one from %s is closed, which has the most of them", s.crowd.most, client))
	}
	s.opsCrowd.full = func(client netip.Prefix) {
		connections.warn(fmt.Sprintf("there are %d for health and metrics: one from %s is closed, which has the most of them", s.opsCrowd.most, client))
	}
	reviews := s.front(connections)
	others, certified := s.reviews(false, errorLog), s.reviews(true, errorLog)
	ops := &http.Server{
		Handler:           lasting(s.ops(), always),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnState:         s.opsCrowd.state,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			s.opsCrowd.enter(conn, time.Time{})
			return context.WithValue(ctx, connectionKey{}, s.opsCrowd.find(conn, false))
		},
	}
	failed := make(chan error, 2)
	go func() { failed <- fmt.Errorf("serving reviews: %w", reviews.serve()) }() //nolint:contextcheck // a handshake is not cut short by the signal to stop
	go func() { _ = others.Serve(reviews.others) }()                             // ends with Shutdown
	go func() { _ = certified.Serve(reviews.certified) }()                       // ends with Shutdown
	go func() { failed <- fmt.Errorf("serving health and metrics: %w", ops.Serve(o.Ops)) }()
	defer func() { _ = ops.Close() }() // Health is answered to the very end.

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
	_ = o.Reviews.Close() // From here on a caller knows that its call was not taken.
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		return err
	}
	s.busy.wait(end)
	if err := errors.Join(others.Shutdown(end), certified.Shutdown(end)); err != nil {
		return fmt.Errorf("calls were still in progress after %s: %w", shutdownTimeout, err)
	}
	return nil
}

// front takes the connections for reviews.
func (s *Server) front(connections *connectionLog) *front {
	o := &s.options
	config := o.TLS.Clone()
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	age := cmp.Or(o.ConnectionAge, defaultConnectionAge)
	addr := o.Reviews.Addr()
	return &front{
		listener: o.Reviews, tls: config, others: newHandover(addr), certified: newHandover(addr),
		taken: func(conn *tls.Conn) {
			s.busy.state(conn, http.StateNew)
			// Jitter keeps connections that were made together from ending together.
			s.crowd.enter(conn, time.Now().Add(age+rand.N(age/2+1))) //nolint:gosec // jitter, no secret
		},
		dropped: func(conn *tls.Conn) {
			s.crowd.state(conn, http.StateClosed)
			s.busy.state(conn, http.StateClosed)
		},
		wait: func(err error) { connections.warn(err.Error()) },
		failed: func(conn *tls.Conn, err error) {
			if o.HandshakeFailed != nil {
				o.HandshakeFailed(failureOf(err))
			}
			connections.warn(fmt.Sprintf("http: TLS handshake error from %s: %v", conn.RemoteAddr(), err))
		},
	}
}

// reviews serves connections with a verified client certificate, or all others. Over
// these anybody may call, so that each gets little memory before a handler decides.
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
			s.busy.state(conn, state)
			s.crowd.state(conn, state)
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, s.crowd.find(conn, certified))
		},
	}
	if !certified {
		server.HTTP2 = &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes,
			MaxReceiveBufferPerConnection: receiveBytes, MaxReceiveBufferPerStream: receiveBytes,
			WriteByteTimeout: unreadTimeout,
		}
	}
	return server
}

// closing asks the caller to connect anew while the server drains, and when the
// connection has come to its end: on HTTP/1.1 with the header itself, on HTTP/2
// net/http makes it a GOAWAY. No call is lost by either.
func (s *Server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not by http.Server.ReadTimeout, which begins with the connection.
		// A handler that is to wait for longer says so.
		now := time.Now()
		_ = http.NewResponseController(w).SetReadDeadline(now.Add(review.BodyTime(review.Caller{Certified: verified(r)}, 0))) // both protocols know it
		// One that is closed for another has no connection here.
		if one := connectionOf(r.Context()); s.draining.Load() || one == nil || now.After(one.end) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// tellReadiness logs when a server that was ready is not, and when it is again: who
// finds no endpoints looks for the reason here.
func (s *Server) tellReadiness(err error) {
	was := s.unready.Swap(err != nil)
	switch {
	case err != nil && !was && s.wasReady.Load():
		s.options.Log.Warn("not ready", "reason", err.Error())
	case err == nil && (was || !s.wasReady.Load()):
		s.wasReady.Store(true)
		s.options.Log.Info("ready")
	}
}

// ops answers /livez while the process runs, /readyz as Options.Ready says,
// /metrics, and what Options.Debug does.
func (s *Server) ops() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := s.options.Ready()
		if s.draining.Load() {
			err = errors.New("draining")
		}
		s.tellReadiness(err)
		if err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("/metrics", s.options.Metrics)
	if s.options.Debug != nil {
		mux.Handle("/debug/", s.options.Debug)
		mux.Handle("/log-level", s.options.Debug)
	}
	return mux
}
