package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/tokens"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/debug"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/source/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry/tracing"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// serveFlags are what the command line of serve says.
type serveFlags struct {
	certificateFlags

	operations operationFlags

	config     string
	kubeconfig string
	inCluster  bool
	namespace  string
	// customResources tells that they are configuration beside the directory.
	customResources bool
	// onEmptied is what becomes of a change that leaves a file without documents.
	onEmptied string
	// countPods is how long after one count of the pods of profiles the next begins, 0 for none.
	countPods     time.Duration
	listen        string
	opsListen     string
	tlsMinVersion string
	stateDir      string
	audit         bool
	// inFlight and connections are 0 for what fits.
	inFlight    int64
	connections int
	drainDelay  time.Duration
	logLevel    string
	// level is that of the log from the start on; it can be changed while this runs.
	level     slog.LevelVar
	logFormat string
}

// usualNamespace is that of an install that does not say otherwise.
const usualNamespace = "gatehouse-system"

// What is listened at unless told otherwise, on all addresses.
const usualListen, usualOpsListen = ":9443", ":8080"

// What to do when a file has lost all its documents.
const emptiedWarn, emptiedRefuse = "warn", "refuse"

func newServeCommand(s streams) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve [--config DIR] [--custom-resources]",
		Short: "Answer the API server's webhooks",
		Long: `Serve answers token reviews on /authenticate and admission reviews on /mutate
and /validate, with TLS, from the documents in a directory, and people on /login
and /whoami, who need no client certificate. Changes in the
directory are picked up without a restart, whole or not at all: a broken
configuration never replaces a working one. A directory that loses all its
documents is broken, too. If a file loses all of its documents, the log warns and
the rest is used; with --on-emptied-file refuse the configuration in use stays.
Delete a file to remove what is in it.

At the start there is no working one. Documents with errors then make the
command print every finding and exit with 2. Policies with expressions that do
not compile do not, because every other gate would be open, or everything
refused: for what they match, their failurePolicy decides, exceptions with
errors let nothing pass, and /readyz says ok. The log says so every ten minutes,
and gatehouse_config_last_load_successful in the metrics is 0.

With --kubeconfig or --in-cluster, what the documents look up comes from the
cluster: namespaces, params and presets are watched, those that the documents
name and no others, and the authorizer of policies asks the API server.
Namespaces and other objects in the directory are then not looked at.

With --custom-resources those of Gatehouse in the cluster are documents too,
beside a directory or without one. They come and go by kubectl apply, and their
status tells what became of them: one with errors keeps no other from use. The
directory may then be empty at the start.

The serving certificate comes from files that somebody else renews (--tls-cert),
from a CA of its own (--self-signed) that replicas share in a Secret or that is
kept in a directory, or from cert-manager (--cert-manager). With --registration
it is ready only once the API server can trust the certificate, by what is read
back from the webhook configurations; with --publish-ca-bundle it writes their
caBundle itself, and no call fails while one CA follows another. On a
full or read-only disk it starts if the CA can be read: the log says what cannot
be written.

Health and metrics are on a second listener, without TLS: /livez, /readyz and
/metrics. It has /log-level too, and with --profiling /debug/pprof/, for callers
on the same host alone.

SIGTERM drains: the server reports unready, closes each connection behind its
answer, goes on answering for the drain delay, and then stops.

Exit codes: 0 stopped by a signal, 2 it cannot serve: bad usage, a configuration
or a certificate that cannot be used, or an address that is taken.`,
		Example: `  # with a certificate that somebody else renews
  gatehouse serve --config /etc/gatehouse --tls-cert tls.crt --tls-key tls.key --client-ca client-ca.crt

  # on one machine, with a certificate of its own; the CA and a client
  # certificate for the API server are written to ./gatehouse-certs
  gatehouse serve --config ./config --listen 127.0.0.1:9443 --self-signed 127.0.0.1 --self-signed-dir ./gatehouse-certs

  # in a pod, one of several replicas, with a CA that they share in a Secret and
  # keep in the webhook configurations "gatehouse"
  gatehouse serve --config /etc/gatehouse --in-cluster --self-signed gatehouse.gatehouse-system.svc \
    --self-signed-secret gatehouse-system/gatehouse-ca --client-ca client-ca.crt

  # the same, with custom resources and no directory
  gatehouse serve --custom-resources --in-cluster --self-signed gatehouse.gatehouse-system.svc \
    --self-signed-secret gatehouse-system/gatehouse-ca --client-ca client-ca.crt

  # in a pod, with a certificate that cert-manager issues
  gatehouse serve --config /etc/gatehouse --in-cluster --cert-manager gatehouse-system/gatehouse --client-ca client-ca.crt`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return serve(cmd.Context(), &f, logger(&f, s))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "directory of documents (required without --custom-resources)")
	flags.StringVar(&f.onEmptied, "on-emptied-file", emptiedWarn, "what to do when a file of --config is still there and has lost all its documents: warn (use the rest) or refuse (keep the configuration in use)")
	flags.BoolVar(&f.customResources, "custom-resources", false, "use the custom resources of the cluster as documents too: SidecarProfiles, AdmissionPolicies and their bindings, PolicyExceptions, AccessTokens and TokenRevocations")
	flags.StringVar(&f.namespace, "namespace", "", "namespace that this runs in, with --custom-resources (default: that of the service account, else "+usualNamespace+")")
	flags.DurationVar(&f.countPods, "count-pods-every", 0, "how long after one count of the pods that profiles match the next one begins, such as 5m, for the status of SidecarProfiles, with --custom-resources; it takes the right to list pods in all namespaces (default: no counts)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; its current context is the cluster in which policies and profiles look things up")
	flags.BoolVar(&f.inCluster, "in-cluster", false, "look things up in the cluster of the pod that this runs in, as its service account")
	flags.StringVar(&f.listen, "listen", usualListen, "address for reviews")
	flags.StringVar(&f.opsListen, "ops-listen", usualOpsListen, "address for health and metrics")
	addCertificateFlags(&f.certificateFlags, cmd)
	addOperationFlags(&f.operations, cmd)
	flags.StringVar(&f.tlsMinVersion, "tls-min-version", "1.3", "lowest TLS version: 1.3 or 1.2")
	flags.BoolVar(&f.audit, "audit-authentication", false, "log every token review at level info, also those that end in a yes: who, by which source, which token's id")
	flags.StringVar(&f.stateDir, "state-dir", "", "directory to keep in when access tokens were last used; without it nobody knows, but for custom resources, whose status tells")
	flags.Int64Var(&f.inFlight, "max-in-flight-bytes", 0, "bytes that reviews in progress, and decoding them, may take in memory at one time, more than 33554432; more reviews are shed (default: what the memory limit leaves, 128 MiB without one)")
	flags.IntVar(&f.connections, "max-connections", 0, "connections without a client certificate that may be open at one time, at least 16 (default: what the memory limit and that of open files leave, at most 2048)")
	flags.DurationVar(&f.drainDelay, "drain-delay", 15*time.Second, "how long to go on answering after SIGTERM")
	flags.StringVar(&f.logLevel, "log-level", "info", "lowest level that is logged: debug (every review), info (denials, and what exceptions let pass), warn or error")
	flags.StringVar(&f.logFormat, "log-format", "json", "json or text")
	for name, values := range map[string][]string{
		"tls-min-version": {"1.3", "1.2"},
		"on-emptied-file": {emptiedWarn, emptiedRefuse},
		"log-level":       debug.Levels(),
		"log-format":      {"json", "text"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flags exist
	}
	for _, name := range []string{"namespace", "count-pods-every", "listen", "ops-listen", "max-in-flight-bytes", "max-connections", "drain-delay"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	_ = cmd.MarkFlagFilename("kubeconfig")
	for _, name := range []string{"config", "state-dir"} {
		_ = cmd.MarkFlagDirname(name)
	}
	return cmd
}

// check reports everything that is wrong with the flags at once.
func (f *serveFlags) check() error {
	problems := append(f.certificateFlags.check(f.inCluster || f.kubeconfig != ""), f.operations.check()...)
	if f.kubeconfig != "" && f.inCluster {
		problems = append(problems, errors.New("--kubeconfig and --in-cluster exclude each other"))
	}
	switch {
	case f.config == "" && !f.customResources:
		problems = append(problems, errors.New("no configuration: give --config DIR, or --custom-resources"))
	case f.customResources && !f.inCluster && f.kubeconfig == "":
		problems = append(problems, errors.New("--custom-resources needs --in-cluster or --kubeconfig"))
	}
	problems = append(problems, f.checkNames()...)
	for _, address := range []struct{ flag, text, usual string }{{"listen", f.listen, usualListen}, {"ops-listen", f.opsListen, usualOpsListen}} {
		if !isAddress(address.text) {
			problems = append(problems, fmt.Errorf("--%s %.100q: must be HOST:PORT, with a port from 0 to 65535 (hint: %s is on all addresses)", address.flag, address.text, address.usual))
		}
	}
	if _, ok := tlsVersions(f.tlsMinVersion); !ok {
		problems = append(problems, fmt.Errorf("--tls-min-version %q: must be 1.3 or 1.2", f.tlsMinVersion))
	}
	if f.onEmptied != emptiedWarn && f.onEmptied != emptiedRefuse {
		problems = append(problems, fmt.Errorf("--on-emptied-file %.100q: must be %s or %s", f.onEmptied, emptiedWarn, emptiedRefuse))
	}
	if err := new(slog.LevelVar).UnmarshalText([]byte(f.logLevel)); err != nil {
		problems = append(problems, fmt.Errorf("--log-level %.100q: must be %s", f.logLevel, oneLevel(f.logLevel)))
	}
	if f.logFormat != "json" && f.logFormat != "text" {
		problems = append(problems, fmt.Errorf("--log-format %q: must be json or text", f.logFormat))
	}
	if f.given("max-in-flight-bytes") && f.inFlight <= review.MaxAdmissionBytes {
		problems = append(problems, fmt.Errorf("--max-in-flight-bytes %d: must be more than %d, the largest review (hint: leave it out for what fits)", f.inFlight, review.MaxAdmissionBytes))
	}
	if f.given("max-connections") && f.connections < leastConnections {
		problems = append(problems, fmt.Errorf("--max-connections %d: must be at least %d (hint: leave it out for what fits)", f.connections, leastConnections))
	}
	if f.countPods < 0 {
		problems = append(problems, fmt.Errorf("--count-pods-every %s: must not be negative (hint: 0 for no counts)", f.countPods))
	}
	if f.drainDelay < 0 {
		problems = append(problems, fmt.Errorf("--drain-delay %s: must not be negative", f.drainDelay))
	}
	return errors.Join(problems...)
}

// checkNames reports what is wrong with the flags that are for custom resources
// alone, and with the names that an install and a replica of it have in the cluster.
func (f *serveFlags) checkNames() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, flag := range []string{"namespace", "count-pods-every"} {
		if f.given(flag) && !f.customResources {
			problem("--%s needs --custom-resources", flag)
		}
	}
	if f.given("namespace") {
		if wrong := validation.IsDNS1123Label(f.namespace); f.namespace == "" {
			problem("--namespace: must not be empty (hint: leave it out, or look where its value comes from)")
		} else if len(wrong) > 0 {
			problem("--namespace %.100q: is no name of a namespace: %s (hint: %s)", f.namespace, wrong[0], usualNamespace)
		}
	}
	// The Lease by which a replica reports on custom resources is called after it. The
	// others hold its name, as any text.
	if wrong := validation.IsDNS1123Subdomain(f.replica); f.customResources && f.replica != "" && len(wrong) > 0 {
		problem("--replica %.100q: is no name that a pod can have: %s (hint: leave it out for the host name)", f.replica, wrong[0])
	} else if !utf8.ValidString(f.replica) || strings.ContainsFunc(f.replica, func(r rune) bool { return !strconv.IsPrint(r) }) {
		problem("--replica %.100q: must be text that can be printed", f.replica)
	}
	return problems
}

