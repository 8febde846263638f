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

// Gate decides when a certificate that somebody else issued takes the place of
// the one that is served: after every registration has been seen to trust it, for
// so long that the last client noticed too. Its zero value lets everything pass.
// It is not safe for concurrent use.
type Gate struct {
	// Trust is what clients have been told to trust. Nil is not known to anybody:
	// what is found is taken.
	Trust certs.Trust
	// Hold is how long every registration has to trust a certificate of another
	// issuer before it is taken. Zero takes it as soon as they do.
	Hold time.Duration

	// issuer is that of what was found, and since is from when on registrations
	// have been seen to trust it without an interruption, zero if they do not.
	issuer *x509.Certificate
	since  time.Time
}

// Decision is what a Gate says about a certificate.
type Decision struct {
	// Take tells to serve it from now on.
	Take bool
	// Why says what the decision rests on, for an administrator.
	Why string
	// Until is when one that waits is taken at the latest: the end of a hold, or of
	// the certificate that is served.
	Until time.Time
}

// Decide tells whether found takes the place of current, which is nil if nothing
// is served. Both have their Leaf set, and found is valid now. It is asked again
// with every change of Trust, and from time to time: what was trusted without an
// interruption is known as far as it was asked.
//
// What clients are known not to trust waits as long as they accept what is
// served. What nobody knows about, or is held, waits until shortly before the
// end of that: clocks differ.
func (g *Gate) Decide(current, found *tls.Certificate, now time.Time) Decision {
	if g.Trust == nil {
		return Decision{Take: true, Why: "nobody says what clients trust"}
	}
	doubt := g.Trust.Verify(found, now)
	g.note(found, doubt, now)
	if current == nil {
		return Decision{Take: true, Why: "there is nothing else to serve"}
	}
	if invalid := pki.CheckPair(current, now); invalid != nil {
		return Decision{Take: true, Why: "the one before it is of no use: " + invalid.Error()}
	}
	var (
		end    = current.Leaf.NotAfter
		soon   = end.Add(-endMargin(current.Leaf))
		ending = !now.Before(soon)
		held   = g.since.Add(g.Hold)
	)
	switch {
	case ending && (doubt == nil || errors.Is(doubt, certs.ErrUnread)):
		return Decision{Take: true, Why: "the one before it ends at " + clock.Stamp(end)}
	case errors.Is(doubt, certs.ErrUnread):
		return Decision{Why: "nobody knows whether registrations trust it: " + summary(doubt), Until: soon}
	case doubt != nil && ending && g.Trust.Verify(current, now) != nil:
		return Decision{Take: true, Why: "the one before it ends at " + clock.Stamp(end) + ", and is not trusted either"}
	case doubt != nil:
		return Decision{Why: "registrations do not trust it: " + summary(doubt), Until: end}
	case sameIssuer(current.Leaf, found.Leaf):
		return Decision{Take: true, Why: "it is of the same issuer as the one before it"}
	case g.Trust.Verify(current, now) != nil:
		return Decision{Take: true, Why: "every registration trusts it, and the one before it no more"}
	case !now.Before(held):
		return Decision{Take: true, Why: "every registration trusts it since " + clock.Stamp(g.since)}
	default:
		return Decision{
			Why:   fmt.Sprintf("every registration trusts it since %s, and a new issuer is held for %s", clock.Stamp(g.since), g.Hold),
			Until: clock.Earlier(held, soon),
		}
	}
}

// misnamed is an error if found is not for a name by which registrations call, and
// current is for all of them: no wait brings such a certificate into use.
func (g *Gate) misnamed(current, found *tls.Certificate, now time.Time) error {
	if g.Trust == nil {
		return nil
	}
	doubt := g.Trust.Verify(found, now)
	if doubt == nil {
		return nil
	}
	other := otherName(doubt)
	if other == "" {
		return nil
	}
	if doubt := g.Trust.Verify(current, now); doubt != nil && otherName(doubt) != "" {
		return nil // it is no worse
	}
	return fmt.Errorf("it is not for %s: it will not be used: have it issued for every name that is called, or correct the clientConfig", other)
}

// note keeps since. A newer certificate of the same issuer does not begin a hold
// anew: it is the issuer that clients have to know.
func (g *Gate) note(found *tls.Certificate, doubt error, now time.Time) {
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

// succession is one certificate that somebody else issued after the other.
type succession struct {
	gate Gate
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
func (s *succession) next(current, found *tls.Certificate, place string, now time.Time) (*tls.Certificate, error) {
	var refused, waits error
	switch {
	case found == nil:
	case current != nil && pki.SamePair(found, current):
		s.waiting = nil
	default:
		if refused = s.refuse(current, found, now); refused == nil {
			s.waiting = found
		}
	}
	if s.waiting != nil && s.refuse(current, s.waiting, now) != nil {
		s.waiting = nil // it ended while it waited, or registrations call by another name now
	}
	if s.waiting != nil {
		d := s.gate.Decide(current, s.waiting, now)
		if d.Take {
			current, s.waiting = s.waiting, nil
		} else {
			s.until = d.Until
			waits = fmt.Errorf("%s: %w: %s; it will be by %s", place, ErrWaiting, d.Why, clock.Stamp(d.Until))
		}
	}
	if refused != nil {
		refused = fmt.Errorf("not in use, the one before it is until %s: %s: %w", clock.Stamp(current.Leaf.NotAfter), place, refused)
	}
	return current, beside(refused, waits)
}

// refuse is why a certificate is not even waited for. It is nil if nothing better
// is served.
func (s *succession) refuse(current, found *tls.Certificate, now time.Time) error {
	if !validNow(current, now) {
		return nil
	}
	if err := pki.CheckPair(found, now); err != nil {
		return err
	}
	return s.gate.misnamed(current, found, now)
}

// beside is why the newest is refused, and behind that what waits; each may be nil.
// It is ErrWaiting only if nothing is refused: somebody has to act otherwise.
func beside(refused, waits error) error {
	switch {
	case refused == nil:
		return waits
	case waits == nil:
		return refused
	default:
		return fmt.Errorf("%w; %s", refused, waits.Error())
	}
}

// validNow tells whether there is a certificate, and it is valid.
func validNow(pair *tls.Certificate, now time.Time) bool {
	return pair != nil && pki.CheckPair(pair, now) == nil
}
