package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
)

// certificateFlags are what the command line of serve says about certificates:
// what is served, who is told of its CA, and whose client certificates are good.
type certificateFlags struct {
	tlsCert, tlsKey string

	selfSigned                      []string
	selfSignedDir, selfSignedSecret string
	caDuration, duration            time.Duration

	certManager       string
	certManagerHosts  []string
	certManagerIssuer string

	registrations []string
	publish       bool
	hold          time.Duration
	replica       string

	clientCA            string
	requireClientForAll bool

	// given tells of a flag whether it was, also without a value.
	given func(name string) bool
}

const defaultRegistration = "gatehouse"

// shortestLife is that of a certificate, whose ends are whole seconds.
const shortestLife = time.Second

// firstLook bounds what is asked of the API server before anything is served: one
// that hangs must not keep /livez from answering.
const firstLook = 3 * time.Second

// addCertificateFlags adds the flags to a command.
func addCertificateFlags(f *certificateFlags, cmd *cobra.Command) {
	flags := cmd.Flags()
	f.given = flags.Changed
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file of the serving certificate and its chain, in PEM; re-read when it changes")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file of the serving certificate's key, in PEM")
	flags.StringSliceVar(&f.selfSigned, "self-signed", nil, "names and addresses for certificates of a CA of its own, instead of --tls-cert and --tls-key")
	flags.StringVar(&f.selfSignedSecret, "self-signed-secret", "", "Secret to keep the CA in, NAMESPACE/NAME, shared by all replicas, with --self-signed")
	flags.StringVar(&f.selfSignedDir, "self-signed-dir", "", "directory to keep the CA in, and a client certificate for the API server, with --self-signed")
	flags.DurationVar(&f.caDuration, "self-signed-ca-duration", certs.DefaultCALife, "how long a CA is good for, with --self-signed; a new one comes after two thirds of that")
	flags.DurationVar(&f.duration, "self-signed-duration", certs.DefaultLeafLife, "how long a serving certificate is good for, with --self-signed; it is renewed after two thirds of that")
	flags.StringVar(&f.certManager, "cert-manager", "", "Certificate of cert-manager, NAMESPACE/NAME, to serve what it issues, instead of --tls-cert and --tls-key")
	flags.StringSliceVar(&f.certManagerHosts, "cert-manager-hosts", nil, "names and addresses to make the Certificate for, with --cert-manager; without them it is used as it is")
	flags.StringVar(&f.certManagerIssuer, "cert-manager-issuer", "", "who issues it, [Issuer/|ClusterIssuer/]NAME, with --cert-manager-hosts (default: a CA of its own, which is made)")
	flags.StringSliceVar(&f.registrations, "registration", nil, "webhook configurations that must trust the serving certificate before this is ready: NAME, mutating/NAME or validating/NAME; empty for none (default \""+defaultRegistration+"\" with --self-signed-secret and --cert-manager)")
	flags.BoolVar(&f.publish, "publish-ca-bundle", false, "write the CA into the caBundle of each --registration, and keep it there (default true with --self-signed-secret)")
	flags.DurationVar(&f.hold, "rotation-hold", rotation.DefaultHold, "how long a new CA is trusted by every --registration before a certificate of it is served")
	flags.StringVar(&f.replica, "replica", "", "name of this replica, unlike that of any other (default: the host name, which is that of the pod)")
	flags.StringVar(&f.clientCA, "client-ca", "", "file of the CAs of client certificates, in PEM; /authenticate answers nobody else (default: with --self-signed-dir, the CA made there)")
	flags.BoolVar(&f.requireClientForAll, "require-client-certificate", false, "make /mutate and /validate too answer only callers with a client certificate of --client-ca")
	for _, name := range []string{
		"self-signed", "self-signed-secret", "self-signed-ca-duration", "self-signed-duration",
		"cert-manager", "cert-manager-hosts", "cert-manager-issuer", "registration", "rotation-hold", "replica",
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // the flags exist, here and below
	}
	_ = cmd.MarkFlagDirname("self-signed-dir")
	for _, name := range []string{"tls-cert", "tls-key", "client-ca"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

// check reports everything that is wrong with the flags.
func (f *certificateFlags) check(cluster bool) []error {
	problems := f.checkSource()
	problems = append(problems, f.checkNeeds(cluster)...)
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if f.given("self-signed-dir") && f.given("self-signed-secret") {
		problem("--self-signed-dir and --self-signed-secret exclude each other: the CA is kept in one place")
	}
	if f.given("publish-ca-bundle") && f.publish {
		switch {
		case f.given("tls-cert"):
			problem("--publish-ca-bundle does not go with --tls-cert: whoever renews the files knows the CA")
		case f.given("self-signed") && !f.given("self-signed-secret") && !f.given("self-signed-dir"):
			problem("--publish-ca-bundle needs a CA that outlives this process: give --self-signed-secret or --self-signed-dir")
		case len(f.names()) == 0:
			problem("--publish-ca-bundle needs --registration")
		}
	}
	if _, _, err := namespacedName(f.selfSignedSecret); err != nil {
		problem("--self-signed-secret: %w (hint: %s)", err, defaultCertsSecret)
	}
	if _, _, err := namespacedName(f.certManager); err != nil {
		problem("--cert-manager: %w (hint: %s/%s)", err, usualNamespace, defaultRegistration)
	}
	if _, err := f.issuer(); err != nil {
		problem("--cert-manager-issuer: %w", err)
	}
	if _, err := f.parsedRegistrations(); err != nil {
		problems = append(problems, err)
	}
	for _, life := range []struct {
		flag string
		time.Duration
	}{{"--self-signed-duration", f.duration}, {"--self-signed-ca-duration", f.caDuration}} {
		if life.Duration < shortestLife {
			problem("%s %s: must be at least %s", life.flag, life.Duration, shortestLife)
		}
	}
	if f.caDuration < 3*f.duration {
		problem("--self-signed-ca-duration %s: must be at least three times --self-signed-duration, which is %s: a CA signs for the first two thirds of its life", f.caDuration, f.duration)
	}
	if f.hold <= 0 {
		problem("--rotation-hold %s: must be more than 0", f.hold)
	}
	return problems
}

// checkSource reports flags that say where the certificate comes from more than
// once, by half or not at all.
func (f *certificateFlags) checkSource() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, text := range []struct {
		flag  string
		empty bool
	}{
		{"tls-cert", f.tlsCert == ""},
		{"tls-key", f.tlsKey == ""},
		{"self-signed", len(f.selfSigned) == 0},
		{"self-signed-secret", f.selfSignedSecret == ""},
		{"self-signed-dir", f.selfSignedDir == ""},
		{"cert-manager", f.certManager == ""},
		{"cert-manager-hosts", len(f.certManagerHosts) == 0},
		{"cert-manager-issuer", f.certManagerIssuer == ""},
		{"replica", f.replica == ""},
		{"client-ca", f.clientCA == ""},
	} {
		if text.empty && f.given(text.flag) {
			problem("--%s: must not be empty (hint: leave it out, or look where its value comes from)", text.flag)
		}
	}
	files := f.given("tls-cert") || f.given("tls-key")
	var sources []string
	if files {
		sources = append(sources, "--tls-cert")
	}
	for _, flag := range []string{"self-signed", "cert-manager"} {
		if f.given(flag) {
			sources = append(sources, "--"+flag)
		}
	}
	switch {
	case len(sources) == 2:
		problem("%s and %s exclude each other", sources[0], sources[1])
	case len(sources) > 2:
		problem("%s exclude each other", strings.Join(sources, ", "))
	case files && (!f.given("tls-cert") || !f.given("tls-key")):
		problem("--tls-cert and --tls-key must both be given")
	case len(sources) == 0:
		problem("no certificate: give --tls-cert and --tls-key, --cert-manager, or --self-signed with the names and addresses under which the API server calls (hint: --self-signed 127.0.0.1)")
	}
	return problems
}

