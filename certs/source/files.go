package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/filewatch"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// FilesConfig configures Files.
type FilesConfig struct {
	// CertFile holds the certificate and behind it those that lead to the root,
	// in PEM; KeyFile holds the private key. Both may be links, and the same
	// file.
	CertFile, KeyFile string
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Trust is what clients trust. A new pair is served when they trust it, and one of
	// another issuer when they have trusted it for Hold. Nil serves each at once.
	Trust certs.Trust
	Hold  time.Duration
	// Notify receives events from the goroutine of Run: first the active certificate, then
	// every change. Nil drops them.
	Notify func(certs.Event)
}

// Files is a Source that follows a pair of files written by another program, such
// as cert-manager or the kubelet.
//
// A new pair is read as soon as it is written, at the latest within ten seconds. A pair
// that cannot be read, does not match, is expired or not valid yet, or lacks a name that
// registrations call is ignored as long as the active one is valid, and read again at every
// tick. A pair that waits for clients to trust it is remembered until a newer one is
// found, even if the files are removed.
type Files struct {
	cfg     FilesConfig
	current atomic.Pointer[tls.Certificate]
	// pairs is used by Run alone.
	pairs rollover
	ticks <-chan time.Time
}

var _ certs.Source = (*Files)(nil)

// NewFiles reads the pair. It returns an error if the pair cannot be used for TLS, but not
// if it is expired or not valid yet, because it may be renewed while the server runs: see
// Healthy.
func NewFiles(cfg FilesConfig) (*Files, error) {
	f := &Files{cfg: cfg, pairs: rollover{policy: rolloverPolicy{trust: cfg.Trust, hold: cfg.Hold}}}
	pair, err := pki.ReadPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certs.ServingCertificate, err)
	}
	f.current.Store(pair)
	return f, nil
}

// GetCertificate implements Source.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Run implements Source.
func (f *Files) Run(ctx context.Context) error {
	var changed func() <-chan struct{}
	if f.cfg.Trust != nil {
		changed = f.cfg.Trust.Changed
	}
	files := []string{f.cfg.CertFile, f.cfg.KeyFile}
	followFiles(ctx, files, f.ticks, changed, f.cfg.Notify, certs.EventOf(certs.ServingCertificate, f.current.Load().Leaf), f.reload)
	return nil
}

// followFiles calls reload at once, at every tick and whenever the files or what changed
// stands for change, until the context ends, and reports the event that it returns. last is
// the event before that.
func followFiles(
	ctx context.Context, files []string, ticks <-chan time.Time, changed func() <-chan struct{}, notify func(certs.Event), last certs.Event, reload func() certs.Event,
) {
	watch, state := certs.Reporter{Notify: notify}, certs.Reporter{Notify: notify}
	filewatch.Follow(ctx, files, filewatch.TickOr(ticks, filewatch.Interval), changed,
		func(err error) { watch.Report(last.WithWarning(err)) },
		func() {
			last = reload()
			state.Report(last)
		})
}

// Healthy implements Source.
func (f *Files) Healthy() error {
	if err := pki.CheckPair(f.current.Load(), clock.Wall(f.cfg.Now)); err != nil {
		return fmt.Errorf("%s: %s: %w", certs.ServingCertificate, f.cfg.CertFile, err)
	}
	return nil
}

// reload reads the pair, activates it if it is accepted, and returns an event about the
// active one. Only Run calls it, so nothing else stores to current.
func (f *Files) reload() certs.Event {
	now := clock.Wall(f.cfg.Now)
	current := f.current.Load()
	found, problem := pki.ReadPair(f.cfg.CertFile, f.cfg.KeyFile)
	used, why := f.pairs.next(current, found, f.cfg.CertFile, now)
	if used != current {
		f.current.Store(used)
	}
	event := certs.EventOf(certs.ServingCertificate, used.Leaf)
	event.Warnings = warningsOf(used, now)
	if problem != nil {
		problem = fmt.Errorf("rejected, the previous certificate stays active until %s: %w", clock.Stamp(used.Leaf.NotAfter), problem)
	}
	event.Err = joinRefusal(problem, why)
	if invalid := pki.CheckPair(used, now); event.Err == nil && invalid != nil {
		event.Err = fmt.Errorf("%s: %w", f.cfg.CertFile, invalid)
	}
	return event
}

// warningsOf returns warnings about a valid serving certificate that some clients may
// reject.
func warningsOf(pair *tls.Certificate, now time.Time) []string {
	var list []string
	leaf := pair.Leaf
	if leaf.IsCA {
		list = append(list, "the certificate is that of a CA: serve one that it issued, so that the CA's key can be stored elsewhere")
	}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		list = append(list, "the certificate has no subject alternative names: clients ignore the common name and will reject it")
	}
	if !hasUsage(leaf, x509.ExtKeyUsageServerAuth) {
		list = append(list, "the certificate is not for servers: its extended key usage has no serverAuth, and clients will reject it")
	}
	chain := pki.ChainOf(pair)
	for i, cert := range chain {
		if now.After(cert.NotAfter) {
			list = append(list, fmt.Sprintf("certificate %d of the file expired at %s: clients without a newer certificate for its key reject what it signed", i+2, clock.Stamp(cert.NotAfter)))
		}
	}
	if len(chain) < len(pair.Certificate)-1 {
		list = append(list, fmt.Sprintf("certificate %d of the file did not sign the one before it: clients may not find the way to their root", len(chain)+2))
	}
	return list
}

// hasUsage reports whether a certificate has an extended key usage. One without any has all.
func hasUsage(cert *x509.Certificate, want x509.ExtKeyUsage) bool {
	return len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 ||
		slices.Contains(cert.ExtKeyUsage, want) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
}
