package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/filewatch"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

const (
	// issuedInterval is the longest time between two looks at what cert-manager
	// issues, and issueInterval that while something is awaited.
	issuedInterval = time.Minute
	issueInterval  = 5 * time.Second
	// holdMargin is how long after the end of a hold the next look may be.
	holdMargin = 100 * time.Millisecond
	// issueTime is how long cert-manager may take for a certificate before that is
	// reported.
	issueTime = time.Minute

	notIssued = "cert-manager has not issued it yet"
)

// CertManagerConfig says which certificate cert-manager issues, and who trusts
// it.
type CertManagerConfig struct {
	// Client reads and watches the Secret, and Dynamic cert-manager's objects. Both
	// are of the API server where cert-manager runs.
	Client  certs.Client
	Dynamic dynamic.Interface
	// Namespace and Name are those of the Certificate.
	Namespace, Name string
	// Hosts are the DNS names and IP addresses under which clients reach the server,
	// at least one, and none with Existing.
	Hosts []string
	// IssuerRef is who issues. Nil is a CA for this Certificate alone, which is made
	// beside it: see CertManagerObjects.
	IssuerRef *cmmeta.IssuerReference
	// Existing tells to use a Certificate of somebody else as it is, and to write
	// nothing.
	Existing bool
	// Trust is what clients have been told to trust, and Hold how long before a
	// certificate of another issuer comes into use: see Gate.
	Trust certs.Trust
	Hold  time.Duration
	// Store is where replicas agree on what to publish, and Replicas where they say
	// what they serve, for a Bundle of one's own. It is nil where cainjector fills
	// in the registrations: whoever has both fights.
	Store    store.Store
	Replicas store.Replicas
	// Replica is the name of this one; "" is the host's. Version is that of the
	// program, for people.
	Replica, Version string
	// Now is the time by which certificates expire; nil is time.Now. It must be
	// safe for concurrent use.
	Now func() time.Time
	// Notify is told what happens, from NewCertManager and from the goroutines of
	// Run: first what is in use, then every change. It must be safe for concurrent
	// use. Nil tells nobody.
	Notify func(certs.Event)
}

// CertManager is a Source of certificates that cert-manager issues. It asks for
// them by objects of cert-manager, and follows the Secret that they are put in by
// the API, so that nothing has to be mounted and nothing waits for the kubelet.
//
// A Secret that cannot be read or used takes nothing away: the last good
// certificate stays.
type CertManager struct {
	// keeper keeps what is published. Without a Store it only tells of changes.
	*reconciler

	cfg     CertManagerConfig
	objects []object
	// current is what is served, nil until there is something. Only look stores it.
	current atomic.Pointer[tls.Certificate]
	// newest is the CA of the newest good certificate that was seen, in use or not.
	// It is nil while the Secret cannot be read: what is published must not follow
	// something stale.
	newest atomic.Pointer[x509.Certificate]
	// missingReason is what keeps a certificate from being there.
	missingReason atomic.Pointer[string]

	// What follows is for look alone.
	pairs        rollover
	secretName   string
	ensuredAt    time.Time
	applied      map[string]bool
	conflicts    []string
	unreadySince time.Time
	problems     problems
	served       certs.Reporter
	ticks        <-chan time.Time

	watching watchProblems
}

var (
	_ certs.Source      = (*CertManager)(nil)
	_ certs.Authorities = (*CertManager)(nil)
)