// checkNeeds reports flags that do nothing without others.
func (f *certificateFlags) checkNeeds(cluster bool) []error {
	const (
		anyCluster = "--in-cluster or --kubeconfig"
		hold       = "--self-signed or --registration"
		shared     = "--self-signed-secret, --self-signed-dir, --cert-manager, --registration or --custom-resources"
	)
	var (
		problems []error
		looked   = len(f.names()) > 0
		share    = looked || f.given("self-signed-secret") || f.given("self-signed-dir") || f.given("cert-manager")
	)
	for _, needs := range []struct {
		flag  string
		has   bool
		other string
	}{
		{"self-signed-dir", f.given("self-signed"), "--self-signed"},
		{"self-signed-secret", f.given("self-signed"), "--self-signed"},
		{"self-signed-secret", cluster, anyCluster},
		{"self-signed-duration", f.given("self-signed"), "--self-signed"},
		{"self-signed-ca-duration", f.given("self-signed"), "--self-signed"},
		{"cert-manager", cluster, anyCluster},
		{"registration", cluster || !looked, anyCluster},
		{"cert-manager-hosts", f.given("cert-manager"), "--cert-manager"},
		{"cert-manager-issuer", f.given("cert-manager-hosts"), "--cert-manager-hosts"},
		{"rotation-hold", looked || f.given("self-signed"), hold},
		{"replica", share || f.given("custom-resources"), shared},
		{"require-client-certificate", !f.requireClientForAll || f.given("client-ca") || f.given("self-signed-dir"), "--client-ca"},
	} {
		if f.given(needs.flag) && !needs.has {
			problems = append(problems, fmt.Errorf("--%s needs %s", needs.flag, needs.other))
		}
	}
	return problems
}

