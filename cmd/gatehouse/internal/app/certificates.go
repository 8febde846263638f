package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/certmetrics"
	"github.com/gatehouse-dev/gatehouse/internal/build"
)

// firstReadTimeout bounds the requests to the API server before anything is served: an API
// server that hangs must not delay /livez.
const firstReadTimeout = 3 * time.Second

// certificates are the serving certificate and the trusted CAs of a server. What is nil is
// not used.
type certificates struct {
	source    certs.Source
	own       *certs.OwnCA
	clientCAs *certs.ClientCAs
	// reader is that of the webhook configurations that must trust the certificate.
	reader *registration.Reader
	// release releases the directory of the CA. It is for a server that fails to start.
	release func()
}

// certificateEvents returns what logs, counts and records events about certificates and registrations. Access is to the
// cluster, nil without one.
func (f *CertificateOptions) certificateEvents(ctx context.Context, client certs.Client, log *slog.Logger, metrics *certmetrics.Metrics) func(certs.Event) {
	var recorder *events.Recorder
	if client != nil {
		recorder = events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: replicaName(f.replica), Log: log})
	}
	return func(e certs.Event) {
		metrics.Certificate(e)
		logCertificate(log, e)
		if recorder != nil {
			recorder.Record(e)
		}
	}
}

// certificateClient returns the client of the cluster, nil without one, and if nothing needs it.
func (f *CertificateOptions) certificateClient(access *rest.Config) (certs.Client, error) {
	if access == nil || f.selfSignedSecret == "" && len(f.registrationNames()) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-certificates/" + build.Version()
	return certs.NewClient(access)
}

// certificates returns the source of serving certificates and what belongs to it. Client is of the cluster, nil without one,
// which need not be reachable yet. Reader reads the registrations, nil without any.
func (f *CertificateOptions) certificates(
	ctx context.Context, client certs.Client, reader *registration.Reader, notify func(certs.Event), metrics *certmetrics.Metrics,
) (made *certificates, failed error) {
	c := &certificates{reader: reader, release: func() {}}
	defer func() {
		if failed != nil {
			c.release()
		}
	}()
	var trust certs.Trust
	if reader != nil {
		trust = reader
		metrics.Registrations(func() []registration.Verdict { return reader.Verdicts(c.serving(), time.Now()) })
	}
	if len(f.selfSigned) > 0 {
		if err := f.ownCA(ctx, c, client, trust, notify); err != nil {
			return nil, err
		}
		c.source = c.own
		metrics.CA(c.own.State, c.own.IsReconciled)
	} else {
		files, err := certs.NewFiles(certs.FilesConfig{CertFile: f.tlsCert, KeyFile: f.tlsKey, Trust: trust, Hold: f.hold, Notify: notify})
		if err != nil {
			return nil, err
		}
		c.source = files
	}
	clientCA := f.clientCA
	if clientCA == "" && f.selfSignedDir != "" {
		clientCA = filepath.Join(f.selfSignedDir, certs.CAFile)
	}
	if clientCA != "" {
		var err error
		if c.clientCAs, err = certs.NewClientCAs(certs.ClientCAsConfig{File: clientCA, Notify: notify}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ownCA sets a CA in a Secret, in a directory or in memory.
func (f *CertificateOptions) ownCA(ctx context.Context, c *certificates, client certs.Client, trust certs.Trust, notify func(certs.Event)) error {
	config := certs.OwnCAConfig{
		Hosts: f.selfSigned, Trust: trust, ServerOnly: f.selfSignedSecret != "",
		Life: f.caDuration, LeafLife: f.duration, Hold: f.hold, Notify: notify,
	}
	switch {
	case f.selfSignedSecret != "":
		namespace, name, _ := install.ParseNamespacedName(f.selfSignedSecret) // checked with the flags
		config.Store = &certs.SecretStore{Client: client, Namespace: namespace, Name: name}
	case f.selfSignedDir != "":
		store := certs.NewDirStore(f.selfSignedDir)
		release, err := store.Occupy()
		if err != nil {
			return fmt.Errorf("--self-signed-dir: %w", err)
		}
		c.release = release
		config.Store, config.Alone = store, true
	}
	first, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	own, err := certs.NewOwnCA(first, config)
	if err != nil {
		return err
	}
	c.own = own
	if f.selfSignedDir != "" {
		return own.Healthy() // a directory that is unusable at the start has most likely the wrong name
	}
	return nil
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
	if c.source == nil {
		return nil
	}
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
	if c.reader != nil {
		err = errors.Join(err, c.reader.Ready(c.serving()))
	}
	return err
}

// run renews the certificate, and reads who trusts it, until the context ends.
func (c *certificates) run(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return c.source.Run(ctx) })
	if c.reader != nil {
		group.Go(func() error { return c.reader.MonitorTrust(ctx, c.serving) })
	}
	if c.clientCAs != nil {
		group.Go(func() error { return c.clientCAs.Run(ctx) })
	}
}

// replicaName returns the name of this replica: that of its pod, which is its host name,
// unless one is given.
func replicaName(given string) string {
	if given != "" {
		return given
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "gatehouse"
	}
	return strings.ToLower(name)
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
		log.Info("certificate waiting", append(attrs, "waits", e.Err.Error())...)
	case e.Err != nil:
		log.Error("certificate error", append(attrs, "error", e.Err.Error())...)
	case len(e.Warnings) > 0 || e.IsWarning():
		log.Warn("certificate warning", attrs...)
	default:
		log.Info("certificate", attrs...)
	}
}