// NewCertManager makes the objects, if that is wanted, and reads the certificate
// if there is one. An error is about the configuration and names each problem.
// What goes wrong in the cluster is none, because it may be mended while the
// server runs: Healthy tells.
func NewCertManager(ctx context.Context, cfg CertManagerConfig) (*CertManager, error) {
	objects, err := cfg.check()
	if err != nil {
		return nil, err
	}
	m := &CertManager{
		cfg: cfg, objects: objects, applied: map[string]bool{},
		pairs:  rollover{policy: rolloverPolicy{trust: cfg.Trust, hold: cfg.Hold}},
		served: certs.Reporter{Notify: cfg.Notify},
	}
	text := notIssued
	m.missingReason.Store(&text)
	if !cfg.Existing {
		m.secretName = servingSecret(cfg.Name)
	}
	m.reconciler = &reconciler{
		subject: certs.IssuerCA,
		store:   cfg.Store, replicas: cfg.Replicas, replica: store.ReplicaName(cfg.Replica), version: cfg.Version, trust: cfg.Trust,
		policy: rotation.Policy{
			LeafLife: servingDuration, Hold: cfg.Hold,
			EmergencyHold: min(cfg.Hold, rotation.DefaultEmergencyHold), EmergencyWait: rotation.DefaultEmergencyWait,
		},
		interval: store.PollInterval, now: cfg.Now, offered: m.newest.Load, offeredChanged: make(chan struct{}, 1), serving: m.Certificate,
		use:      func(*rotation.State, time.Time) error { return nil }, // it signs nothing
		problems: certs.Reporter{Notify: cfg.Notify}, steps: certs.Reporter{Notify: cfg.Notify},
	}
	if cfg.Replicas == nil {
		m.replicas = &store.MemoryReplicas{}
	}
	m.refresh(ctx)
	if cfg.Store != nil {
		m.reconcile(ctx)
	}
	return m, nil
}

// check is the objects to make, or what is wrong with the configuration.
func (cfg *CertManagerConfig) check() ([]object, error) {
	var wrong problems
	for _, name := range []struct{ of, is string }{{"namespace", cfg.Namespace}, {"name", cfg.Name}} {
		for _, problem := range validation.IsDNS1123Label(name.is) {
			wrong = append(wrong, fmt.Errorf("%s %.80q: %s", name.of, name.is, problem))
			break
		}
	}
	if len(cfg.Name) > maxName {
		wrong = append(wrong, fmt.Errorf("name %.80q: at most %d bytes, because others are made of it", cfg.Name, maxName))
	}
	switch {
	case cfg.Existing && (len(cfg.Hosts) > 0 || cfg.IssuerRef != nil):
		wrong = append(wrong, errors.New("an existing Certificate is used as it is: leave out hosts and issuer, or let Gatehouse make the Certificate"))
	case !cfg.Existing && len(cfg.Hosts) == 0:
		wrong = append(wrong, errors.New("no host: give the DNS names and IP addresses under which clients reach the server"))
	case cfg.IssuerRef != nil && cfg.IssuerRef.Name == "":
		wrong = append(wrong, errors.New("the issuer has no name: name an Issuer or a ClusterIssuer"))
	}
	dns, ips, err := splitHosts(cfg.Hosts)
	if err != nil {
		wrong = append(wrong, err)
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("cert-manager: %w", wrong)
	}
	if cfg.Existing {
		return nil, nil
	}
	var list []object
	for _, made := range CertManagerObjects(cfg.Namespace, cfg.Name, dns, ips, cfg.IssuerRef) {
		o, err := newObject(made)
		if err != nil {
			return nil, fmt.Errorf("cert-manager: %w", err)
		}
		list = append(list, o)
	}
	return list, nil
}

// GetCertificate implements Source. The error is that there is none yet.
func (m *CertManager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := m.current.Load(); pair != nil {
		return pair, nil
	}
	return nil, errors.New(certs.ServingCertificate + ": " + notIssued)
}

// String names the Certificate as messages do.
func (m *CertManager) String() string {
	return certmanagerv1.CertificateKind + " " + m.cfg.Namespace + "/" + m.cfg.Name
}

// Certificate implements Authorities.
func (m *CertManager) Certificate() *tls.Certificate { return m.current.Load() }

// Bundle implements Authorities, for somebody who has a Store.
func (m *CertManager) Bundle(ctx context.Context) ([]*x509.Certificate, error) {
	if m.cfg.Store == nil {
		return nil, errors.New("cainjector fills in the registrations: nothing is published beside it")
	}
	return m.reconciler.Bundle(ctx)
}

