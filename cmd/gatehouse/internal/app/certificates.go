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

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
)

// firstReadTimeout bounds the requests to the API server before anything is served: an API
// server that hangs must not delay /livez.
const firstReadTimeout = 3 * time.Second

// certificates are the serving certificate and the trusted CAs of a server. What is nil is
// not used.
type certificates struct {
	source    certs.Source
	clientCAs *certs.ClientCAs
	// reader is that of the webhook configurations that must trust the certificate.
	reader *registration.Reader
}

// addCertificateEvents adds what logs, counts and records events about certificates and registrations.
func (w *wiring) addCertificateEvents(ctx context.Context) error {
	record := func(certs.Event) {}
	if w.access != nil && (w.selfSignedSecret != "" || len(w.registrationNames()) > 0) {
		client, err := certs.NewClient(w.accessOf("certificates"))
		if err != nil {
			return err
		}
		recorder := w.events(ctx, client)
		w.certClient, record = client, recorder.Record
		w.recordProblems(recorder)
	}
	w.notify = func(e certs.Event) {
		w.certMetrics.Certificate(e)
		logCertificate(w.log, e)
		record(e)
	}
	return nil
}

// addCertificates adds the serving certificate and the CAs of client certificates. The cluster need not be reachable yet.
func (w *wiring) addCertificates(ctx context.Context) error {
	c := &certificates{}
	w.serving = c
	var trust certs.Trust
	if reader := w.called.reader; reader != nil && !w.called.assumed {
		c.reader, trust = reader, reader
		w.certMetrics.Registrations(func() []registration.Verdict { return reader.Verdicts(c.certificate(), time.Now()) })
		w.add(part{run: func(ctx context.Context) error { return reader.MonitorTrust(ctx, c.certificate) }})
	}
	if len(w.selfSigned) > 0 {
		own, err := w.addOwnCA(ctx, trust)
		if err != nil {
			return err
		}
		c.source = own
	} else {
		files, err := certs.NewFiles(certs.FilesConfig{CertFile: w.tlsCert, KeyFile: w.tlsKey, Trust: trust, Hold: w.hold, Notify: w.notify})
		if err != nil {
			return err
		}
		c.source = files
	}
	w.add(part{run: c.source.Run})
	clientCA := w.clientCA
	if clientCA == "" && w.selfSignedDir != "" {
		clientCA = filepath.Join(w.selfSignedDir, certs.CAFile)
	}
	if clientCA == "" {
		return nil
	}
	var err error
	if c.clientCAs, err = certs.NewClientCAs(certs.ClientCAsConfig{File: clientCA, Notify: w.notify}); err != nil {
		return err
	}
	w.add(part{run: c.clientCAs.Run})
	return nil
}

// addOwnCA adds a CA in a Secret, in a directory or in memory. The caller runs it.
func (w *wiring) addOwnCA(ctx context.Context, trust certs.Trust) (*certs.OwnCA, error) {
	config := certs.OwnCAConfig{
		Hosts: w.selfSigned, Trust: trust, ServerOnly: w.selfSignedSecret != "",
		Hold: w.hold, Notify: w.notify,
	}
	switch {
	case w.selfSignedSecret != "":
		namespace, name, _ := install.ParseNamespacedName(w.selfSignedSecret) // checked with the flags
		config.Store = &certs.SecretStore{Client: w.certClient, Namespace: namespace, Name: name}
	case w.selfSignedDir != "":
		store := certs.NewDirStore(w.selfSignedDir)
		release, err := store.Occupy()
		if err != nil {
			return nil, fmt.Errorf("--self-signed-dir: %w", err)
		}
		w.add(part{close: release})
		config.Store, config.Alone = store, true
	}
	first, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	own, err := certs.NewOwnCA(first, config)
	if err != nil {
		return nil, err
	}
	if w.selfSignedDir != "" {
		if err := own.Healthy(); err != nil {
			return nil, err // a directory that is unusable at the start has most likely the wrong name
		}
	}
	if w.publishesBundles() {
		w.called.writer.Publish(own)
	}
	w.certMetrics.CA(own.State, own.IsReconciled)
	w.add(part{lead: own.Lead})
	return own, nil
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

// certificate returns the serving certificate, nil if there is none.
func (c *certificates) certificate() *tls.Certificate {
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
		err = errors.Join(err, c.reader.Ready(c.certificate()))
	}
	return err
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
		// Logged when a new certificate is served only after the webhook configurations trust it.
		log.Info("certificate waiting", append(attrs, "waits", e.Err.Error())...)
	case e.Err != nil:
		// Logged when a certificate cannot be read, issued or stored. The one before is served.
		log.Error("certificate error", append(attrs, "error", e.Err.Error())...)
	case len(e.Warnings) > 0 || e.IsWarning():
		// Logged when a certificate works and something about it is wrong, such as an end that is near.
		log.Warn("certificate warning", attrs...)
	default:
		// Logged when a certificate is served, or a CA changes its phase.
		log.Info("certificate", attrs...)
	}
}
