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
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/events"
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

	registrations      []string
	registrationsGiven bool
	publish            bool
	publishGiven       bool
	hold               time.Duration
	replica            string

	clientCA            string
	requireClientForAll bool
}

const defaultRegistration = "gatehouse"

// firstLook bounds what is asked of the API server before anything is served: one
// that hangs must not keep /livez from answering.
const firstLook = 3 * time.Second

func (f *certificateFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
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
	flags.StringSliceVar(&f.registrations, "registration", nil, "webhook configurations that must trust the serving certificate before this is ready: NAME, mutating/NAME or validating/NAME (default \""+defaultRegistration+"\" with --self-signed-secret and --cert-manager)")
	flags.BoolVar(&f.publish, "publish-ca-bundle", false, "write the CA into the caBundle of each --registration, and keep it there (default true with --self-signed-secret)")
	flags.DurationVar(&f.hold, "rotation-hold", rotation.DefaultHold, "how long a new CA is trusted by every --registration before a certificate of it is served")
	flags.StringVar(&f.replica, "replica", "", "name of this replica, unlike that of any other (default: the host name, which is that of the pod)")
	flags.StringVar(&f.clientCA, "client-ca", "", "file of the CAs of client certificates, in PEM; /authenticate answers nobody else (default: with --self-signed-dir, the CA made there)")
	flags.BoolVar(&f.requireClientForAll, "require-client-certificate", false, "make /mutate and /validate too answer only callers with a client certificate of --client-ca")
	_ = cmd.MarkFlagDirname("self-signed-dir") // the flags exist, here and below
	for _, name := range []string{"tls-cert", "tls-key", "client-ca"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

// given notes which flags with a default that depends on others were given.
func (f *certificateFlags) given(cmd *cobra.Command) {
	f.registrationsGiven = cmd.Flags().Changed("registration")
	f.publishGiven = cmd.Flags().Changed("publish-ca-bundle")
}

// check reports everything that is wrong with the flags.
func (f *certificateFlags) check(cluster bool) []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	files := f.tlsCert != "" || f.tlsKey != ""
	var sources []string
	if files {
		sources = append(sources, "--tls-cert")
	}
	if len(f.selfSigned) > 0 {
		sources = append(sources, "--self-signed")
	}
	if f.certManager != "" {
		sources = append(sources, "--cert-manager")
	}
	switch {
	case len(sources) == 2:
		problem("%s and %s exclude each other", sources[0], sources[1])
	case len(sources) > 2:
		problem("%s exclude each other", strings.Join(sources, ", "))
	case files && (f.tlsCert == "" || f.tlsKey == ""):
		problem("--tls-cert and --tls-key must both be given")
	case len(sources) == 0:
		problem("no certificate: give --tls-cert and --tls-key, --cert-manager, or --self-signed with the names and addresses under which the API server calls (hint: --self-signed 127.0.0.1)")
	}
	for _, needs := range []struct {
		given bool
		flag  string
		has   bool
		other string
	}{
		{f.selfSignedDir != "", "--self-signed-dir", len(f.selfSigned) > 0, "--self-signed"},
		{f.selfSignedSecret != "", "--self-signed-secret", len(f.selfSigned) > 0, "--self-signed"},
		{f.selfSignedSecret != "", "--self-signed-secret", cluster, "--in-cluster or --kubeconfig"},
		{f.certManager != "", "--cert-manager", cluster, "--in-cluster or --kubeconfig"},
		{len(f.registrations) > 0, "--registration", cluster, "--in-cluster or --kubeconfig"},
		{len(f.certManagerHosts) > 0, "--cert-manager-hosts", f.certManager != "", "--cert-manager"},
		{f.certManagerIssuer != "", "--cert-manager-issuer", len(f.certManagerHosts) > 0, "--cert-manager-hosts"},
		{f.requireClientForAll, "--require-client-certificate", f.clientCA != "" || f.selfSignedDir != "", "--client-ca"},
	} {
		if needs.given && !needs.has {
			problem("%s needs %s", needs.flag, needs.other)
		}
	}
	if f.selfSignedDir != "" && f.selfSignedSecret != "" {
		problem("--self-signed-dir and --self-signed-secret exclude each other: the CA is kept in one place")
	}
	if f.publishGiven && f.publish {
		switch {
		case f.tlsCert != "":
			problem("--publish-ca-bundle does not go with --tls-cert: whoever renews the files knows the CA")
		case len(f.selfSigned) > 0 && f.selfSignedSecret == "" && f.selfSignedDir == "":
			problem("--publish-ca-bundle needs a CA that outlives this process: give --self-signed-secret or --self-signed-dir")
		case len(f.names()) == 0:
			problem("--publish-ca-bundle needs --registration")
		}
	}
	if _, _, err := namespacedName(f.selfSignedSecret); err != nil {
		problem("--self-signed-secret: %w", err)
	}
	if _, _, err := namespacedName(f.certManager); err != nil {
		problem("--cert-manager: %w", err)
	}
	if _, err := f.issuer(); err != nil {
		problem("--cert-manager-issuer: %w", err)
	}
	if _, err := f.parsedRegistrations(); err != nil {
		problems = append(problems, err)
	}
	switch {
	case f.duration <= 0 || f.caDuration <= 0:
		problem("--self-signed-duration and --self-signed-ca-duration must be more than 0")
	case f.caDuration < 3*f.duration:
		problem("--self-signed-ca-duration %s: must be at least three times --self-signed-duration, which is %s: a CA signs for the first two thirds of its life", f.caDuration, f.duration)
	}
	if f.hold < 0 {
		problem("--rotation-hold %s: must not be negative", f.hold)
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
		return "", "", fmt.Errorf("%.100q must be NAMESPACE/NAME (hint: gatehouse-system/gatehouse)", text)
	}
	return namespace, name, nil
}

// names are the webhook configurations that are looked at.
func (f *certificateFlags) names() []string {
	if !f.registrationsGiven && (f.selfSignedSecret != "" || f.certManager != "") && (f.publishes() || !f.publishGiven) {
		return []string{defaultRegistration}
	}
	return f.registrations
}

// publishes tells whether to write the CA into them.
func (f *certificateFlags) publishes() bool {
	if f.publishGiven {
		return f.publish
	}
	return f.selfSignedSecret != ""
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
}

// certificates makes the source of serving certificates and what belongs to it.
// Access is the cluster's, nil without one. Nothing of the cluster needs to be
// reachable yet.
func (f *certificateFlags) certificates(ctx context.Context, access *rest.Config, log *slog.Logger, metrics *telemetry.Telemetry) (*certificates, error) {
	c := &certificates{}
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
		own, err := f.ownCA(ctx, client, trust, notify)
		if err != nil {
			return nil, err
		}
		c.source, authorities = own, own
		metrics.Rotation(own.State)
	case f.certManager != "":
		issued, err := f.fromCertManager(ctx, client, objects, trust, notify)
		if err != nil {
			return nil, err
		}
		c.source, authorities = issued, issued
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

// ownCA is a CA in a Secret, in a directory or in memory.
func (f *certificateFlags) ownCA(ctx context.Context, client certs.Client, trust certs.Trust, notify func(certs.Event)) (*certs.SelfSigned, error) {
	config := certs.SelfSignedConfig{
		Hosts: f.selfSigned, Replica: f.replica, Version: version(), Trust: trust,
		Life: f.caDuration, LeafLife: f.duration, Hold: f.hold, Notify: notify,
	}
	switch {
	case f.selfSignedSecret != "":
		config.Store, config.Replicas = f.shared(client, f.selfSignedSecret, f.duration)
	case f.selfSignedDir != "":
		reports := certs.NewDirReplicas(f.selfSignedDir, certs.ReplicaName(f.replica), nil)
		reports.LeafLife = f.duration
		config.Store, config.Replicas = certs.NewDirStore(f.selfSignedDir), reports
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
		return nil, err
	}
	return own, own.WriteDir(f.selfSignedDir)
}

// shared is where replicas share a state.
func (f *certificateFlags) shared(client certs.Client, secret string, leafLife time.Duration) (certs.Store, certs.Replicas) {
	namespace, name, _ := namespacedName(secret) // checked with the flags
	return certs.NewSecretStore(certs.SecretStoreConfig{Client: client, Namespace: namespace, Name: name}),
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
		config.Store, config.Replicas = f.shared(client, f.certManager+bundleSecret, 0)
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
	if err != nil || c.watcher == nil {
		return err
	}
	return c.watcher.Ready(c.serving())
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
