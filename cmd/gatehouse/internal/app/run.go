// Package app puts the server together. Options are the flags of serve, and Run makes the parts from them (listeners,
// configuration, certificates, cluster, recording, audits), connects them, and starts and stops them.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/certmetrics"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// wiring is a server while its parts are put together: what they share, and the parts.
type wiring struct {
	*Options
	log     *slog.Logger
	metrics *telemetry.Telemetry
	// access is to the cluster, nil without one.
	access *rest.Config
	// lookups is where policies and profiles look up objects, nil without a cluster.
	lookups *cluster.Cluster

	current    *configuration.Active
	reconciler *configuration.Reconciler
	// deciding is the active configuration without what comes from elsewhere.
	deciding atomic.Pointer[config.Config]

	// certClient is the client for certificates, nil if nothing needs it. notify gets what happens to them and to registrations.
	certClient  certs.Client
	certMetrics *certmetrics.Metrics
	notify      func(certs.Event)
	called      registrations
	serving     *certificates

	// reviews and logins are what the parts have to do with a request.
	reviews server.ReviewOptions
	logins  login.HandlerOptions

	parts []part
}

// Run reads and compiles the configuration, listens, and serves until ctx ends. It returns nil after a stop in which every
// call was answered. Any other error means that the server could not start, or could not go on.
func Run(ctx context.Context, f *Options, log *slog.Logger) error {
	memory := newMemoryLimit()
	memory.apply(ctx, log)
	access, err := f.access()
	if err != nil {
		return err
	}
	w := newWiring(f, access, log)
	defer w.close()
	for _, add := range []func(context.Context) error{
		w.addLookups, w.addConfiguration, w.addAuthorization, w.addTokens, w.addLogouts, w.addCertificateEvents, w.addRegistrations,
		w.addTracing, w.addRecording, w.addStatus,
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	documents, found := w.reconciler.Read()
	if found.Err() != nil {
		return w.reconciler.Start(ctx, documents, found) // which returns all problems
	}
	reviews, err := w.listen(ctx, "--listen", f.Listen)
	if err != nil {
		return err
	}
	health, err := w.listen(ctx, "--ops-listen", f.OpsListen)
	if err != nil {
		return err
	}
	if err := w.start(ctx, documents, found); err != nil {
		return err
	}
	srv := w.server(reviews, health, f.budget(memory, log))
	// Logged when the server accepts connections.
	log.Info("serving", "version", build.Version(), "reviews", reviews.Addr().String(), "ops", health.Addr().String())
	if err := w.run(ctx, srv.Run); err != nil {
		return err
	}
	// Logged when all calls in progress were answered.
	log.Info("stopped")
	return nil
}

func newWiring(f *Options, access *rest.Config, log *slog.Logger) *wiring {
	metrics := telemetry.New(log, build.Version())
	if f.Audit {
		metrics.AuditAuthentication()
	}
	return &wiring{
		Options: f, log: log, metrics: metrics, access: access,
		certMetrics: certmetrics.New(metrics.Registry, server.HandshakeFailures()),
		reviews:     server.ReviewOptions{RequireClientCertificate: f.requireClientForAll, Now: time.Now, Profiles: metrics.Profiles, Policies: metrics.Policies},
		logins:      login.HandlerOptions{Now: time.Now, Observe: metrics.Login},
	}
}

// listen adds a listener.
func (w *wiring) listen(ctx context.Context, flag, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w (hint: stop the program that listens there, or choose another address)", flag, address, err)
	}
	w.add(part{close: func() { _ = listener.Close() }})
	return listener, nil
}

// start activates the first configuration and gets the serving certificate: with a cluster at the same time, because both
// wait for an API server that hangs.
func (w *wiring) start(ctx context.Context, documents *config.Config, found diagnostic.List) error {
	state := documents.State
	var certify errgroup.Group
	if w.access != nil {
		certify.Go(func() error { return w.addCertificates(ctx) })
	}
	err := w.reconciler.Start(ctx, documents, found)
	failed := certify.Wait()
	if err != nil {
		return err
	}
	if w.access == nil {
		failed = w.addCertificates(ctx)
	}
	if failed != nil {
		return failed
	}
	w.add(part{run: endless(func(ctx context.Context) { w.reconciler.Run(ctx, state) })})
	return nil
}

// server returns what answers requests.
func (w *wiring) server(reviews, health net.Listener, budget memoryBudget) *server.Server {
	if w.serving.clientCAs == nil {
		// Logged when serve starts without --client-ca: Gatehouse recognises an API server by its client certificate, and answers
		// questions about tokens and access to API servers only. Set --client-ca to the CA of these certificates.
		w.log.Warn("--client-ca is not set: /authenticate and /authorize reject every request")
	}
	minVersion, _ := tlsVersions(w.TLSMinVersion) // checked with the flags
	w.reviews.Bytes, w.reviews.Observe, w.reviews.Login = budget.inFlight, w.observer(), login.Handler(w.logins)
	return server.New(server.Options{
		Reviews: reviews, Connections: budget.connections, TLS: w.serving.tlsConfig(minVersion),
		HandshakeFailed: func(why server.HandshakeFailure) { w.certMetrics.HandshakeFailed(string(why)) },
		Handler:         server.Reviews(&w.current.Snapshot, w.reviews),
		Ops:             health, Metrics: promhttp.HandlerFor(w.metrics.Registry, promhttp.HandlerOpts{}),
		Debug:   w.Operations.Debug(&w.Level, w.log, w.Recording.dir, w.deciding.Load),
		Ready:   func() error { return errors.Join(w.serving.ready(), w.reconciler.Ready()) },
		Details: w.details, DrainDelay: w.DrainDelay, Log: w.log,
	})
}
