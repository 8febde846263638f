package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/filewatch"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// FilesConfig says where a certificate and its key are.
type FilesConfig struct {
	// CertFile holds the certificate and behind it those that lead to the root,
	// in PEM; KeyFile holds the private key. Both may be links, and the same
	// file.
	CertFile, KeyFile string
	// Now is the time by which certificates expire; nil is time.Now. It must be
	// safe for concurrent use.
	Now func() time.Time
	// Trust is what clients have been told to trust. A new pair comes into use when
	// they trust it, and one of another issuer when they have for as long as Hold:
	// see Gate. Nil lets each come into use at once.
	Trust certs.Trust
	Hold  time.Duration
	// Notify is told what happens, from the goroutine of Run: first what is in
	// use, then every change. Nil tells nobody.
	Notify func(certs.Event)
}

// Files is a Source that follows a pair of files written by somebody else, such
// as cert-manager or the kubelet.
//
// A new pair comes into use within moments of being written, and at the latest
// within ten seconds. A pair that cannot be read, whose parts do not fit
// together, that is expired or not valid yet, or that is not for a name by which
// Trust knows clients to call is left aside as long as the one before it is valid,
// and tried again at every look. One that waits for clients to trust it is
// remembered, whatever becomes of the files; a newer one takes its place.
type Files struct {
	cfg     FilesConfig
	current atomic.Pointer[tls.Certificate]
	// pairs is used by Run alone.
	pairs rollover
	ticks <-chan time.Time
}

var _ certs.Source = (*Files)(nil)

// NewFiles reads the pair. A pair that cannot be used for TLS at all is an
// error; one that is expired or not valid yet is not, because a better one may
// come while the server runs: Healthy tells.
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
	ticks, stop := filewatch.TickOr(f.ticks, filewatch.Interval)
	defer stop()
	if f.cfg.Trust != nil {
		ticks = withChanges(ctx, ticks, f.cfg.Trust)
	}
	followFiles(ctx, []string{f.cfg.CertFile, f.cfg.KeyFile}, ticks, f.cfg.Notify, certs.EventOf(certs.ServingCertificate, f.current.Load().Leaf), f.reload)
	return nil
}

// followFiles calls reload at once, at every tick and whenever the files change, until
// the context ends, and reports the event that it returns. last is the event before that.
func followFiles(ctx context.Context, files []string, ticks <-chan time.Time, notify func(certs.Event), last certs.Event, reload func() certs.Event) {
	watch, state := certs.Reporter{Notify: notify}, certs.Reporter{Notify: notify}
	filewatch.Follow(ctx, files, ticks,
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

// reload reads the pair, takes it if it is the better one, and says what is so
// afterwards. Only Run calls it, so nothing else stores to current.
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
		problem = fmt.Errorf("not in use, the one before it is until %s: %w", clock.Stamp(used.Leaf.NotAfter), problem)
	}
	event.Err = joinRefusal(problem, why)
	if invalid := pki.CheckPair(used, now); event.Err == nil && invalid != nil {
		event.Err = fmt.Errorf("%s: %w", f.cfg.CertFile, invalid)
	}
	return event
}

// withChanges is the ticks, and one more at every change of what clients trust,
// until the context ends.
func withChanges(ctx context.Context, ticks <-chan time.Time, trust certs.Trust) <-chan time.Time {
	all := make(chan time.Time)
	// Asked for before each look, so that no change falls in between.
	changed := trust.Changed()
	go func() {
		for {
			var tick time.Time
			select {
			case <-ctx.Done():
				return
			case tick = <-ticks:
			case <-changed:
				changed = trust.Changed()
			}
			select {
			case <-ctx.Done():
				return
			case all <- tick:
			}
		}
	}()
	return all
}

// warningsOf are what is odd about a serving certificate that works, or that works
// for some clients only.
func warningsOf(pair *tls.Certificate, now time.Time) []string {
	var list []string
	leaf := pair.Leaf
	if leaf.IsCA {
		list = append(list, "the certificate is that of a CA: serve one that it issued, so that the CA's key can stay away from here")
	}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		list = append(list, "the certificate has no subject alternative names: clients do not look at the common name and will refuse it")
	}
	if !hasUsage(leaf, x509.ExtKeyUsageServerAuth) {
		list = append(list, "the certificate is not for servers: its extended key usage has no serverAuth, and clients will refuse it")
	}
	chain := pki.ChainOf(pair)
	for i, cert := range chain {
		if now.After(cert.NotAfter) {
			list = append(list, fmt.Sprintf("certificate %d of the file expired at %s: clients that have no newer one of its key refuse what it signed", i+2, clock.Stamp(cert.NotAfter)))
		}
	}
	if len(chain) < len(pair.Certificate)-1 {
		list = append(list, fmt.Sprintf("certificate %d of the file did not sign the one before it: clients may not find the way to their root", len(chain)+2))
	}
	return list
}

// hasUsage reports whether a certificate may be used so. One without any extended
// key usage may be used for everything.
func hasUsage(cert *x509.Certificate, want x509.ExtKeyUsage) bool {
	if len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 {
		return true
	}
	for _, usage := range cert.ExtKeyUsage {
		if usage == want || usage == x509.ExtKeyUsageAny {
			return true
		}
	}
	return false
}
