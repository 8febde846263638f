package source

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"time"
)

// ErrWaiting is what an Event wraps as long as the newest certificate is good and
// not in use yet, because clients do not trust it or have not for long enough.
// Nothing is wrong, and nothing has to be done about what is here. An Event wraps it
// no more once something newer is found that is refused.
var ErrWaiting = errors.New("a new certificate is not in use yet")

// rolloverPolicy decides when a certificate that somebody else issued takes the place of
// the one that is served: after every registration has been seen to trust it, for
// so long that the last client noticed too. Its zero value lets everything pass.
// It is not safe for concurrent use.
type rolloverPolicy struct {
	// trust is what clients have been told to trust. Nil is not known to anybody:
	// what is found is taken.
	trust certs.Trust
	// hold is how long every registration has to trust a certificate of another
	// issuer before it is taken. Zero takes it as soon as they do.
	hold time.Duration

	// issuer is that of what was found, and since is from when on registrations
	// have been seen to trust it without an interruption, zero if they do not.
	issuer *x509.Certificate
	since  time.Time
}

// decision is what a Gate says about a certificate.
type decision struct {
	// accept tells to serve it from now on.
	accept bool
	// reason says what the decision rests on, for an administrator.
	reason string
	// latest is when one that waits is taken at the latest: the end of a hold, or of
	// the certificate that is served.
	latest time.Time
}

// decide tells whether found takes the place of current, which is nil if nothing
// is served. Both have their Leaf set, and found is valid now. It is asked again
// with every change of Trust, and from time to time: what was trusted without an
// interruption is known as far as it was asked.
//
// What clients are known not to trust waits as long as they accept what is
// served. What nobody knows about, or is held, waits until shortly before the
// end of that: clocks differ.
func (g *rolloverPolicy) decide(current, found *tls.Certificate, now time.Time) decision {
	if g.trust == nil {
		return decision{accept: true, reason: "nobody says what clients trust"}
	}
	doubt := g.trust.Verify(found, now)
	g.track(found, doubt, now)
	if current == nil {
		return decision{accept: true, reason: "there is nothing else to serve"}
	}
	if invalid := pki.CheckPair(current, now); invalid != nil {
		return decision{accept: true, reason: "the one before it is of no use: " + invalid.Error()}
	}
	var (
		end    = current.Leaf.NotAfter
		soon   = end.Add(-endMargin(current.Leaf))
		ending = !now.Before(soon)
		held   = g.since.Add(g.hold)
	)
	switch {
	case ending && (doubt == nil || errors.Is(doubt, certs.ErrUnread)):
		return decision{accept: true, reason: "the one before it ends at " + clock.Stamp(end)}
	case errors.Is(doubt, certs.ErrUnread):
		return decision{reason: "nobody knows whether registrations trust it: " + summary(doubt), latest: soon}
	case doubt != nil && ending && g.trust.Verify(current, now) != nil:
		return decision{accept: true, reason: "the one before it ends at " + clock.Stamp(end) + ", and is not trusted either"}
	case doubt != nil:
		return decision{reason: "registrations do not trust it: " + summary(doubt), latest: end}
	case sameIssuer(current.Leaf, found.Leaf):
		return decision{accept: true, reason: "it is of the same issuer as the one before it"}
	case g.trust.Verify(current, now) != nil:
		return decision{accept: true, reason: "every registration trusts it, and the one before it no more"}
	case !now.Before(held):
		return decision{accept: true, reason: "every registration trusts it since " + clock.Stamp(g.since)}
	default:
		return decision{
			reason: fmt.Sprintf("every registration trusts it since %s, and a new issuer is held for %s", clock.Stamp(g.since), g.hold),
			latest: clock.Earlier(held, soon),
		}
	}
}

// checkNames is an error if found is not for a name by which registrations call, and
// current is for all of them: no wait brings such a certificate into use.
func (g *rolloverPolicy) checkNames(current, found *tls.Certificate, now time.Time) error {
	if g.trust == nil {
		return nil
	}
	doubt := g.trust.Verify(found, now)
	if doubt == nil {
		return nil
	}
	other := namesNotServed(doubt)
	if other == "" {
		return nil
	}
	if doubt := g.trust.Verify(current, now); doubt != nil && namesNotServed(doubt) != "" {
		return nil // it is no worse
	}
	return fmt.Errorf("it is not for %s: it will not be used: have it issued for every name that is called, or correct the clientConfig", other)
}

// track keeps since. A newer certificate of the same issuer does not begin a hold
// anew: it is the issuer that clients have to know.
func (g *rolloverPolicy) track(found *tls.Certificate, doubt error, now time.Time) {
	other := g.issuer == nil || !g.issuer.Equal(found.Leaf) && !sameIssuer(g.issuer, found.Leaf)
	g.issuer = found.Leaf
	switch {
	case doubt != nil:
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

// sameIssuer tells whether the same key of the same name signed both. Without the
// identifier of the key nobody can tell.
func sameIssuer(a, b *x509.Certificate) bool {
	return len(a.AuthorityKeyId) > 0 && bytes.Equal(a.AuthorityKeyId, b.AuthorityKeyId) && bytes.Equal(a.RawIssuer, b.RawIssuer)
}

// rollover is one certificate that somebody else issued after the other.
type rollover struct {
	policy rolloverPolicy
	// waiting is the newest that was found and is not in use yet. It is remembered,
	// so that what becomes of its files does not matter any more.
	waiting *tls.Certificate
	// until is when that is taken at the latest, as far as was known at the last
	// look.
	until time.Time
}

// next is what to serve now, of the certificate that is served and the one that
// was found at a place; each may be nil. The error says why what was found is not
// what is served, and first why it is refused.
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
			waits = fmt.Errorf("%s: %w: %s; it will be by %s", place, ErrWaiting, d.reason, clock.Stamp(d.latest))
		}
	}
	if refused != nil {
		refused = fmt.Errorf("not in use, the one before it is until %s: %s: %w", clock.Stamp(current.Leaf.NotAfter), place, refused)
	}
	return current, joinRefusal(refused, waits)
}

// checkUsable is why a certificate is not even waited for. It is nil if nothing better
// is served.
func (s *rollover) checkUsable(current, found *tls.Certificate, now time.Time) error {
	if !isValidNow(current, now) {
		return nil
	}
	if err := pki.CheckPair(found, now); err != nil {
		return err
	}
	return s.policy.checkNames(current, found, now)
}

// joinRefusal is why the newest is refused, and behind that what waits; each may be nil.
// It is ErrWaiting only if nothing is refused: somebody has to act otherwise.
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

// isValidNow tells whether there is a certificate, and it is valid.
func isValidNow(pair *tls.Certificate, now time.Time) bool {
	return pair != nil && pki.CheckPair(pair, now) == nil
}
