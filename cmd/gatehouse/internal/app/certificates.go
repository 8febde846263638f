package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	certsource "github.com/gatehouse-dev/gatehouse/certs/source"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/certmetrics"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
)

// firstReadTimeout bounds the requests to the API server before anything is served: an API
// server that hangs must not delay /livez.
const firstReadTimeout = 3 * time.Second

// certificates are the serving certificate and the trusted CAs of a server. What is nil is
// not used.
type certificates struct {
	source    certs.Source
	clientCAs *certsource.ClientCAs
	watcher   *cabundle.Watcher
	publisher *cabundle.Publisher
	events    *events.Recorder
	// leave removes this replica's heartbeat. It is for a server that fails to start.
	leave func(context.Context)
}

// certificates returns the source of serving certificates and what belongs to it. Access is
// to the cluster, nil without one. The cluster need not be reachable yet.
func (f *CertificateOptions) certificates(ctx context.Context, access *rest.Config, log *slog.Logger, metrics *certmetrics.Metrics) (made *certificates, failed error) {
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
		c.events = events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: certstore.ReplicaName(f.replica), Log: log})
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
		c.watcher = cabundle.NewWatcher(cabundle.WatcherConfig{Client: client, Registrations: registrations, Hosts: f.selfSigned, Notify: notify})
		trust = c.watcher
	}
	var authorities certs.Authorities
	switch {
	case len(f.selfSigned) > 0:
		own, err := f.ownCA(ctx, client, trust, notify)
		if own != nil {
			c.leave = own.Leave
		}
		if err != nil {
			return nil, err
		}
		c.source, authorities = own, own
		metrics.Rotation(own.State)
		metrics.CAStore(own.IsReconciled)
	case f.certManager != "":
		c.source = f.fromCertManager(ctx, client, objects, trust, notify)
	default:
		files, err := certsource.NewFiles(certsource.FilesConfig{CertFile: f.tlsCert, KeyFile: f.tlsKey, Trust: trust, Hold: f.hold, Notify: notify})
		if err != nil {
			return nil, err
		}
		c.source = files
	}
	if c.watcher != nil {
		metrics.Bundles(func() []cabundle.Verdict { return c.watcher.Verdicts(c.serving(), time.Now()) })
	}
	if f.publishesBundles() {
		c.publisher = cabundle.NewPublisher(cabundle.PublisherConfig{Client: client, Watcher: c.watcher, Authorities: authorities, Notify: notify})
		metrics.Publisher(c.publisher.Stats)
	}
	clientCA := f.clientCA
	if clientCA == "" && f.selfSignedDir != "" {
		clientCA = filepath.Join(f.selfSignedDir, certstore.CAFile)
	}
	if clientCA != "" {
		if c.clientCAs, err = certsource.NewClientCAs(certsource.ClientCAsConfig{File: clientCA, Notify: notify}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// clients returns the clients of the cluster. They are nil without a cluster, and if nothing
// needs them.
func (f *CertificateOptions) clients(access *rest.Config) (certs.Client, dynamic.Interface, error) {
	if access == nil || f.selfSignedSecret == "" && f.certManager == "" && len(f.registrationNames()) == 0 {
		return nil, nil, nil
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-certificates/" + build.Version()
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, nil, err
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a client for %s: %w", access.Host, err)
	}
	return client, objects, nil
}

// ownCA returns a CA in a Secret, in a directory or in memory. A directory that is not
// writable is accepted if a CA can be read from it, since a running server would go on too.
// A CA that is returned with an error must leave, which also releases the directory.
func (f *CertificateOptions) ownCA(
	ctx context.Context, client certs.Client, trust certs.Trust, notify func(certs.Event),
) (*certsource.SelfSigned, error) {
	config := certsource.SelfSignedConfig{
		Hosts: f.selfSigned, Replica: f.replica, Version: build.Version(), Trust: trust, ServerOnly: f.selfSignedSecret != "",
		Life: f.caDuration, LeafLife: f.duration, Hold: f.hold, Notify: notify,
	}
	release := func() {}
	switch {
	case f.selfSignedSecret != "":
		namespace, name, _ := install.ParseNamespacedName(f.selfSignedSecret) // checked with the flags
		config.Store = certstore.NewSecretStore(certstore.SecretStoreConfig{Client: client, Namespace: namespace, Name: name, Notify: notify})
		config.Replicas = certstore.NewLeases(certstore.LeasesConfig{
			Client: client, Namespace: namespace, Group: name, Replica: certstore.ReplicaName(f.replica), LeafLife: f.duration,
		})
	case f.selfSignedDir != "":
		store := certstore.NewDirStore(f.selfSignedDir)
		var err error
		if release, err = store.Occupy(); err != nil {
			return nil, fmt.Errorf("--self-signed-dir: %w", err)
		}
		config.Store, config.Replicas = store, &certstore.MemoryReplicas{Release: release}
	}
	first, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	own, err := certsource.NewSelfSigned(first, config)
	if err != nil {
		release()
		return nil, err
	}
	if f.selfSignedDir == "" {
		return own, nil
	}
	// A directory that is unusable at the start has most likely the wrong name.
	if err := own.Healthy(); err != nil {
		return own, err
	}
	if err := own.WriteDir(f.selfSignedDir); err != nil && !errors.Is(err, certstore.ErrUnwritten) {
		return own, err
	}
	return own, nil
}

func (f *CertificateOptions) fromCertManager(
	ctx context.Context, client certs.Client, objects dynamic.Interface, trust certs.Trust, notify func(certs.Event),
) *certsource.CertManager {
	namespace, name, _ := install.ParseNamespacedName(f.certManager) // checked with the flags
	config := certsource.CertManagerConfig{
		Client: client, Dynamic: objects, Namespace: namespace, Name: name, Trust: trust, Hold: f.hold, Notify: notify,
	}
	first, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	return certsource.NewCertManager(first, config)
}

// tlsConfig returns the TLS configuration of the server.
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

// serving returns the serving certificate, nil if there is none.
func (c *certificates) serving() *tls.Certificate {
	cert, err := c.source.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return cert
}

// ready returns an error unless the serving certificate is valid and the API server trusts
// it.
func (c *certificates) ready() error {
	err := c.source.Healthy()
	if c.watcher != nil {
		err = errors.Join(err, c.watcher.Ready(c.serving()))
	}
	return err
}

// run renews and publishes until the context ends.
func (c *certificates) run(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return c.source.Run(ctx) })
	if c.watcher != nil {
		group.Go(func() error { return c.watcher.Run(ctx) })
		group.Go(func() error { return c.watcher.MonitorTrust(ctx, c.serving) })
	}
	if c.publisher != nil {
		group.Go(func() error { return c.publisher.Run(ctx) })
	}
	if c.clientCAs != nil {
		group.Go(func() error { return c.clientCAs.Run(ctx) })
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
	case errors.Is(e.Err, certsource.ErrWaiting):
		log.Info("certificate waiting", append(attrs, "waits", e.Err.Error())...)
	case e.Err != nil:
		log.Error("certificate error", append(attrs, "error", e.Err.Error())...)
	case len(e.Warnings) > 0:
		log.Warn("certificate warning", attrs...)
	default:
		log.Info("certificate", attrs...)
	}
}
