package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/tokens"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// serveFlags are what the command line of serve says.
type serveFlags struct {
	config        string
	kubeconfig    string
	inCluster     bool
	listen        string
	opsListen     string
	tlsCert       string
	tlsKey        string
	tlsMinVersion string
	selfSigned    []string
	selfSignedDir string
	clientCA      string
	stateDir      string
	audit         bool
	inFlight      int64
	drainDelay    time.Duration
	logLevel      slog.Level
	logFormat     string
}

func newServeCommand(s streams) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --config DIR",
		Short: "Answer the API server's webhooks",
		Long: `Serve answers token reviews on /authenticate and admission reviews on /mutate
and /validate, with TLS, from the documents in a directory, and people on /login
and /whoami, who need no client certificate. Changes in the
directory are picked up without a restart, whole or not at all: a broken
configuration never replaces a working one.

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

Health and metrics are on a second listener, without TLS: /livez, /readyz and
/metrics.

SIGTERM drains: the server reports unready, closes each connection behind its
answer, goes on answering for the drain delay, and then stops.

Exit codes: 0 stopped by a signal, 2 it cannot serve: bad usage, a configuration
or a certificate that cannot be used, or an address that is taken.`,
		Example: `  # with a certificate that somebody else renews
  gatehouse serve --config /etc/gatehouse --tls-cert tls.crt --tls-key tls.key --client-ca client-ca.crt

  # on one machine, with a certificate of its own; the CA and a client
  # certificate for the API server are written to ./certs
  gatehouse serve --config ./config --listen 127.0.0.1:9443 --self-signed 127.0.0.1 --self-signed-dir ./certs

  # in a pod, with what policies look up from its cluster
  gatehouse serve --config /etc/gatehouse --in-cluster --tls-cert tls.crt --tls-key tls.key --client-ca client-ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return serve(cmd.Context(), &f, f.logger(s))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "directory of documents (required)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; its current context is the cluster in which policies and profiles look things up")
	flags.BoolVar(&f.inCluster, "in-cluster", false, "look things up in the cluster of the pod that this runs in, as its service account")
	flags.StringVar(&f.listen, "listen", ":9443", "address for reviews")
	flags.StringVar(&f.opsListen, "ops-listen", ":8080", "address for health and metrics")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file of the serving certificate and its chain, in PEM; re-read when it changes")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file of the serving certificate's key, in PEM")
	flags.StringVar(&f.tlsMinVersion, "tls-min-version", "1.3", "lowest TLS version: 1.3 or 1.2")
	flags.StringSliceVar(&f.selfSigned, "self-signed", nil, "names and addresses for a certificate made in memory, instead of --tls-cert and --tls-key")
	flags.StringVar(&f.selfSignedDir, "self-signed-dir", "", "directory to write the CA and a client certificate for the API server to, with --self-signed")
	flags.StringVar(&f.clientCA, "client-ca", "", "file of the CAs of client certificates, in PEM; /authenticate answers nobody else (default: with --self-signed-dir, the CA made there)")
	flags.BoolVar(&f.audit, "audit-authentication", false, "log every token review at level info, also those that end in a yes: who, by which source, which token's id")
	flags.StringVar(&f.stateDir, "state-dir", "", "directory to keep in when access tokens were last used; without it nobody knows")
	flags.Int64Var(&f.inFlight, "max-in-flight-bytes", 128<<20, "bytes that the reviews held in memory at one time, and decoding them, may take; more are shed")
	flags.DurationVar(&f.drainDelay, "drain-delay", 15*time.Second, "how long to go on answering after SIGTERM")
	flags.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "lowest level that is logged: debug (every review), info (denials, and what exceptions let pass), warn or error")
	flags.StringVar(&f.logFormat, "log-format", "json", "json or text")
	for name, values := range map[string][]string{
		"tls-min-version": {"1.3", "1.2"},
		"log-level":       {"debug", "info", "warn", "error"},
		"log-format":      {"json", "text"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flags exist
	}
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.MarkFlagDirname("state-dir")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// check reports everything that is wrong with the flags at once.
func (f *serveFlags) check() error {
	var problems []error
	files := f.tlsCert != "" || f.tlsKey != ""
	switch {
	case files && len(f.selfSigned) > 0:
		problems = append(problems, errors.New("--tls-cert and --self-signed exclude each other"))
	case files && (f.tlsCert == "" || f.tlsKey == ""):
		problems = append(problems, errors.New("--tls-cert and --tls-key must both be given"))
	case !files && len(f.selfSigned) == 0:
		problems = append(problems, errors.New("no certificate: give --tls-cert and --tls-key, or --self-signed with the names and addresses under which the API server calls (hint: --self-signed 127.0.0.1)"))
	}
	if f.kubeconfig != "" && f.inCluster {
		problems = append(problems, errors.New("--kubeconfig and --in-cluster exclude each other"))
	}
	if f.selfSignedDir != "" && len(f.selfSigned) == 0 {
		problems = append(problems, errors.New("--self-signed-dir needs --self-signed"))
	}
	if _, ok := tlsVersions(f.tlsMinVersion); !ok {
		problems = append(problems, fmt.Errorf("--tls-min-version %q: must be 1.3 or 1.2", f.tlsMinVersion))
	}
	if f.logFormat != "json" && f.logFormat != "text" {
		problems = append(problems, fmt.Errorf("--log-format %q: must be json or text", f.logFormat))
	}
	if f.inFlight <= review.MaxAdmissionBytes {
		problems = append(problems, fmt.Errorf("--max-in-flight-bytes %d: must be more than %d, the largest review", f.inFlight, review.MaxAdmissionBytes))
	}
	if f.drainDelay < 0 {
		problems = append(problems, fmt.Errorf("--drain-delay %s: must not be negative", f.drainDelay))
	}
	return errors.Join(problems...)
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

func (f *serveFlags) logger(s streams) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.logLevel}
	if f.logFormat == "text" {
		return slog.New(slog.NewTextHandler(s.err, o))
	}
	return slog.New(slog.NewJSONHandler(s.err, o))
}

// serve is the composition root: it reads, compiles, listens, and runs until ctx
// ends.
func serve(ctx context.Context, f *serveFlags, log *slog.Logger) error {
	metrics := telemetry.New(log, version())
	if f.audit {
		metrics.AuditAuthentication()
	}
	world, err := f.surroundings(log, metrics)
	if err != nil {
		return err
	}
	defer world.close()
	providers := newIdentityProviders(log, metrics)
	defer providers.close()
	loaded, found := config.Inspect(f.config)
	view := world.provide(ctx, loaded)
	var identities provided
	if found.Err() == nil {
		if identities, err = providers.provide(ctx, loaded); err != nil {
			return err
		}
	}
	snapshot, err := first(loaded, found)
	if err != nil {
		return unusable(f.config, err)
	}
	world.keep(view)
	providers.keep(identities)
	usage, err := f.usage(log)
	if err != nil {
		return err
	}
	current := inUse{dir: f.config, log: log, metrics: metrics, usage: usage, seed: maphash.MakeSeed()}
	defer current.reminder.Stop()
	current.use(loaded, snapshot)

	source, clientCAs, err := f.certificates(log, metrics)
	if err != nil {
		return err
	}
	minVersion, _ := tlsVersions(f.tlsMinVersion) // checked with the flags
	tlsConfig := &tls.Config{
		MinVersion:     minVersion,
		GetCertificate: source.GetCertificate,
		// The API server speaks HTTP/1.1 to a Service, and HTTP/2 to a loopback
		// URL and for token reviews.
		NextProtos: []string{"h2", "http/1.1"},
	}
	if clientCAs != nil {
		tlsConfig.ClientAuth = tls.VerifyClientCertIfGiven
		tlsConfig.GetConfigForClient = clientCAs.ConfigForClient(tlsConfig)
	} else {
		log.Warn("no --client-ca: /authenticate answers nobody")
	}

	var listen net.ListenConfig
	reviews, err := listen.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer func() { _ = reviews.Close() }()
	ops, err := listen.Listen(ctx, "tcp", f.opsListen)
	if err != nil {
		return fmt.Errorf("--ops-listen: %w", err)
	}
	defer func() { _ = ops.Close() }()
	srv := server.New(server.Options{
		Reviews: reviews, TLS: tlsConfig,
		Handler: server.Reviews(&current.snapshot, server.ReviewOptions{ //nolint:contextcheck // calls have contexts of their own
			Bytes: f.inFlight, Observe: observer(metrics, usage), Profiles: metrics.Profiles, Policies: metrics.Policies, Now: time.Now,
			Login: login.Handler(login.HandlerOptions{
				Current: func() *authn.Set { return current.snapshot.Load().Authn }, Now: time.Now,
				Observe: metrics.Login, Familiar: providers.attempts.Familiar,
			}),
		}),
		Ops: ops, Metrics: promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}),
		Ready: func() error { return errors.Join(source.Healthy(), world.ready()) }, DrainDelay: f.drainDelay, Log: log,
	})
	log.Info("serving", "version", version(), "reviews", reviews.Addr().String(), "ops", ops.Addr().String())

	// What keeps things fresh goes on until the last call is answered.
	group, groupCtx := errgroup.WithContext(ctx)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stop()
		return srv.Run(groupCtx)
	})
	group.Go(func() error { return source.Run(background) })
	if usage != nil {
		group.Go(func() error {
			usage.Run(background)
			return nil
		})
	}
	if clientCAs != nil {
		group.Go(func() error { return clientCAs.Run(background) })
	}
	group.Go(func() error {
		config.Watch(background, f.config, loaded.State, func(c *config.Config, found error) {
			current.withdraw(c, found) // Services are waited for below.
			var s *webhooks.Snapshot
			err := found
			if err == nil {
				view := world.provide(background, c)
				var of provided
				of, err = providers.provide(background, c)
				if err == nil {
					c.Policy.Previous = current.snapshot.Load().Policy
					s, err = webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy, Authn: c.Authn})
				}
				if err == nil {
					world.keep(view)
					identities = of
				}
				world.clean()
				defer providers.keep(identities)
			}
			if err != nil {
				current.keep(c, found, err)
				return
			}
			current.use(c, s)
		})
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// usage is what notes when access tokens are used, nil without a directory for it.
func (f *serveFlags) usage(log *slog.Logger) (*tokens.Usage, error) {
	if f.stateDir == "" {
		return nil, nil //nolint:nilnil // nothing is noted
	}
	usage, err := tokens.OpenUsage(f.stateDir, func(err error) { log.Error("use of access tokens", "error", err.Error()) })
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return usage, nil
}

// observer is shown every finished review.
func observer(metrics *telemetry.Telemetry, usage *tokens.Usage) func(*review.Outcome) {
	if usage == nil {
		return metrics.Review
	}
	return func(o *review.Outcome) {
		metrics.Review(o)
		if o.Decision == review.Allowed && o.Backend == string(authn.AccessTokens) {
			usage.Note(o.TokenID, o.Started)
		}
	}
}

// first compiles the configuration that a server starts with. There is none that
// could serve on in its place, so that expressions of policies that do not compile
// do not keep the server from starting: every other gate would be open, or
// everything refused.
func first(c *config.Config, found finding.List) (*webhooks.Snapshot, error) {
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

func (f *serveFlags) surroundings(log *slog.Logger, metrics *telemetry.Telemetry) (*surroundings, error) {
	var (
		access *rest.Config
		err    error
	)
	switch {
	case f.inCluster:
		if access, err = cluster.InCluster(); err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
	case f.kubeconfig != "":
		if access, err = cluster.FromKubeconfig(f.kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	default:
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

// certificates makes the source of serving certificates, and the pool of CAs
// for client certificates, which is nil if nobody named any.
func (f *serveFlags) certificates(log *slog.Logger, metrics *telemetry.Telemetry) (certs.Source, *certs.ClientCAs, error) {
	notify := func(e certs.Event) {
		metrics.CertificateEnds(e.Subject, e.NotAfter)
		logCertificate(log, e)
	}
	clientCA := f.clientCA
	var source certs.Source
	if len(f.selfSigned) > 0 {
		own, err := certs.NewSelfSigned(certs.SelfSignedConfig{Hosts: f.selfSigned, Notify: notify})
		if err != nil {
			return nil, nil, err
		}
		if f.selfSignedDir != "" {
			if err := own.WriteDir(f.selfSignedDir); err != nil {
				return nil, nil, err
			}
			if clientCA == "" {
				clientCA = filepath.Join(f.selfSignedDir, certs.CAFile)
			}
		}
		source = own
	} else {
		files, err := certs.NewFiles(certs.FilesConfig{CertFile: f.tlsCert, KeyFile: f.tlsKey, Notify: notify})
		if err != nil {
			return nil, nil, err
		}
		source = files
	}
	if clientCA == "" {
		return source, nil, nil
	}
	pool, err := certs.NewClientCAs(certs.ClientCAsConfig{File: clientCA, Notify: notify})
	if err != nil {
		return nil, nil, err
	}
	return source, pool, nil
}

func logCertificate(log *slog.Logger, e certs.Event) {
	attrs := []any{"subject", e.Subject, "notAfter", e.NotAfter, "sha256", e.SHA256}
	if len(e.Warnings) > 0 {
		attrs = append(attrs, "warnings", strings.Join(e.Warnings, "; "))
	}
	switch {
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
	list, ok := errors.AsType[finding.List](err)
	if !ok {
		log.Error("configuration", "error", err.Error())
		return
	}
	for _, f := range list {
		logFinding(log, f)
	}
}

func logFinding(log *slog.Logger, f finding.Finding) {
	f = f.Redacted()
	write := log.Error
	if f.Severity == finding.Warning {
		write = log.Warn
	}
	write("configuration", "source", f.Source, "object", f.Object, "field", f.Field, "finding", f.Message, "hint", f.Hint)
}
