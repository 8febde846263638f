package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// OwnCAConfig configures an OwnCA.
type OwnCAConfig struct {
	// Hosts are the DNS names and IP addresses under which clients reach the
	// server, at least one.
	Hosts []string
	// Store keeps the CA. Nil is memory: a CA of this process alone.
	Store Store
	// Alone makes this process the one that rotates the CA, without an election.
	Alone bool
	// ServerOnly makes CAs that cannot issue client certificates.
	ServerOnly bool
	// Trust is what clients trust. If it is nil, a new CA signs as late as possible, unless
	// an administrator requested it.
	Trust Trust
	// Life is how long a CA is good for, LeafLife how long a serving certificate;
	// zero is the default. Both are renewed after two thirds.
	Life, LeafLife time.Duration
	// Hold is Policy.Hold; zero is the default.
	Hold time.Duration
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify receives events from NewOwnCA and from the goroutine of Run: first the
	// active certificate and CA, then every change. Nil drops them.
	Notify func(Event)
}

// OwnCA is a Source with a certificate authority of its own, which any number of replicas share through a Store.
//
// One replica, which Lead is called in, rotates the CA; see Step. The others only read the Store, often enough that
// each has read every step before the next one. The first CA is made by whichever replica is the first. Each
// replica issues its serving certificate from the active CA and keeps it in memory, so that only the key of the CA
// is stored. A replica that cannot read the Store keeps its certificate, which expires no later than LeafLife after
// it could.
type OwnCA struct {
	cfg    OwnCAConfig
	policy Policy
	dns    []string
	ips    []net.IP
	// leads reports whether this process rotates the CA.
	leads atomic.Bool
	wake  chan struct{}

	// state is what was written or read last, and nothing else: what is served is
	// never ahead of what others can know.
	state atomic.Pointer[State]
	leaf  atomic.Pointer[tls.Certificate]

	// What follows belongs to reconcile.

	// readAt is when the store was last read, by the wall clock and by a monotonic one.
	readAt, readMonotonic time.Time
	// trusted is since when registrations have trusted a CA, by its ID, and phaseSince since when the state has
	// been in its phase, which phaseKey identifies. Both are monotonic.
	trusted    map[string]time.Time
	phaseSince time.Time
	phaseKey   string

	served, problems reporter
	// refusals counts the rounds since the last success that lacked a right.
	refusals int

	mu      sync.Mutex
	problem error
	changed chan struct{}
}

var _ Source = (*OwnCA)(nil)

// NewOwnCA reads the store once, makes a CA if there is none, and issues a serving
// certificate. An error is about the configuration, for example a host that is neither a
// DNS name nor an IP address. A store that fails is no error, because it may recover while
// the server runs: see Healthy.
func NewOwnCA(ctx context.Context, cfg OwnCAConfig) (*OwnCA, error) {
	o := &OwnCA{
		cfg: cfg, served: reporter{notify: cfg.Notify}, problems: reporter{notify: cfg.Notify},
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	if len(cfg.Hosts) == 0 {
		return nil, errors.New("self-signed certificate: no host: set the DNS names and IP addresses that clients connect to")
	}
	var err error
	if o.dns, o.ips, err = splitHosts(cfg.Hosts); err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	if cfg.Store == nil {
		o.cfg.Store, o.cfg.Alone = &memoryStore{}, true
	}
	o.leads.Store(o.cfg.Alone)
	life := cmp.Or(cfg.Life, DefaultCALife)
	var usages []x509.ExtKeyUsage
	if cfg.ServerOnly {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	o.policy = Policy{
		New:      func(now time.Time) (*Authority, error) { return NewAuthority(now, life, usages...) },
		LeafLife: cmp.Or(cfg.LeafLife, DefaultLeafLife), Hold: cmp.Or(cfg.Hold, DefaultHold),
	}
	o.reconcile(ctx)
	return o, nil
}

// GetCertificate implements Source.
func (o *OwnCA) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if leaf := o.leaf.Load(); leaf != nil {
		return leaf, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// State returns the active state, nil if there is none yet.
func (o *OwnCA) State() *State { return o.state.Load() }

// Bundle reads the certificates that clients should trust from the store, not from memory, so that a process that
// was suspended does not publish an older bundle than another one did. It returns an error if the state there is
// not the one in memory.
func (o *OwnCA) Bundle(ctx context.Context) ([]*x509.Certificate, error) {
	record, err := o.cfg.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := Decode(record.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.cfg.Store, err)
	}
	if known := o.state.Load(); known == nil || !sameState(known, stored) {
		o.poke()
		return nil, fmt.Errorf("%s: it has just changed", o.cfg.Store)
	}
	return stored.Trusted(), nil
}

// Changed is closed with the next change of State.
func (o *OwnCA) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// IsReconciled reports whether the store was read, and written if necessary, the last time.
func (o *OwnCA) IsReconciled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problem == nil
}

// Healthy implements Source.
func (o *OwnCA) Healthy() error {
	leaf := o.leaf.Load()
	if leaf == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		return fmt.Errorf("self-signed certificate: there is none yet: %w", o.problem)
	}
	if err := checkValidity(leaf.Leaf, wall(o.cfg.Now)); err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	return nil
}

