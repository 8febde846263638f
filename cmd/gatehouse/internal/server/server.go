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
)

const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 15 * time.Second
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
	idleTimeout    = 5 * time.Minute
	maxHeaderBytes = 64 << 10
	// defaultConnectionAge is how long a connection is used: a client with one
	// connection would otherwise stay with one replica for ever, and with the
	// client certificate that it once showed.
	defaultConnectionAge = 10 * time.Minute
	// shutdownTimeout leaves the longest review time to finish.
	shutdownTimeout = 35 * time.Second
)

// Options are what a Server is made of. All are required but for ConnectionAge,
// HandshakeFailed and Debug.
type Options struct {
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
	crowd             crowd
}

// New makes a server. It does nothing before Run.
func New(o Options) *Server {
	return &Server{options: o, crowd: crowd{most: mostStrangers, patience: strangerPatience}}
}

// Run serves until ctx ends, then drains: it reports unready and closes each
// connection behind the answer in progress for the drain delay, stops
// listening, and waits until every connection that it had taken is answered. It returns nil after a drain in
// which every call was answered. The requests' contexts do not descend from
// ctx: being told to stop cancels no review.
func (s *Server) Run(ctx context.Context) error {
	o := &s.options
	errorLog := log.New(&connectionLog{log: o.Log, rate: rate.NewLimiter(1, 20), failed: o.HandshakeFailed}, "", 0)
	s.crowd.full = func(client netip.Prefix) {
		errorLog.Printf("there are %d without a client certificate: one from %s is closed, which has the most of them", s.crowd.most, client)
	}
	age := cmp.Or(o.ConnectionAge, defaultConnectionAge)
	reviews := &http.Server{
		Handler:           s.closing(o.Handler),
		TLSConfig:         o.TLS,
		ReadHeaderTimeout: firstCallTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnState: func(conn net.Conn, state http.ConnState) {
			s.busy.state(conn, state)
			s.crowd.state(conn, state)
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			// Jitter keeps connections that were made together from ending together.
			end := time.Now().Add(age + rand.N(age/2+1)) //nolint:gosec // jitter, no secret
			return context.WithValue(ctx, connectionKey{}, s.crowd.enter(conn, end))
		},
	}
	ops := &http.Server{
		Handler:           s.ops(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
	}
	failed := make(chan error, 2)
	go func() { failed <- fmt.Errorf("serving reviews: %w", reviews.ServeTLS(o.Reviews, "", "")) }()
	go func() { failed <- fmt.Errorf("serving health and metrics: %w", ops.Serve(o.Ops)) }()
	defer func() { _ = ops.Close() }() // Health is answered to the very end.

	select {
	case err := <-failed:
		_ = reviews.Close()
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
	if err := reviews.Shutdown(end); err != nil {
		return fmt.Errorf("calls were still in progress after %s: %w", shutdownTimeout, err)
	}
	return nil
}

// closing asks the caller to connect anew while the server drains, and when the
// connection has come to its end: on HTTP/1.1 with the header itself, on HTTP/2
// net/http makes it a GOAWAY. No call is lost by either.
func (s *Server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not by http.Server.ReadTimeout, which begins with the connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // both protocols know it
		if s.draining.Load() || time.Now().After(connectionOf(r.Context()).end) {
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
