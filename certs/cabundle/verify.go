package cabundle

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

var (
	errNoCertificate = errors.New("there is no serving certificate yet")
	errNoBundle      = errors.New("has no caBundle: an API server then goes by the authorities of its own system, and whether these know ours cannot be told from here: apply the output of gatehouse manifests with the CA, or have the caBundle written")
)

// Verify implements certs.Trust: it does what kube-apiserver does in a handshake.
// An entry without a caBundle is a problem, because what the API server's system
// trusts is not known here.
func (w *Watcher) Verify(cert *tls.Certificate, now time.Time) error {
	if len(w.groups) == 0 {
		return nil
	}
	chain, err := newChain(cert)
	if err != nil {
		return err
	}
	type question struct {
		bundle *bundle
		server string
	}
	answers := map[question]error{}
	return w.verifyEntries(func(server string, b *bundle) error {
		q := question{b, server}
		answer, known := answers[q]
		if !known {
			answer = chain.verify(b, server, now)
			answers[q] = answer
		}
		return answer
	})
}

// Holds implements certs.Trust.
func (w *Watcher) Holds(ca *x509.Certificate) error {
	return w.verifyEntries(func(_ string, b *bundle) error {
		switch {
		case b.empty:
			return errNoBundle
		case ca == nil:
			return errors.New("there is no CA that its caBundle could have")
		case !b.has(ca):
			return fmt.Errorf("its caBundle does not have the CA %q with SHA-256 %s", ca.Subject, rotation.ID(ca))
		}
		return nil
	})
}

// Fresh implements certs.Trust. It is true where nothing is named.
func (w *Watcher) Fresh() bool {
	known, _ := w.snapshot()
	return !slices.ContainsFunc(known, func(k targetState) bool { return !k.read || k.failed != nil })
}

// Ready is nil from the moment on that Verify is nil for a certificate, whatever
// comes later: an API server that is away, or a registration that somebody takes
// away, makes no replica unready that others depend on. Before that it is what
// Verify says.
//
// It is nil a moment after that at the earliest: API servers learn of a bundle
// from the same place as we do, and not all at once. That moment begins when Ready
// or Doubt looks; while Doubt runs, nobody has to ask for it to pass.
func (w *Watcher) Ready(cert *tls.Certificate) error {
	if w.ready.Load() || len(w.groups) == 0 {
		return nil
	}
	err := w.Verify(cert, w.cfg.Now().Round(0))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch now := time.Now(); {
	case err != nil:
		w.verified = time.Time{}
		return err
	case w.verified.IsZero():
		w.verified = now
		return errNoticed
	case now.Sub(w.verified) < noticeTime:
		return errNoticed
	}
	w.ready.Store(true)
	return nil
}

// noticeTime is how long API servers may take to notice a bundle, on a usual day.
const noticeTime = time.Second

var errNoticed = errors.New("every registration trusts the serving certificate: waiting a second for API servers to notice")

// Verdict is whether a configuration trusts a certificate.
type Verdict struct {
	// Kind and Name are the configuration's.
	Kind, Name string
	Trusted    bool
}

// Verdicts are of the configurations that there are, and of those that are missed,
// in the order of the registrations.
func (w *Watcher) Verdicts(cert *tls.Certificate, now time.Time) []Verdict {
	var list []Verdict
	for _, j := range w.judgements(cert, now) {
		list = append(list, Verdict{Kind: j.target.kind.name, Name: j.target.name, Trusted: j.err == nil})
	}
	return list
}

// judgement is why a configuration does not trust a certificate; err is nil if it does.
type judgement struct {
	target target
	err    error
}