// Lead rotates the CA until the context ends. No other replica does so at the same time.
func (o *OwnCA) Lead(ctx context.Context) {
	o.leads.Store(true)
	o.poke()
	<-ctx.Done()
	o.leads.Store(false)
}

func (o *OwnCA) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run implements Source.
func (o *OwnCA) Run(ctx context.Context) error {
	for {
		var trust <-chan struct{}
		if o.cfg.Trust != nil {
			trust = o.cfg.Trust.Changed() // before the round, so that no change falls in between
		}
		o.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.interval()):
		case <-o.wake:
		case <-trust:
		}
	}
}

// interval returns how often the store is read: several times in a hold, so that each replica reads each step.
func (o *OwnCA) interval() time.Duration {
	const longest, shortest = 5 * time.Second, 50 * time.Millisecond
	return max(shortest, min(longest, o.policy.Hold/4))
}

// reconcile is one round: read, repair, step, issue, report. Whatever goes wrong, the active certificate stays.
func (o *OwnCA) reconcile(ctx context.Context) {
	now := wall(o.cfg.Now)
	err := o.sync(ctx, now)
	if ctx.Err() != nil && o.state.Load() != nil {
		return // an error is that of the context
	}
	if state := o.state.Load(); state != nil {
		err = errors.Join(err, o.renew(state, now))
		if dir, ok := o.cfg.Store.(*DirStore); ok {
			err = errors.Join(err, dir.export(state, now))
		}
	}
	o.mu.Lock()
	o.problem = err
	o.mu.Unlock()
	if o.lasts(err) {
		o.reportProblem(now, err)
	}
}

