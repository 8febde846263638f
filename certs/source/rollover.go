package source

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// ErrWaiting means that the newest certificate is valid and not served yet, because clients
// do not trust it or have not for long enough. Nothing has to be done. An Event does not wrap
// it if a newer certificate is refused.
var ErrWaiting = errors.New("a new certificate is not served yet")

// rolloverPolicy decides when a certificate that another program issued replaces the one
// that is served: after every registration has been seen to trust it for the hold. Its
// zero value accepts everything. It is not safe for concurrent use.
type rolloverPolicy struct {
	// trust is what clients trust. If it is nil, every certificate is accepted.
	trust certs.Trust
	// hold is how long every registration must trust a certificate of another issuer
	// before it is accepted.
	hold time.Duration

	// issuer is that of the newest certificate, and since is from when on registrations
	// have trusted it without an interruption, zero if they do not.
	issuer *x509.Certificate
	since  time.Time
}

// decision is the result of rolloverPolicy.decide.
type decision struct {
	// accept reports whether the certificate is served from now on.
	accept bool
	// reason explains to an administrator why a certificate waits.
	reason string
	// latest is when a certificate that waits is accepted at the latest: the end of the
	// hold, or of the served certificate.
	latest time.Time
}

// decide reports whether found replaces current, which is nil if nothing is served.
// Both have their Leaf set, and found is valid now. It has to be called at every change
// of trust and from time to time: trust is known as far as it was asked.
//
// A certificate that clients do not trust waits as long as they accept current. If
// trust is not known, or is too recent, it waits until shortly before current ends:
// clocks differ.
func (g *rolloverPolicy) decide(current, found *tls.Certificate, now time.Time) decision {
	if g.trust == nil {
		return decision{accept: true}
	}
	distrust := g.trust.Verify(found, now)
	g.track(found, distrust, now)
	if !isValidNow(current, now) {
		return decision{accept: true}
	}
	var (
		end       = current.Leaf.NotAfter
		soon      = end.Add(-endMargin(current.Leaf))
		ending    = !now.Before(soon)
		held      = g.since.Add(g.hold)
		unread    = errors.Is(distrust, certs.ErrUnread)
		untrusted = !unread && g.trust.Verify(current, now) != nil
	)
	switch {
	case ending && (distrust == nil || unread || untrusted):
		return decision{accept: true}
	case unread:
		return decision{reason: "it is unknown whether registrations trust it: " + summary(distrust), latest: soon}
	case distrust != nil:
		return decision{reason: "registrations do not trust it: " + summary(distrust), latest: end}
	case untrusted, !now.Before(held), sameIssuer(current.Leaf, found.Leaf):
		return decision{accept: true}
	default:
		return decision{
			reason: fmt.Sprintf("every registration has trusted it since %s, and a new issuer must be trusted for %s", clock.Stamp(g.since), g.hold),
			latest: clock.Earlier(held, soon),
		}
	}
}

// checkNames returns an error if found lacks a name that registrations call, and
// current has all of them: such a certificate is never accepted.
func (g *rolloverPolicy) checkNames(current, found *tls.Certificate, now time.Time) error {
	if g.trust == nil {
		return nil
	}
	distrust := g.trust.Verify(found, now)
	if distrust == nil {
		return nil
	}
	other := namesNotServed(distrust)
	if other == "" {
		return nil
	}
	if distrust := g.trust.Verify(current, now); distrust != nil && namesNotServed(distrust) != "" {
		return nil // it is no worse
	}
	return fmt.Errorf("it lacks %s, which registrations call, and is not served: issue it for every name that is called, or correct the clientConfig", other)
}

// track updates since. A newer certificate of the same issuer does not restart the
// hold: clients have to trust the issuer.
func (g *rolloverPolicy) track(found *tls.Certificate, distrust error, now time.Time) {
	other := g.issuer == nil || !g.issuer.Equal(found.Leaf) && !sameIssuer(g.issuer, found.Leaf)
	g.issuer = found.Leaf
	switch {
	case distrust != nil:
		g.since = time.Time{}
	case other, g.since.IsZero(), g.since.After(now):
		g.since = now
	}
}

// endMargin is how long before its end a certificate counts as ending: the clock
// of a client may be ahead.
func endMargin(cert *x509.Certificate) time.Duration {
	return min(time.Hour, cert.NotAfter.Sub(cert.NotBefore)/10)
}

// sameIssuer reports whether the same key and name signed both. It is false if the
// identifier of the key is missing.
func sameIssuer(a, b *x509.Certificate) bool {
	return len(a.AuthorityKeyId) > 0 && bytes.Equal(a.AuthorityKeyId, b.AuthorityKeyId) && bytes.Equal(a.RawIssuer, b.RawIssuer)
}

// rollover replaces the serving certificate by those that another program issues.
type rollover struct {
	policy rolloverPolicy
	// waiting is the newest one that is not served yet. It is remembered even if its files
	// are removed.
	waiting *tls.Certificate
	// until is when that is accepted at the latest, as of the last call of next.
	until time.Time
}

// next returns the certificate to serve: the current one, or the one found at a place;
// each may be nil. The error says why the one found is not served.
func (s *rollover) next(current, found *tls.Certificate, place string, now time.Time) (*tls.Certificate, error) {
	var refused, waits error
	switch {
	case found == nil:
	case current != nil && pki.SamePair(found, current):
		s.waiting = nil
	default:
		if refused = s.checkUsable(current, found, now); refused == nil {
			s.waiting = found
		}
	}
	if s.waiting != nil && s.checkUsable(current, s.waiting, now) != nil {
		s.waiting = nil // it ended while it waited, or registrations call by another name now
	}
	if s.waiting != nil {
		d := s.policy.decide(current, s.waiting, now)
		if d.accept {
			current, s.waiting = s.waiting, nil
		} else {
			s.until = d.latest
			waits = fmt.Errorf("%s: %w: %s; it will be served by %s", place, ErrWaiting, d.reason, clock.Stamp(d.latest))
		}
	}
	if refused != nil {
		refused = fmt.Errorf("rejected, the previous certificate stays active until %s: %s: %w", clock.Stamp(current.Leaf.NotAfter), place, refused)
	}
	return current, joinRefusal(refused, waits)
}

// checkUsable returns an error if a certificate is refused and does not even wait. It
// accepts everything if no valid certificate is served.
func (s *rollover) checkUsable(current, found *tls.Certificate, now time.Time) error {
	if !isValidNow(current, now) {
		return nil
	}
	if err := pki.CheckPair(found, now); err != nil {
		return err
	}
	return s.policy.checkNames(current, found, now)
}

// joinRefusal joins why the newest is refused and what waits; each may be nil. The
// result wraps ErrWaiting only if nothing is refused.
func joinRefusal(refused, waits error) error {
	switch {
	case refused == nil:
		return waits
	case waits == nil:
		return refused
	default:
		return fmt.Errorf("%w; %s", refused, waits.Error())
	}
}

// isValidNow reports whether a certificate is not nil and valid.
func isValidNow(pair *tls.Certificate, now time.Time) bool {
	return pair != nil && pki.CheckPair(pair, now) == nil
}
