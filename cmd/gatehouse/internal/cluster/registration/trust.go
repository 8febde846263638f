package registration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
)

var (
	errNoCertificate = errors.New("there is no serving certificate yet")
	errNoBundle      = errors.New("has no caBundle, so API servers trust only the CAs of their own system: with --publish-ca-bundle the elected replica writes it, see its log; without, apply the output of gatehouse manifests with the CA")
	errNoticed       = errors.New("all webhook configurations trust the serving certificate: waiting a second until API servers have read them")
)

// noticeTime is how long API servers usually take to notice a bundle.
const noticeTime = time.Second

// Verify implements certs.Trust: it does what kube-apiserver does in a handshake.
// A webhook without a caBundle is a problem, because what the API server's system
// trusts is not known here.
func (r *Reader) Verify(cert *tls.Certificate, now time.Time) error {
	if len(r.targets) == 0 {
		return nil
	}
	if cert == nil {
		return errNoCertificate
	}
	return r.verify(func(w *webhook) error { return w.verify(cert, now) })
}

// Holds implements certs.Trust.
func (r *Reader) Holds(ca *x509.Certificate) error {
	return r.verify(func(w *webhook) error {
		switch {
		case w.bundle.empty:
			return errNoBundle
		case !w.bundle.has(ca):
			return fmt.Errorf("its caBundle does not have the CA %q with SHA-256 %s", ca.Subject, certs.ID(ca))
		}
		return nil
	})
}

// verify verifies every webhook of ours, and returns all errors in the order of the names: a configuration that was not
// read, does not exist or has no webhook of ours is an error too.
func (r *Reader) verify(verify func(*webhook) error) error {
	known := r.snapshot()
	var problems []error
	for i := range r.targets {
		problems = append(problems, r.verifyTarget(i, known, verify))
	}
	return errors.Join(problems...)
}

func (r *Reader) verifyTarget(i int, known []targetState, verify func(*webhook) error) error {
	t, o := r.targets[i], known[i].found
	switch {
	case !known[i].read:
		return fmt.Errorf("%s: %w", t, certs.ErrUnread)
	case o == nil && r.isMissed(i, known):
		return fmt.Errorf("%s: not found: apply the output of gatehouse manifests", t)
	case o == nil:
		return nil
	}
	var (
		called   []string
		problems []error
		reasons  []string
		ours     bool
	)
	webhooks := map[string][]string{}
	for j := range o.webhooks {
		w := &o.webhooks[j]
		if !w.isOurs(r.cfg.Hosts) {
			called = append(called, fmt.Sprintf("%q calls %q", w.name, w.server))
			continue
		}
		ours = true
		if err := verify(w); err != nil {
			if !slices.Contains(reasons, err.Error()) {
				reasons = append(reasons, err.Error())
			}
			webhooks[err.Error()] = append(webhooks[err.Error()], strconv.Quote(w.name))
		}
	}
	switch {
	case len(o.webhooks) == 0:
		return fmt.Errorf("%s: has no webhooks: apply the output of gatehouse manifests", t)
	case !ours:
		return fmt.Errorf("%s: none of its webhooks calls Gatehouse: %s, but the certificate is for %q: apply the output of gatehouse manifests for one of these names, serve that name too, or set another --registration",
			t, strings.Join(called, ", "), r.cfg.Hosts)
	}
	for _, reason := range reasons {
		problems = append(problems, fmt.Errorf("%s, webhook %s: %s", t, certs.Enumerate(webhooks[reason]), reason))
	}
	return errors.Join(problems...)
}