// sync reads the store, and writes it if this process rotates the CA or makes the first one. It reads again what
// it has written.
func (o *OwnCA) sync(ctx context.Context, now time.Time) error {
	const tries = 5
	for range tries {
		err := o.syncOnce(ctx, now)
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%s: %w, %d times in a row: Gatehouse tries again", o.cfg.Store, ErrConflict, tries)
}

// staleTime is after how long without reading the store a state in memory restores nothing: another process may
// have rotated the CA.
const staleTime = time.Minute

// syncOnce returns ErrConflict if the store has to be read again.
func (o *OwnCA) syncOnce(ctx context.Context, now time.Time) error {
	record, err := o.cfg.Store.Load(ctx)
	if err != nil {
		return err
	}
	remembered, leads := o.state.Load(), o.leads.Load()
	found, damage := Decode(record.Data)
	isLost := found == nil || remembered != nil && (found.Generation < remembered.Generation || found.Generation == remembered.Generation && !sameState(found, remembered))
	if isLost && remembered != nil && monotonic(o.cfg.Now).Sub(o.readMonotonic) > staleTime {
		remembered, isLost = nil, found == nil
	}
	switch {
	case isLost && remembered != nil && leads:
		n := *remembered
		n.Generation++
		return o.save(ctx, record, &n, ReasonRecovered, o.lossMessage(damage))
	case isLost && remembered != nil:
		return fmt.Errorf("%s: %s, and the elected replica restores it", o.cfg.Store, o.lossMessage(damage))
	case isLost && errors.Is(damage, ErrEmpty), isLost && leads:
		// A CA that is damaged, and that no process remembers, is replaced: it might not be the one that clients trust.
		first := &State{Generation: 1, Since: now, Done: record.Request, Hold: o.policy.Hold}
		if first.Active, err = o.policy.New(now); err != nil {
			return err
		}
		if errors.Is(damage, ErrEmpty) {
			return o.save(ctx, record, first, ReasonRotation, "a CA was created, because there was none")
		}
		return o.save(ctx, record, first, ReasonRecovered, "a CA was created in place of a damaged one: "+damage.Error())
	case isLost:
		return fmt.Errorf("%s: %w", o.cfg.Store, damage)
	}
	o.readAt, o.readMonotonic = now, monotonic(o.cfg.Now)
	o.remember(found)
	o.track(found)
	if !leads {
		return nil
	}
	observed := &Observation{Now: now, Watched: monotonic(o.cfg.Now).Sub(o.phaseSince), Request: record.Request}
	if o.cfg.Trust != nil {
		observed.Trusted = func(ca *x509.Certificate) (time.Duration, bool) {
			since, ok := o.trusted[ID(ca)]
			return monotonic(o.cfg.Now).Sub(since), ok
		}
	}
	next, what, err := Step(found, observed, &o.policy)
	if err != nil || next == nil {
		return err
	}
	return o.save(ctx, record, next, ReasonRotation, what)
}

// lossMessage says what has happened to the stored state, of which this process remembers a later version.
func (o *OwnCA) lossMessage(damage error) string {
	switch {
	case damage == nil:
		return "another client wrote another CA, or an older state"
	case errors.Is(damage, ErrEmpty):
		return "the CA was deleted"
	default:
		return "the CA was damaged: " + damage.Error()
	}
}

// save writes a state, and returns ErrConflict so that what was written is read before the next step.
func (o *OwnCA) save(ctx context.Context, record Record, s *State, reason, what string) error {
	data, err := Encode(s)
	if err == nil {
		err = o.cfg.Store.Save(ctx, record, data)
	}
	if err != nil {
		return err
	}
	const short = 12 // characters, of which no two CAs have the same
	event := EventOf(SelfSignedCA, s.Active.Cert)
	event.Reason, event.Object = reason, o.cfg.Store.Object()
	event.Message = fmt.Sprintf("%s (%s, active %s", what, s.Phase(), s.Active.ID()[:short])
	if s.Next != nil {
		event.Message += ", next " + s.Next.ID()[:short]
	}
	event.Message += ")"
	if o.cfg.Notify != nil {
		o.cfg.Notify(event)
	}
	return ErrConflict
}

func sameState(a, b *State) bool {
	return a.Generation == b.Generation && a.Phase() == b.Phase() && a.Active.Cert.Equal(b.Active.Cert)
}

func (o *OwnCA) remember(s *State) {
	if old := o.state.Swap(s); old == nil || !sameState(old, s) {
		o.mu.Lock()
		close(o.changed)
		o.changed = make(chan struct{})
		o.mu.Unlock()
	}
}

// track records since when the state is in its phase, and since when every registration trusts its CAs. Every
// process does so: the one that is elected knows what it has seen before.
func (o *OwnCA) track(s *State) {
	now := monotonic(o.cfg.Now)
	if key := string(s.Phase()) + s.Active.ID(); key != o.phaseKey {
		o.phaseKey, o.phaseSince = key, now
	}
	known := map[string]time.Time{}
	for _, a := range s.Authorities() {
		if o.cfg.Trust == nil || o.cfg.Trust.Holds(a.Cert) != nil {
			continue
		}
		known[a.ID()] = now
		if since, ok := o.trusted[a.ID()]; ok {
			known[a.ID()] = since
		}
	}
	o.trusted = known
}

// renew issues another serving certificate if the one there is is not of the active CA, or is due. It expires
// LeafLife after the store was read: by then, the CA may be trusted no longer.
func (o *OwnCA) renew(state *State, now time.Time) error {
	leaf := o.leaf.Load()
	if isValid(leaf, now) && state.Active.signed(leaf) && !IsDue(leaf.Leaf, now) {
		return nil
	}
	end := o.readAt.Add(o.policy.LeafLife)
	if leaf != nil && state.Active.signed(leaf) && !end.After(leaf.Leaf.NotAfter) {
		return nil // the store cannot be read, which is reported
	}
	if err := checkValidity(state.Active.Cert, now); err != nil {
		return fmt.Errorf("the CA is %w", err)
	}
	pair, err := state.Active.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "gatehouse"},
		DNSNames:    o.dns,
		IPAddresses: o.ips,
		NotBefore:   now.Add(-Backdate),
		NotAfter:    end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	o.leaf.Store(pair)
	o.served.report(EventOf(ServingCertificate, pair.Leaf))
	return nil
}