// judgements verifies a certificate against the configurations that exist, and those
// that are missing.
func (w *Watcher) judgements(cert *tls.Certificate, now time.Time) []judgement {
	var list []judgement
	known, bundles := w.snapshot()
	chain, err := newChain(cert)
	for i, k := range known {
		j := judgement{target: w.targets[i], err: err}
		switch {
		case k.found == nil && !w.isMissed(i, known):
			continue
		case !k.read:
			j.err = certs.ErrUnread
		case k.found == nil:
			j.err = fmt.Errorf("%s: not found: apply the output of gatehouse manifests", w.targets[i])
		case err == nil:
			j.err = errors.Join(w.entryErrors(k.found, bundles, func(server string, b *bundle) error { return chain.verify(b, server, now) })...)
		}
		list = append(list, j)
	}
	return list
}

// verifyEntries verifies every entry of ours, and returns all errors in the order of the
// registrations: one that was not read, does not exist or has no entry of ours is an
// error too.
func (w *Watcher) verifyEntries(ask func(server string, b *bundle) error) error {
	known, bundles := w.snapshot()
	var problems []error
	for _, g := range w.groups {
		if p := w.absence(g, known); p != nil {
			problems = append(problems, p.err)
		}
	}
	for i, k := range known {
		switch {
		case !k.read && k.failed != nil:
			problems = append(problems, fmt.Errorf("%w: %w", k.failed.err, certs.ErrUnread))
		case !k.read:
			problems = append(problems, fmt.Errorf("%s: %w", w.targets[i], certs.ErrUnread))
		case k.found == nil:
		default:
			problems = append(problems, w.entryErrors(k.found, bundles, ask)...)
		}
	}
	return errors.Join(problems...)
}

// entryErrors verifies our entries of a configuration, and that it has any.
func (w *Watcher) entryErrors(o *object, bundles map[string]*bundle, verify func(server string, b *bundle) error) []error {
	var problems []error
	if p := w.foreignProblem(o); p != nil {
		problems = append(problems, p.err)
	}
	for _, e := range hosts(w.cfg.Hosts).ours(o) {
		if err := verify(e.server, bundles[e.raw]); err != nil {
			problems = append(problems, &certs.DistrustError{Registration: o.String(), Webhook: e.name, Err: err})
		}
	}
	return problems
}

// chain is a certificate and those that lead to its root, as a server sends them.
type chain struct {
	leaf          *x509.Certificate
	intermediates *x509.CertPool
}

func newChain(cert *tls.Certificate) (*chain, error) {
	if cert == nil || len(cert.Certificate) == 0 {
		return nil, errNoCertificate
	}
	c := &chain{intermediates: x509.NewCertPool()}
	for i, der := range cert.Certificate {
		parsed, err := x509.ParseCertificate(der)
		switch {
		case err != nil:
			return nil, fmt.Errorf("certificate %d of the serving certificate's chain cannot be read: %w", i+1, err)
		case i == 0:
			c.leaf = parsed
		default:
			c.intermediates.AddCert(parsed)
		}
	}
	return c, nil
}

// verify is what a TLS client does that trusts the bundle and calls the server by
// that name.
func (c *chain) verify(b *bundle, server string, now time.Time) error {
	if b.empty {
		return errNoBundle
	}
	if server == "" {
		return errors.New("its clientConfig names no server")
	}
	_, err := c.leaf.Verify(x509.VerifyOptions{
		DNSName:       server,
		Roots:         b.pool,
		Intermediates: c.intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	remark := ""
	if r := b.remark(); r != "" {
		remark = ", and " + r
	}
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return fmt.Errorf("its caBundle does not have the CA that signed the serving certificate (%w)%s", err, remark)
	case errors.As(err, &host):
		return fmt.Errorf("it calls %q, and the serving certificate is not for that name: serve the name too, or correct the clientConfig (%w)", server, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		// What x509 says has the time in it, and a state that lasts is reported once.
		return fmt.Errorf("the serving certificate or one that signed it has expired or is not valid yet: check the clock, or renew it (%q is valid from %s until %s)%s",
			invalid.Cert.Subject, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339), remark)
	default:
		return fmt.Errorf("its caBundle does not verify the serving certificate (%w)%s", err, remark)
	}
}