// verify does what a TLS client does that trusts the bundle and calls the server by its name.
func (w *webhook) verify(cert *tls.Certificate, now time.Time) error {
	if w.bundle.empty {
		return errNoBundle
	}
	if w.server == "" {
		return errors.New("its clientConfig names no server")
	}
	intermediates := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(parsed)
		}
	}
	_, err := cert.Leaf.Verify(x509.VerifyOptions{
		DNSName: w.server, Roots: w.bundle.pool, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err == nil {
		return nil
	}
	remark := ""
	if w.bundle.remark != "" {
		remark = ", and " + w.bundle.remark
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("its caBundle does not have the CA that signed the serving certificate (%w)%s", err, remark)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("it calls %q, and the serving certificate is not for that name: serve the name too, or correct the clientConfig (%w)", w.server, err)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		// What x509 says has the time in it, and a state that lasts is reported once.
		return fmt.Errorf("the serving certificate or one that signed it has expired or is not valid yet: check the clock, or renew it (%q is valid from %s until %s)%s",
			invalid.Cert.Subject, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339), remark)
	}
	return fmt.Errorf("its caBundle does not verify the serving certificate (%w)%s", err, remark)
}

// Ready returns the error of Verify until the certificate has been trusted for noticeTime, in which API servers notice the
// bundle. After that it always returns nil: neither an API server that cannot be reached nor a deleted registration makes
// a replica unready on which other parts depend. The time counts from the first call; MonitorTrust calls Ready.
func (r *Reader) Ready(cert *tls.Certificate) error {
	if r.ready.Load() || len(r.targets) == 0 {
		return nil
	}
	err := r.Verify(cert, r.cfg.Now().Round(0))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := time.Now(); {
	case err != nil:
		r.verified = time.Time{}
		return err
	case r.verified.IsZero():
		r.verified = now
		return errNoticed
	case now.Sub(r.verified) < noticeTime:
		return errNoticed
	}
	r.ready.Store(true)
	return nil
}

// Verdict reports whether a configuration trusts a certificate.
type Verdict struct {
	Kind Kind
	Name string
	// Err is why it does not, nil if it does.
	Err error
}

// Verdicts verifies a certificate, which may be nil, against the configurations that exist, and those that are missing, in the
// order of the names.
func (r *Reader) Verdicts(cert *tls.Certificate, now time.Time) []Verdict {
	var list []Verdict
	known := r.snapshot()
	for i, t := range r.targets {
		if known[i].read && known[i].found == nil && !r.isMissed(i, known) {
			continue
		}
		err := errNoCertificate
		if cert != nil {
			err = r.verifyTarget(i, known, func(w *webhook) error { return w.verify(cert, now) })
		}
		list = append(list, Verdict{t.kind, t.name, err})
	}
	return list
}

// distrustTime is how long a configuration may distrust the serving certificate
// before that is reported: a repair may be in progress.
const distrustTime = 5 * time.Second

// MonitorTrust reports each configuration that does not trust the serving certificate,
// with ReasonUntrusted, and when it trusts it again, until the context ends. serving
// returns the serving certificate, nil if there is none: then nothing is reported.
//
// It evaluates Ready too, so that the first probe gets the final answer.
func (r *Reader) MonitorTrust(ctx context.Context, serving func() *tls.Certificate) error {
	known := map[string]*distrusted{}
	for {
		changed := r.Changed()
		cert := serving()
		pause := distrustTime
		if r.Ready(cert) != nil {
			pause = noticeTime / 2
		}
		if cert != nil {
			for _, v := range r.Verdicts(cert, r.cfg.Now().Round(0)) {
				t := target{v.Kind, v.Name}
				if known[t.String()] == nil {
					known[t.String()] = &distrusted{}
				}
				known[t.String()].report(t, v.Err, r.cfg.Notify)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// distrusted is a configuration that may not trust the serving certificate.
type distrusted struct {
	since    time.Time
	reported string
}

func (d *distrusted) report(t target, err error, notify func(certs.Event)) {
	if errors.Is(err, certs.ErrUnread) || notify == nil {
		return
	}
	event := certs.Event{Subject: Subject, Object: t.reference()}
	switch {
	case err == nil:
		d.since = time.Time{}
		if d.reported == "" {
			return
		}
		event.Reason, event.Message = certs.ReasonTrusted, t.String()+" trusts the serving certificate again"
		d.reported = ""
	case d.since.IsZero():
		d.since = time.Now()
		return
	case time.Since(d.since) < distrustTime || d.reported == err.Error():
		return
	default:
		event.Reason, event.Err = certs.ReasonUntrusted, err
		d.reported = err.Error()
	}
	notify(event)
}