// lasts reports whether a problem is to be reported: a right that is missing only from the second round on, because an install may be
// about to grant it. It reports when a right is there again.
func (o *OwnCA) lasts(err error) bool {
	if apierrors.IsForbidden(err) {
		o.refusals++
		return o.refusals > 1
	}
	if state := o.state.Load(); err == nil && state != nil && o.refusals > 1 && o.cfg.Notify != nil {
		event := EventOf(SelfSignedCA, state.Active.Cert)
		event.Object, event.Reason, event.Message = o.cfg.Store.Object(), ReasonStoreAvailable, fmt.Sprintf("%s can be read and written again", o.cfg.Store)
		o.cfg.Notify(event)
	}
	if err == nil {
		o.refusals = 0
	}
	return true
}

// reportProblem reports the problem of a round, or a certificate that should have been renewed, once as long as it
// lasts.
func (o *OwnCA) reportProblem(now time.Time, err error) {
	event := Event{Subject: SelfSignedCA, Object: o.cfg.Store.Object()}
	state, leaf := o.state.Load(), o.leaf.Load()
	if state != nil {
		event = EventOf(SelfSignedCA, state.Active.Cert)
		event.Object = o.cfg.Store.Object()
	}
	switch {
	case err != nil:
		event.Reason, event.Err = ReasonStoreFailed, err
	case leaf != nil && leaf.Leaf.NotAfter.Sub(now) < o.policy.LeafLife/6:
		event.Reason, event.Err = ReasonExpiring, fmt.Errorf("the serving certificate expires at %s and was not renewed", stamp(leaf.Leaf.NotAfter))
	case state != nil && state.Phase() != Activated && state.Active.Cert.NotAfter.Sub(now) < 2*o.policy.LeafLife:
		event.Reason, event.Err = ReasonExpiring, fmt.Errorf("the CA expires at %s and was not replaced: a replica must be elected, and every registration trust the next one", stamp(state.Active.Cert.NotAfter))
	}
	o.problems.report(event)
}

// splitHosts separates names from addresses. The error names each host that is neither.
func splitHosts(hosts []string) (dns []string, ips []net.IP, err error) {
	var wrong []string
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else if name := strings.ToLower(host); isDNSName(name) {
			dns = append(dns, name)
		} else {
			wrong = append(wrong, fmt.Sprintf("host %.80q is neither a DNS name nor an IP address: write it without scheme, port and brackets", host))
		}
	}
	if len(wrong) > 0 {
		return nil, nil, errors.New(strings.Join(wrong, "; "))
	}
	return dns, ips, nil
}

// isDNSName reports whether a name is valid in a certificate: labels of letters, digits and
// dashes, the first one may be a star. A name of digits and dots is a mistyped address.
func isDNSName(name string) bool {
	if len(name) > 253 || strings.Trim(name, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
