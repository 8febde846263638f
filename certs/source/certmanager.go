package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

const (
	// issuedInterval is the longest time between two refreshes, and issueInterval that
	// while a certificate is awaited.
	issuedInterval = time.Minute
	issueInterval  = 5 * time.Second
	// holdMargin is the shortest time between two refreshes.
	holdMargin = 100 * time.Millisecond
	// issueTime is after how long a certificate that is not ready is reported.
	issueTime = time.Minute

	notIssued = "cert-manager has not issued it yet"
)

// CertManagerConfig configures a CertManager.
type CertManagerConfig struct {
	// Client reads and watches the Secret, and Dynamic the Certificate.
	Client  certs.Client
	Dynamic dynamic.Interface
	// Namespace and Name are those of the Certificate.
	Namespace, Name string
	// Trust is what clients trust, and Hold for how long they must trust a certificate of
	// another issuer before it is served.
	Trust certs.Trust
	Hold  time.Duration
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify receives events from NewCertManager and from the goroutines of Run: first the
	// active certificate, then every change. It must be safe for concurrent use. Nil drops
	// them.
	Notify func(certs.Event)
}

// CertManager is a Source of certificates that cert-manager issues. It watches the Secret
// of a Certificate through the API, so that no volume is mounted and no renewal waits for
// the kubelet. If the Secret cannot be read or is invalid, the last valid certificate stays
// active. cert-manager's cainjector writes its CA into the registrations.
type CertManager struct {
	cfg CertManagerConfig
	// current is the serving certificate, nil before the first. Only refresh stores it.
	current atomic.Pointer[tls.Certificate]
	// missingReason is why there is no certificate.
	missingReason atomic.Pointer[string]

	// What follows belongs to refresh.
	pairs        rollover
	secretName   string
	unreadySince time.Time
	problems     problems
	served       certs.Reporter

	watching watchProblems
}

var _ certs.Source = (*CertManager)(nil)

// NewCertManager reads the certificate if there is one. A problem of the cluster is no
// error, because it may be solved while the server runs: see Healthy.
func NewCertManager(ctx context.Context, cfg CertManagerConfig) *CertManager {
	m := &CertManager{
		cfg:    cfg,
		pairs:  rollover{policy: rolloverPolicy{trust: cfg.Trust, hold: cfg.Hold}},
		served: certs.Reporter{Notify: cfg.Notify},
	}
	text := notIssued
	m.missingReason.Store(&text)
	m.refresh(ctx)
	return m
}

// GetCertificate implements Source. It returns an error until a certificate is issued.
func (m *CertManager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := m.current.Load(); pair != nil {
		return pair, nil
	}
	return nil, errors.New(certs.ServingCertificate + ": " + notIssued)
}

// String returns the name of the Certificate for messages.
func (m *CertManager) String() string {
	return certmanagerv1.CertificateKind + " " + m.cfg.Namespace + "/" + m.cfg.Name
}

// Healthy implements Source. Without a certificate it returns why there is none.
func (m *CertManager) Healthy() error {
	pair := m.current.Load()
	if pair == nil {
		return fmt.Errorf("%s: there is none yet: %s", certs.ServingCertificate, *m.missingReason.Load())
	}
	if err := pki.CheckPair(pair, clock.Wall(m.cfg.Now)); err != nil {
		return fmt.Errorf("%s: %s: %w", certs.ServingCertificate, m, err)
	}
	return nil
}

// Run implements Source.
func (m *CertManager) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	woken := make(chan struct{}, 1)
	changed := func() { wake(woken) }
	group.Go(func() { m.watching.watch(ctx, "Certificate", m.watchCertificate, changed) })
	watched, stop := "", func() {}
	defer func() { stop() }()
	for {
		var trust <-chan struct{}
		if m.cfg.Trust != nil {
			trust = m.cfg.Trust.Changed() // before the look, so that no change falls in between
		}
		m.refresh(ctx)
		if name := m.secretName; name != watched {
			stop()
			watched, stop = name, m.followSecret(ctx, &group, name, changed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(m.nextRefresh()):
		case <-woken:
		case <-trust:
		}
	}
}