// isAddress tells whether a text has the form of an address to listen at. Whether it
// can be had only listening tells.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}

func tlsVersions(text string) (uint16, bool) {
	switch text {
	case "1.3":
		return tls.VersionTLS13, true
	case "1.2":
		return tls.VersionTLS12, true
	default:
		return 0, false
	}
}

// logger returns the log of the server, as the flags say.
func logger(f *serveFlags, s streams) *slog.Logger {
	_ = f.level.UnmarshalText([]byte(f.logLevel)) // checked with the flags
	o := &slog.HandlerOptions{Level: &f.level}
	if f.logFormat == "text" {
		return slog.New(slog.NewTextHandler(s.err, o))
	}
	return slog.New(slog.NewJSONHandler(s.err, o))
}

// serve is the composition root: it reads, compiles, listens, and runs until ctx
// ends.
func serve(ctx context.Context, f *serveFlags, log *slog.Logger) error {
	memory := f.operations.memoryLimit(log)
	memory.apply()
	metrics := telemetry.New(log, version())
	if f.audit {
		metrics.AuditAuthentication()
	}
	access, err := f.access()
	if err != nil {
		return err
	}
	world, err := surround(access, log, metrics)
	if err != nil {
		return err
	}
	defer world.close()
	providers := newIdentityProviders(log, metrics)
	defer providers.close()
	usage, err := f.usage(access, log)
	if err != nil {
		return err
	}
	current := &inUse{dir: f.config, log: log, metrics: metrics, usage: usage, seed: maphash.MakeSeed()}
	defer current.reminder.Stop()
	configuration := &configurator{dir: f.config, current: current, world: world, providers: providers, refuseEmptied: f.onEmptied == emptiedRefuse}
	var reports *reporting
	if f.customResources {
		if reports, err = f.reports(ctx, access, world, current, log, metrics); err != nil {
			return err
		}
		reports.follow(configuration)
		configuration.resources = world.cluster.Resources()
	}
	tracer, err := f.operations.tracer(f.replica, log)
	if err != nil {
		return err
	}
	loaded, found := configuration.inspect()
	if found.Err() != nil {
		return configuration.start(ctx, loaded, found) // which says what is wrong
	}
	// Before anything makes this replica known to the others, which would wait for one
	// that cannot serve.
	var listen net.ListenConfig
	reviews, err := listen.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer func() { _ = reviews.Close() }()
	health, err := listen.Listen(ctx, "tcp", f.opsListen)
	if err != nil {
		return fmt.Errorf("--ops-listen: %w", err)
	}
	defer func() { _ = health.Close() }()
	certify := sync.OnceValues(func() (*certificates, error) { return f.certificates(ctx, access, log, metrics) })
	var asking sync.WaitGroup
	if access != nil {
		// An API server that hangs keeps this waiting, and what comes next too.
		asking.Go(func() { _, _ = certify() }) // the error is kept
	}
	err = configuration.start(ctx, loaded, found)
	asking.Wait()
	if err != nil {
		if access != nil {
			if made, failed := certify(); failed == nil {
				made.leave(ctx)
			}
		}
		return err
	}

	certificates, err := certify()
	if err != nil {
		return err
	}
	if certificates.clientCAs == nil {
		log.Warn("no --client-ca: /authenticate answers nobody")
	}
	minVersion, _ := tlsVersions(f.tlsMinVersion) // checked with the flags

	budget := f.budget(memory, log)
	srv := server.New(server.Options{
		Connections: budget.connections,
		Reviews:     reviews, TLS: certificates.tlsConfig(minVersion), HandshakeFailed: metrics.HandshakeFailed,
		Handler: server.Reviews(&current.snapshot, server.ReviewOptions{
			Bytes: budget.inFlight, RequireClientCertificate: f.requireClientForAll, Now: time.Now,
			Observe:  observer(metrics, usage, tracer), //nolint:contextcheck // calls have contexts of their own
			Profiles: metrics.Profiles, Policies: metrics.Policies, TraceParents: tracer != nil,
			ReadNamespace: world.readNamespace(),
			Documents:     reports.documents(current), Whole: configuration.whole,
			Login: login.Handler(login.HandlerOptions{
				Current: func() *authn.Set { return current.snapshot.Load().Authn }, Now: time.Now,
				Observe: metrics.Login, Attempts: providers.attempts,
			}),
		}),
		Debug: f.operations.debug(&f.level, log),
		Ops:   health, Metrics: promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}),
		Ready: func() error { return errors.Join(certificates.ready(), configuration.ready()) }, DrainDelay: f.drainDelay, Log: log,
	})
	log.Info("serving", "version", version(), "reviews", reviews.Addr().String(), "ops", health.Addr().String())

	// What keeps things fresh goes on until the last call is answered.
	group, groupCtx := errgroup.WithContext(ctx)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stop()
		return srv.Run(groupCtx)
	})
	certificates.run(background, group)
	for _, one := range usage {
		group.Go(func() error {
			one.Run(background)
			return nil
		})
	}
	reports.run(background, group)
	group.Go(func() error {
		memory.run(background)
		return nil
	})
	if tracer != nil {
		metrics.Registry.MustRegister(tracer)
		group.Go(func() error {
			tracer.Run(background)
			return nil
		})
	}
	group.Go(func() error {
		configuration.run(background, loaded)
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// useNotes is what notes when access tokens are used.
type useNotes []interface {
	// Know is told which tokens there are.
	Know([]authn.Token)
	// Note is told of a use. It waits for nobody.
	Note(id string, at time.Time)
	// Run keeps what was noted until the context is done.
	Run(context.Context)
}

// usage notes into a directory, if there is one for it, and into the status of
// custom resources.
func (f *serveFlags) usage(access *rest.Config, log *slog.Logger) (useNotes, error) {
	var all useNotes
	if f.stateDir != "" {
		one, err := tokens.OpenUsage(f.stateDir, func(err error) { log.Error("use of access tokens", "error", err.Error()) })
		if err != nil {
			return nil, fmt.Errorf("--state-dir: %w", err)
		}
		all = append(all, one)
	}
	if f.customResources {
		access = rest.CopyConfig(access)
		access.UserAgent = "gatehouse-tokens/" + version()
		one, err := tokens.NewClusterUsage(access, log)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// observer is shown every finished review. Tracer may be nil.
func observer(metrics *telemetry.Telemetry, usage useNotes, tracer *tracing.Tracer) func(*review.Outcome) {
	if len(usage) == 0 && tracer == nil {
		return metrics.Review
	}
	return func(o *review.Outcome) {
		metrics.Review(o)
		if o.Decision == review.Allowed && o.Backend == string(authn.AccessTokens) {
			for _, one := range usage {
				one.Note(o.TokenID, o.Started)
			}
		}
		if tracer != nil {
			tracer.Review(o)
		}
	}
}

// first compiles the configuration that a server starts with. There is none that
// could serve on in its place, so that expressions of policies that do not compile
// do not keep the server from starting: every other gate would be open, or
// everything refused.
func first(c *config.Config, found diagnostic.List) (*webhooks.Snapshot, error) {
	if found.Err() == nil {
		c.Policy.KeepBroken = true
		snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy, Authn: c.Authn})
		c.Policy.KeepBroken = false
		if err == nil {
			return snapshot, nil
		}
	}
	_, found = compiled(c, found)
	return nil, found.Err()
}

// surroundings are the cluster in which policies and profiles look things up.
// Without one, they look into the directory.
type surroundings struct {
	// cluster is nil without.
	cluster *cluster.Cluster
	// view is that of the configuration in use.
	view *cluster.View
}

// access is how to reach the cluster, nil without one.
func (f *serveFlags) access() (*rest.Config, error) {
	switch {
	case f.inCluster:
		access, err := cluster.InCluster()
		if err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
		return access, nil
	case f.kubeconfig != "":
		access, err := cluster.FromKubeconfig(f.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return access, nil
	default:
		return nil, nil //nolint:nilnil // there is none
	}
}

func surround(access *rest.Config, log *slog.Logger, metrics *telemetry.Telemetry) (*surroundings, error) {
	if access == nil {
		return &surroundings{}, nil
	}
	cluster.LogLibraries(log)
	c, err := cluster.New(access, version(), log)
	if err != nil {
		return nil, err
	}
	metrics.Registry.MustRegister(c)
	return &surroundings{cluster: c}, nil
}

// provide makes a configuration look things up in the cluster, and gives these a
// moment to be read before it is used. At a start, reviews are not asked for
// before they are; later, what is not there in time is "could not tell".
func (s *surroundings) provide(ctx context.Context, c *config.Config) *cluster.View {
	if s.cluster == nil {
		return nil
	}
	view := s.cluster.Provide(&c.Policy, &c.Sidecar) //nolint:contextcheck // what is watched lives longer than this call
	const moment = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	_ = view.Wait(ctx) // what is missing is logged and measured by the cluster
	return view
}

// readNamespace reads namespaces of requests, nil without a cluster.
func (s *surroundings) readNamespace() func(string, netip.Prefix, bool) {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.ReadNamespace
}

// keep notes what belongs to the configuration in use.
func (s *surroundings) keep(view *cluster.View) { s.view = view }

// clean stops what the configuration in use does not look up.
func (s *surroundings) clean() {
	if s.cluster != nil {
		s.cluster.Keep(s.view)
	}
}

// ready tells what has not been read since the start.
func (s *surroundings) ready() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Ready()
}

func (s *surroundings) close() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

func logCertificate(log *slog.Logger, e certs.Event) {
	attrs := []any{"subject", e.Subject}
	if !e.NotAfter.IsZero() {
		attrs = append(attrs, "notAfter", e.NotAfter, "sha256", e.SHA256)
	}
	if e.Object.Kind != "" {
		attrs = append(attrs, "object", e.Object.Kind+" "+strings.TrimPrefix(e.Object.Namespace+"/"+e.Object.Name, "/"))
	}
	if len(e.Warnings) > 0 {
		attrs = append(attrs, "warnings", strings.Join(e.Warnings, "; "))
	}
	if e.Message != "" {
		attrs = append(attrs, "what", e.Message)
	}
	if e.Reason != "" {
		attrs = append(attrs, "reason", e.Reason)
	}
	switch {
	case errors.Is(e.Err, certs.ErrWaiting):
		log.Info("certificate", append(attrs, "waits", e.Err.Error())...)
	case e.Err != nil:
		log.Error("certificate", append(attrs, "error", e.Err.Error())...)
	case len(e.Warnings) > 0:
		log.Warn("certificate", attrs...)
	default:
		log.Info("certificate", attrs...)
	}
}

// logFindings logs each finding on a line of its own.
func logFindings(log *slog.Logger, err error) {
	list, ok := errors.AsType[diagnostic.List](err)
	if !ok {
		log.Error("configuration", "error", err.Error())
		return
	}
	for _, f := range list {
		logFinding(log, f)
	}
}

func logFinding(log *slog.Logger, f diagnostic.Diagnostic) {
	f = f.Redacted()
	write := log.Error
	if f.Severity == diagnostic.Warning {
		write = log.Warn
	}
	write("configuration", "source", f.Source, "object", f.Object, "field", f.Field, "finding", f.Message, "hint", f.Hint)
}
