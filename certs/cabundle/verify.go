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
	errNoBundle      = errors.New("has no caBundle: an API server then trusts the CAs of its own system, which may lack the CA of Gatehouse: apply the output of gatehouse manifests with the CA, or use --publish-ca-bundle")
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
	return w.verifyEntries(func(e *entry) error { return chain.verify(e.bundle, e.server, now) })
}

// Holds implements certs.Trust.
func (w *Watcher) Holds(ca *x509.Certificate) error {
	return w.verifyEntries(func(e *entry) error {
		switch {
		case e.bundle.empty:
			return errNoBundle
		case ca == nil:
			return errors.New("there is no CA yet to look for in its caBundle")
		case !e.bundle.has(ca):
			return fmt.Errorf("its caBundle does not have the CA %q with SHA-256 %s", ca.Subject, rotation.ID(ca))
		}
		return nil
	})
}

// Fresh implements certs.Trust. Without registrations it returns true.
func (w *Watcher) Fresh() bool {
	return !slices.ContainsFunc(w.snapshot(), func(k targetState) bool { return !k.read || k.failed != nil })
}

// Ready returns the error of Verify until the certificate has been trusted for
// noticeTime, in which API servers notice the bundle. After that it returns nil for
// ever: an API server that is unreachable, or a registration that is deleted, makes no
// replica unready that others depend on. The time is measured from a call of Ready;
// MonitorTrust calls it.
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

// noticeTime is how long API servers usually take to notice a bundle.
const noticeTime = time.Second

var errNoticed = errors.New("every registration trusts the serving certificate: waiting a second until API servers have read it")

// Verdict reports whether a configuration trusts a certificate.
type Verdict struct {
	// Kind and Name are the configuration's.
	Kind, Name string
	Trusted    bool
	// err is why it does not.
	err error
}

// Verdicts verifies a certificate against the configurations that exist, and those that
// are missing, in the order of the registrations.
func (w *Watcher) Verdicts(cert *tls.Certificate, now time.Time) []Verdict {
	var list []Verdict
	known := w.snapshot()
	chain, invalid := newChain(cert)
	for i, k := range known {
		err := invalid
		switch {
		case k.found == nil && !w.isMissed(i, known):
			continue
		case !k.read:
			err = certs.ErrUnread
		case k.found == nil:
			err = fmt.Errorf("%s: not found: apply the output of gatehouse manifests", k.target)
		case err == nil:
			err = errors.Join(w.entryErrors(k.found, func(e *entry) error { return chain.verify(e.bundle, e.server, now) })...)
		}
		list = append(list, Verdict{Kind: string(k.kind), Name: k.name, Trusted: err == nil, err: err})
	}
	return list
}

// verifyEntries verifies every entry of ours, and returns all errors in the order of the
// registrations: one that was not read, does not exist or has no entry of ours is an
// error too.
func (w *Watcher) verifyEntries(verify func(*entry) error) error {
	known := w.snapshot()
	var problems []error
	for _, g := range w.groups {
		if p := w.absence(g, known); p != nil {
			problems = append(problems, p.err)
		}
	}
	for _, k := range known {
		switch {
		case !k.read && k.failed != nil:
			problems = append(problems, fmt.Errorf("%w: %w", k.failed.err, certs.ErrUnread))
		case !k.read:
			problems = append(problems, fmt.Errorf("%s: %w", k.target, certs.ErrUnread))
		case k.found != nil:
			problems = append(problems, w.entryErrors(k.found, verify)...)
		}
	}
	return errors.Join(problems...)
}

// entryErrors verifies our entries of a configuration, and that it has any.
func (w *Watcher) entryErrors(o *object, verify func(*entry) error) []error {
	var problems []error
	if p := w.foreignProblem(o); p != nil {
		problems = append(problems, p.err)
	}
	reasons := map[string]*certs.DistrustError{}
	for _, e := range w.ours(o) {
		err := verify(&e)
		if err == nil {
			continue
		}
		d := reasons[err.Error()]
		if d == nil {
			d = &certs.DistrustError{Registration: o.String(), Err: err}
			reasons[err.Error()] = d
			problems = append(problems, d)
		}
		d.Webhooks = append(d.Webhooks, e.name)
	}
	return problems
}

// chain is a certificate and its intermediates, as a server sends them.
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

// verify does what a TLS client does that trusts the bundle and calls the server by
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