// followSecret calls changed with every change of a Secret until stop.
func (m *CertManager) followSecret(ctx context.Context, group *sync.WaitGroup, name string, changed func()) (stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	group.Go(func() { m.watching.watch(ctx, "Secret", m.watchSecret(name), changed) })
	return stop
}

// nextRefresh returns the time until the next refresh.
func (m *CertManager) nextRefresh() time.Duration {
	switch {
	case m.pairs.waiting != nil:
		// A hold ends at a time of its own.
		return min(issueInterval, max(holdMargin, m.pairs.until.Sub(clock.Wall(m.cfg.Now))))
	case m.current.Load() == nil, len(m.problems) > 0:
		return issueInterval
	default:
		return issuedInterval
	}
}

// refresh is one round: it reads the certificate, and serves it if clients trust it.
// Whatever fails, the active certificate stays.
func (m *CertManager) refresh(ctx context.Context) {
	var wrong problems
	now := clock.Wall(m.cfg.Now)
	unready, err := m.readCertificate(ctx, now)
	if err != nil {
		wrong = append(wrong, err)
	}
	found, err := m.readSecret(ctx)
	if ctx.Err() != nil {
		return // an error is that of the context
	}
	if err != nil {
		wrong = append(wrong, err)
	}
	used, waits := m.pairs.next(m.current.Load(), found, m.secret(m.secretName), now)
	m.current.Store(used)

	why := wrong
	if unready != nil {
		why = append(slices.Clone(why), unready)
		if now.Sub(m.unreadySince) >= issueTime {
			wrong = why
		}
	}
	text := cmp.Or(why.Error(), notIssued)
	m.missingReason.Store(&text)
	m.problems = wrong
	m.reportRefresh(used, waits, wrong, now)
}

// reportRefresh reports the result of a refresh.
func (m *CertManager) reportRefresh(used *tls.Certificate, waits error, wrong problems, now time.Time) {
	event := m.event(used)
	if used != nil {
		event.Warnings = warningsOf(used, now)
	}
	if len(wrong) > 0 {
		event.Reason = certs.ReasonIssuerFailed
	}
	wrong = slices.Clone(wrong)
	if late := checkRenewal(used, now); late != nil {
		event.Reason = certs.ReasonExpiring
		wrong = append(wrong, late)
	}
	if len(wrong) == 0 && waits == nil {
		wrong = m.watching.list()
	}
	var refused error
	if len(wrong) > 0 {
		refused = wrong
	}
	if event.Err = joinRefusal(refused, waits); event.Err == nil && used == nil {
		event.Message = notIssued
	}
	m.served.Report(event)
}

// event returns an event about the active certificate.
func (m *CertManager) event(used *tls.Certificate) certs.Event {
	event := certs.Event{Subject: certs.ServingCertificate}
	if used != nil {
		event = certs.EventOf(certs.ServingCertificate, used.Leaf)
	}
	event.Object = corev1.ObjectReference{
		APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: certmanagerv1.CertificateKind, Namespace: m.cfg.Namespace, Name: m.cfg.Name,
	}
	return event
}

// checkRenewal returns an error if a certificate has ended, or ends soon and should have
// been replaced: cert-manager renews after two thirds of the life.
func checkRenewal(pair *tls.Certificate, now time.Time) error {
	if pair == nil {
		return nil
	}
	if err := pki.CheckPair(pair, now); err != nil {
		return err
	}
	if left := pair.Leaf.NotAfter.Sub(now); left < pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)/6 {
		return fmt.Errorf("the serving certificate expires at %s and was not renewed: see cert-manager's CertificateRequests", clock.Stamp(pair.Leaf.NotAfter))
	}
	return nil
}