// namespacedName takes NAMESPACE/NAME apart. Nothing is none.
func namespacedName(text string) (namespace, name string, err error) {
	if text == "" {
		return "", "", nil
	}
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("%.100q must be NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}

// names are the webhook configurations that are looked at. Whoever else writes
// their bundles, they are the same.
func (f *certificateFlags) names() []string {
	if !f.given("registration") && (f.selfSignedSecret != "" || f.certManager != "") {
		return []string{defaultRegistration}
	}
	return f.registrations
}

// publishes tells whether to write the CA into them.
func (f *certificateFlags) publishes() bool {
	if f.given("publish-ca-bundle") {
		return f.publish
	}
	return f.selfSignedSecret != "" && len(f.names()) > 0
}

func (f *certificateFlags) parsedRegistrations() ([]cabundle.Registration, error) {
	var (
		list     []cabundle.Registration
		problems []error
	)
	for _, name := range f.names() {
		r, err := cabundle.ParseRegistration(name)
		if err != nil {
			problems = append(problems, fmt.Errorf("--registration: %w", err))
		}
		list = append(list, r)
	}
	return list, errors.Join(problems...)
}

// issuer is who issues with cert-manager, nil for a CA of its own.
func (f *certificateFlags) issuer() (*cmmeta.IssuerReference, error) {
	if f.certManagerIssuer == "" {
		return nil, nil //nolint:nilnil // a CA of its own
	}
	kind, name, found := strings.Cut(f.certManagerIssuer, "/")
	if !found {
		kind, name = "Issuer", kind
	}
	if kind != "Issuer" && kind != "ClusterIssuer" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, fmt.Errorf("%.100q must be NAME, Issuer/NAME or ClusterIssuer/NAME", f.certManagerIssuer)
	}
	return &cmmeta.IssuerReference{Name: name, Kind: kind, Group: "cert-manager.io"}, nil
}

// certificates are what a server presents, and whom it trusts. What is nil is
// not used.
type certificates struct {
	source    certs.Source
	clientCAs *certs.ClientCAs
	watcher   *cabundle.Watcher
	publisher *cabundle.Publisher
	events    *events.Recorder
	// leave takes back what the other replicas were told of this one. It is for a server
	// that does not come to run.
	leave func(context.Context)
}

// certificates makes the source of serving certificates and what belongs to it.
// Access is the cluster's, nil without one. Nothing of the cluster needs to be
// reachable yet.
func (f *certificateFlags) certificates(ctx context.Context, access *rest.Config, log *slog.Logger, metrics *telemetry.Telemetry) (made *certificates, failed error) {
	c := &certificates{leave: func(context.Context) {}}
	defer func() {
		if failed != nil {
			c.leave(ctx)
		}
	}()
	client, objects, err := f.clients(access)
	if err != nil {
		return nil, err
	}
	if client != nil {
		c.events = events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: certs.ReplicaName(f.replica), Log: log})
	}
	notify := func(e certs.Event) {
		metrics.Certificate(e)
		logCertificate(log, e)
		if c.events != nil {
			c.events.Record(e)
		}
	}
	var trust certs.Trust
	registrations, err := f.parsedRegistrations()
	if err != nil {
		return nil, err
	}
	if len(registrations) > 0 {
		hosts := f.selfSigned
		if f.certManager != "" {
			hosts = f.certManagerHosts
		}
		c.watcher = cabundle.NewWatcher(cabundle.WatcherConfig{Client: client, Registrations: registrations, Hosts: hosts, Notify: notify})
		trust = c.watcher
	}
	var authorities certs.Authorities
	switch {
	case len(f.selfSigned) > 0:
		own, err := f.ownCA(ctx, client, trust, log, notify)
		if own != nil {
			c.leave = own.Leave
		}
		if err != nil {
			return nil, err
		}
		c.source, authorities = own, own
		metrics.Rotation(own.State)
		metrics.CAStore(own.Kept)
	case f.certManager != "":
		issued, err := f.fromCertManager(ctx, client, objects, trust, notify)
		if err != nil {
			return nil, err
		}
		c.source, authorities, c.leave = issued, issued, issued.Leave
		if f.publishes() {
			metrics.Rotation(issued.State)
			metrics.CAStore(issued.Kept)
		}
	default:
		files, err := certs.NewFiles(certs.FilesConfig{CertFile: f.tlsCert, KeyFile: f.tlsKey, Trust: trust, Hold: f.hold, Notify: notify})
		if err != nil {
			return nil, err
		}
		c.source = files
	}
	if c.watcher != nil {
		metrics.Bundles(func() []cabundle.Verdict { return c.watcher.Verdicts(c.serving(), time.Now()) })
	}
	if f.publishes() {
		c.publisher = cabundle.NewPublisher(cabundle.PublisherConfig{Client: client, Watcher: c.watcher, Authorities: authorities, Notify: notify})
		metrics.Publisher(c.publisher.Stats)
	}
	clientCA := f.clientCA
	if clientCA == "" && f.selfSignedDir != "" {
		clientCA = filepath.Join(f.selfSignedDir, certs.CAFile)
	}
	if clientCA != "" {
		if c.clientCAs, err = certs.NewClientCAs(certs.ClientCAsConfig{File: clientCA, Notify: notify}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// clients are for the cluster, nil without one, and where nothing of it is
// needed.
func (f *certificateFlags) clients(access *rest.Config) (certs.Client, dynamic.Interface, error) {
	if access == nil || f.selfSignedSecret == "" && f.certManager == "" && len(f.names()) == 0 {
		return nil, nil, nil
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-certificates/" + version()
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, nil, err
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, nil, fmt.Errorf("no client for %s: %w", access.Host, err)
	}
	return client, objects, nil
}

// ownCA is a CA in a Secret, in a directory or in memory. A directory in which nothing
// can be written does as long as a CA can be read from it: a server that runs would go
// on too. One that is returned beside an error has to leave.
func (f *certificateFlags) ownCA(
	ctx context.Context, client certs.Client, trust certs.Trust, log *slog.Logger, notify func(certs.Event),
) (*certs.SelfSigned, error) {
	config := certs.SelfSignedConfig{
		Hosts: f.selfSigned, Replica: f.replica, Version: version(), Trust: trust, ServerOnly: f.selfSignedSecret != "",
		Life: f.caDuration, LeafLife: f.duration, Hold: f.hold, Notify: notify,
	}
	switch {
	case f.selfSignedSecret != "":
		config.Store, config.Replicas = f.shared(client, f.selfSignedSecret, f.duration, notify)
	case f.selfSignedDir != "":
		reports := certs.NewDirReplicas(f.selfSignedDir, certs.ReplicaName(f.replica), nil)
		reports.LeafLife = f.duration
		store := certs.NewDirStore(f.selfSignedDir)
		inherited, err := store.Claim(ctx)
		if err != nil {
			return nil, fmt.Errorf("--self-signed-dir: %w", err)
		}
		if inherited {
			log.Warn("certificate", "subject", certs.SelfSignedCA, "warnings", inheritance(f.selfSignedDir))
		}
		config.Store, config.Replicas = store, reports
	}
	first, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	own, err := certs.NewSelfSigned(first, config)
	if err != nil {
		return nil, err
	}
	if f.selfSignedDir == "" {
		return own, nil
	}
	// A directory that cannot be used now is one that was named wrongly.
	if err := own.Healthy(); err != nil {
		return own, err
	}
	if err := own.WriteDir(f.selfSignedDir); err != nil && !errors.Is(err, certs.ErrUnwritten) {
		return own, err
	}
	return own, nil
}

// inheritance is what to say of files of a CA of ours whose key is gone.
func inheritance(dir string) string {
	return fmt.Sprintf("%s has files of an older Gatehouse and no %s: they are replaced by those of a new CA (hint: give the API server %s and the client certificate again, where it has copies)",
		dir, certs.AuthorityFile, certs.CAFile)
}

// shared is where replicas share a state.
func (f *certificateFlags) shared(client certs.Client, secret string, leafLife time.Duration, notify func(certs.Event)) (certs.Store, certs.Replicas) {
	namespace, name, _ := namespacedName(secret) // checked with the flags
	return certs.NewSecretStore(certs.SecretStoreConfig{Client: client, Namespace: namespace, Name: name, Notify: notify}),
		certs.NewLeases(certs.LeasesConfig{Client: client, Namespace: namespace, Group: name, Replica: certs.ReplicaName(f.replica), LeafLife: leafLife})
}

// bundleSecret is where replicas agree on what to publish of cert-manager's CAs:
// the Secret NAME-ca-bundle beside the Certificate, which holds no key.
const bundleSecret = "-ca-bundle"

func (f *certificateFlags) fromCertManager(
	ctx context.Context, client certs.Client, objects dynamic.Interface, trust certs.Trust, notify func(certs.Event),
) (*certs.CertManager, error) {
	namespace, name, _ := namespacedName(f.certManager) // checked with the flags, and so is the issuer
	issuer, _ := f.issuer()
	config := certs.CertManagerConfig{
		Client: client, Dynamic: objects, Namespace: namespace, Name: name, Hosts: f.certManagerHosts, IssuerRef: issuer,
		Existing: len(f.certManagerHosts) == 0, Trust: trust, Hold: f.hold, Replica: f.replica, Version: version(), Notify: notify,
	}
	if f.publishes() {
		config.Store, config.Replicas = f.shared(client, f.certManager+bundleSecret, 0, notify)
	}
	first, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	return certs.NewCertManager(first, config)
}

// tlsConfig is how the server presents itself.
func (c *certificates) tlsConfig(minVersion uint16) *tls.Config {
	config := &tls.Config{
		MinVersion:     minVersion,
		GetCertificate: c.source.GetCertificate,
		// The API server speaks HTTP/1.1 to a Service, and HTTP/2 to a loopback
		// URL and for token reviews.
		NextProtos: []string{"h2", "http/1.1"},
	}
	if c.clientCAs != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		config.GetConfigForClient = c.clientCAs.ConfigForClient(config)
	}
	return config
}

// serving is what is served, nil if nothing is.
func (c *certificates) serving() *tls.Certificate {
	cert, err := c.source.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return cert
}

// ready is nil once the API server can trust what is served, and as long as that
// is valid.
func (c *certificates) ready() error {
	err := c.source.Healthy()
	if c.watcher != nil {
		err = errors.Join(err, c.watcher.Ready(c.serving()))
	}
	return err
}

// run keeps everything fresh until the context ends.
func (c *certificates) run(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return c.source.Run(ctx) })
	if c.watcher != nil {
		group.Go(func() error { return c.watcher.Run(ctx) })
		group.Go(func() error { return c.watcher.Doubt(ctx, c.serving) })
	}
	if c.publisher != nil {
		group.Go(func() error { return c.publisher.Run(ctx) })
	}
	if c.clientCAs != nil {
		group.Go(func() error { return c.clientCAs.Run(ctx) })
	}
}