// Healthy implements Source. Without a certificate it says why there is none.
// Where replicas agree on what to publish, one is unhealthy too until it has told
// the others what it serves, and when it was cut off from them for longer than
// they wait.
func (m *CertManager) Healthy() error {
	pair := m.current.Load()
	if pair == nil {
		return fmt.Errorf("%s: there is none yet: %s", certs.ServingCertificate, *m.missingReason.Load())
	}
	now := clock.Wall(m.cfg.Now)
	if err := cmp.Or(pki.CheckPair(pair, now), m.checkIsolated(now)); err != nil {
		return fmt.Errorf("%s: %s: %w", certs.ServingCertificate, m, err)
	}
	if m.cfg.Store == nil || m.joined.Load() {
		return nil
	}
	wrong := cmp.Or(m.lastError(), errors.New("the other replicas have not been told of it yet"))
	if m.newest.Load() == nil && errors.Is(wrong, errNotOffered) {
		return fmt.Errorf("%s: %s", certs.ServingCertificate, *m.missingReason.Load())
	}
	return fmt.Errorf("%s: %w", certs.ServingCertificate, wrong)
}

// Run implements Source.
func (m *CertManager) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	if m.cfg.Store != nil {
		group.Go(func() {
			m.run(ctx)
			m.Leave(ctx)
		})
	}
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	group.Go(func() { m.watching.watch(ctx, "Certificate", m.watchCertificate, wake) })
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
			watched, stop = name, m.followSecret(ctx, &group, name, wake)
		}
		ticks, end := filewatch.TickOr(m.ticks, m.nextRefresh())
		select {
		case <-ctx.Done():
			end()
			return nil
		case <-ticks:
		case <-woken:
		case <-trust:
		}
		end()
	}
}

// followSecret calls changed with every change of a Secret until stop.
func (m *CertManager) followSecret(ctx context.Context, group *sync.WaitGroup, name string, changed func()) (stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	group.Go(func() { m.watching.watch(ctx, "Secret", m.watchSecret(name), changed) })
	return stop
}

// nextRefresh is how long to wait for the next look.
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

// refresh is one round: see to the objects, read the certificate, and serve it if it
// may be. Whatever goes wrong, what is in use stays so.
func (m *CertManager) refresh(ctx context.Context) {
	now := clock.Wall(m.cfg.Now)
	wrong := m.ensure(ctx, now)
	unready, err := m.readCertificate(ctx, now)
	if err != nil && (len(wrong) == 0 || m.cfg.Existing) {
		wrong = append(wrong, err)
	}
	found, err := m.readSecret(ctx)
	if ctx.Err() != nil {
		return // what was cut off is no news
	}
	if err != nil {
		wrong = append(wrong, err)
	}
	if found == nil {
		found = &issued{}
	}
	if !isValidNow(found.pair, now) {
		found.ca = nil
	} else if found.ca == nil && m.cfg.Store != nil {
		wrong = append(wrong, fmt.Errorf("%s: the CA of the certificate is neither in key %q nor behind it in key %q, so that there is nothing to publish: "+
			"use an issuer that is a CA (without --cert-manager-issuer one is made), or leave the registrations to cainjector",
			m.secret(m.secretName), cmmeta.TLSCAKey, corev1.TLSCertKey))
	}
	if before := m.newest.Swap(found.ca); found.ca != nil && !found.ca.Equal(before) {
		select {
		case m.offeredChanged <- struct{}{}:
		default:
		}
	}
	current := m.current.Load()
	used, waits := m.pairs.next(current, found.pair, m.secret(m.secretName), now)
	if used != current {
		m.current.Store(used)
		m.notifyChanged()
	}

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

// reportRefresh reports what is so after a look.
func (m *CertManager) reportRefresh(used *tls.Certificate, waits error, wrong problems, now time.Time) {
	event := m.event(used)
	if used != nil {
		event.Warnings = warningsOf(used, now)
	}
	event.Warnings = append(event.Warnings, m.conflicts...)
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

// event is what is in use.
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
		return fmt.Errorf("the certificate in use ends at %s and was not renewed: see cert-manager's CertificateRequests", clock.Stamp(pair.Leaf.NotAfter))
	}
	return nil
}
