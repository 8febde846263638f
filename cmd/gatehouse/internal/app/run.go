// Package app is the composition root of the server: Run creates its parts from Options and runs them.
package app

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/certmetrics"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry/tracing"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/internal/clients"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Run reads and compiles the configuration, listens, and serves until ctx ends.
func Run(ctx context.Context, f *Options, log *slog.Logger) error {
	memory := f.Operations.memoryLimit()
	memory.apply(ctx, log)
	metrics := telemetry.New(log, build.Version())
	if f.Audit {
		metrics.AuditAuthentication()
	}
	access, err := f.access()
	if err != nil {
		return err
	}
	lookups, err := newCluster(access, log, metrics)
	if err != nil {
		return err
	}
	if lookups != nil {
		defer lookups.Close()
	}
	providers := configuration.NewIdentityProviders(log, metrics, server.KeyWaits())
	defer providers.Close()
	usage, err := f.usage(access, log)
	if err != nil {
		return err
	}
	logouts, err := f.logouts(access, log)
	if err != nil {
		return err
	}
	var revoke func(context.Context, *v1alpha1.TokenRevocationSpec) error
	if logouts != nil {
		revoke = logouts.Revoke
	}
	current := &configuration.Active{Dir: f.Config, Log: log, Metrics: metrics, Seed: maphash.MakeSeed()}
	if usage != nil {
		current.KnowTokens = usage.Know
	}
	configuration := &configuration.Reconciler{Dir: f.Config, Current: current, Cluster: lookups, Providers: providers, RefuseEmptied: f.OnEmptiedFile == EmptiedFileRefuse}
	ofCertificates := certmetrics.New(metrics.Registry, server.HandshakeFailures())
	client, err := f.certificateClient(access)
	if err != nil {
		return err
	}
	notify := f.certificateEvents(ctx, client, log, ofCertificates)
	called, err := f.registrations(access, client, notify, log)
	if err != nil {
		return err
	}
	if called.candidate != nil {
		metrics.Registry.MustRegister(called.candidate)
	}
	if called.writer != nil {
		ofCertificates.Writer(called.writer)
	}
	var reports *reporting
	load := &reviewLoad{since: time.Now()}
	if f.CustomResources {
		if reports, err = f.reports(ctx, access, called, current, load, log, metrics); err != nil {
			return err
		}
		reports.follow(configuration)
		configuration.Resources = lookups.Resources()
	}
	tracer, err := f.Operations.tracer(f.replica, log)
	if err != nil {
		return err
	}
	recording, err := f.Recording.recording(ctx, f.replica, f.ownNamespace(), access, log)
	if err != nil {
		return err
	}
	var deciding atomic.Pointer[config.Config]
	current.Activated = func(c *config.Config) {
		deciding.Store(c.Own())
		if recording != nil {
			recording.activated(c)
		}
	}
	loaded, found := configuration.Read()
	if found.Err() != nil {
		return configuration.Start(ctx, loaded, found) // which returns all problems
	}
	var listen net.ListenConfig
	reviews, err := listen.Listen(ctx, "tcp", f.Listen)
	if err != nil {
		return listenError("--listen", err)
	}
	defer func() { _ = reviews.Close() }()
	health, err := listen.Listen(ctx, "tcp", f.OpsListen)
	if err != nil {
		return listenError("--ops-listen", err)
	}
	defer func() { _ = health.Close() }()
	certify := sync.OnceValues(func() (*certificates, error) {
		return f.certificates(ctx, client, called.trusted(), notify, ofCertificates)
	})
	var connecting sync.WaitGroup
	if access != nil {
		// In parallel with Start, because both wait for an API server that hangs.
		connecting.Go(func() { _, _ = certify() }) // the error is kept
	}
	state := loaded.State
	err = configuration.Start(ctx, loaded, found)
	connecting.Wait()
	if err != nil {
		if access != nil {
			if made, failed := certify(); failed == nil {
				made.release()
			}
		}
		return err
	}

	certificates, err := certify()
	if err != nil {
		return err
	}
	if certificates.clientCAs == nil {
		log.Warn("--client-ca is not set: /authenticate rejects every request")
	}
	minVersion, _ := tlsVersions(f.TLSMinVersion) // checked with the flags

	budget := f.budget(memory, log)
	srv := server.New(server.Options{
		Connections: budget.connections,
		Reviews:     reviews, TLS: certificates.tlsConfig(minVersion), HandshakeFailed: func(why server.HandshakeFailure) { ofCertificates.HandshakeFailed(string(why)) },
		Handler: server.Reviews(&current.Snapshot, server.ReviewOptions{
			Bytes: budget.inFlight, RequireClientCertificate: f.requireClientForAll, Now: time.Now,
			Observe:  load.observe(f.Auditing.Every > 0, observer(metrics, usage, tracer)), //nolint:contextcheck // calls have contexts of their own
			Profiles: metrics.Profiles, Policies: metrics.Policies, Begin: recording.begin(),
			ReadNamespace:   readNamespace(lookups),
			CustomResources: reports.documents(current), CheckComplete: configuration.CheckComplete,
			Login: login.Handler(login.HandlerOptions{
				Current: func() *authn.Set { return current.Snapshot.Load().Authn }, Now: time.Now,
				Observe: metrics.Login, Revoke: revoke,
			}), Logout: revoke != nil,
		}),
		Debug: f.Operations.Debug(&f.Level, log, f.Recording.dir, deciding.Load),
		Ops:   health, Metrics: promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}),
		Ready: func() error { return errors.Join(certificates.ready(), configuration.Ready()) }, Details: func() []string { return slices.Concat(recording.details(), reports.details()) }, DrainDelay: f.DrainDelay, Log: log,
	})
	log.Info("serving", "version", build.Version(), "reviews", reviews.Addr().String(), "ops", health.Addr().String())

	// Background work continues until the last call is answered.
	group, groupCtx := errgroup.WithContext(ctx)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stop()
		return srv.Run(groupCtx)
	})
	certificates.run(background, group)
	called.run(background, group, certificates, f.publishesBundles(), reports.elected())
	if usage != nil {
		group.Go(func() error {
			usage.Run(background)
			return nil
		})
	}
	if logouts != nil {
		group.Go(func() error {
			logouts.Run(background)
			return nil
		})
	}
	reports.run(background, group)
	recording.run(background, group, metrics.Registry)
	if tracer != nil {
		metrics.Registry.MustRegister(tracer)
		group.Go(func() error {
			tracer.Run(background)
			return nil
		})
	}
	group.Go(func() error {
		configuration.Run(background, state)
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// newCluster returns the cluster in which policies and profiles look up objects, nil without access to one.
func newCluster(access *rest.Config, log *slog.Logger, metrics *telemetry.Telemetry) (*cluster.Cluster, error) {
	if access == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	cluster.LogLibraries(log)
	c, err := cluster.New(access, build.Version(), log)
	if err != nil {
		return nil, err
	}
	metrics.Registry.MustRegister(c)
	return c, nil
}

// readNamespace returns the function that reads the namespace of a request, nil without a cluster.
func readNamespace(c *cluster.Cluster) func(string, *clients.Client) {
	if c == nil {
		return nil
	}
	return c.ReadNamespace
}

// usage returns what records the use of access tokens in the status of custom resources.
// It is nil without these.
func (f *Options) usage(access *rest.Config, log *slog.Logger) (*tokens.ClusterUsage, error) {
	if !f.CustomResources {
		return nil, nil //nolint:nilnil // nothing is recorded
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-tokens/" + build.Version()
	return tokens.NewClusterUsage(access, log)
}

// logouts returns what keeps the revocations that issuers ask for, nil without any.
func (f *Options) logouts(access *rest.Config, log *slog.Logger) (*tokens.Logouts, error) {
	if f.BackChannelLogout == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-logouts/" + build.Version()
	return tokens.NewLogouts(access, f.BackChannelLogout, log)
}

// observer returns the observer of finished reviews. Usage and tracer may be nil.
func observer(metrics *telemetry.Telemetry, usage *tokens.ClusterUsage, tracer *tracing.Tracer) func(*review.Outcome) {
	if usage == nil && tracer == nil {
		return metrics.Review
	}
	return func(o *review.Outcome) {
		metrics.Review(o)
		if usage != nil && o.Decision == review.Allowed && o.Backend == string(authn.AccessTokens) {
			usage.Note(o.TokenID, o.Started)
		}
		if tracer != nil {
			tracer.Review(o)
		}
	}
}

// access returns the client configuration of the cluster, nil without one.
func (f *Options) access() (*rest.Config, error) {
	switch {
	case f.InCluster:
		access, err := cluster.InCluster()
		if err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
		return access, nil
	case f.Kubeconfig != "":
		access, err := cluster.FromKubeconfig(f.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return access, nil
	default:
		return nil, nil //nolint:nilnil // there is none
	}
}

// listenError is the error of a flag whose address cannot be listened on.
func listenError(flag string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w (hint: stop the program that listens there, or choose another address with %s)", flag, err, flag)
	}
	return fmt.Errorf("%s: %w", flag, err)
}
