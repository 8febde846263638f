package certs

import (
	"crypto/x509"
	"fmt"
	"time"
)

// Observation is what is known besides the state.
type Observation struct {
	// Now is the time by the wall clock.
	Now time.Time
	// Watched is for how long this process has seen the state in its phase. It does not depend on a
	// clock that is set.
	Watched time.Duration
	// Trusted returns for how long this process has seen that every registration trusts a CA, without
	// an interruption, and whether they do. It is nil if there are no registrations to read.
	Trusted func(ca *x509.Certificate) (since time.Duration, ok bool)
	// Request is the last request of an administrator for a new CA, "" if there was none.
	Request string
}

// Policy configures Step.
type Policy struct {
	// New makes a CA.
	New func(now time.Time) (*Authority, error)
	// LeafLife is how long a serving certificate is valid.
	LeafLife time.Duration
	// Hold is how long a CA is trusted by all clients before it signs: longer than the slowest API
	// server needs to notice a change, and than a replica needs to read the state.
	Hold time.Duration
}

// DefaultHold is the default of Policy.Hold.
const DefaultHold = 10 * time.Minute

// Step returns the next state, nil if no step is due, and a description of it for an
// administrator. An error says why a step that is due cannot be taken.
//
// In this order no handshake fails: API servers trust a CA before they see a certificate of it, and
// until no replica serves one.
//
//	Stable     one CA is trusted, and signs
//	Published  a second one is stored and written into every registration, and held there
//	Activated  the second one signs; replicas read the state, and issue their certificates again
//	Stable     the first one is removed
//
// It takes one step at most, so that each is stored before the next.
func Step(s *State, o *Observation, p *Policy) (next *State, what string, err error) {
	switch {
	case o.Now.Before(s.Active.Cert.NotBefore):
		return nil, "", fmt.Errorf("the CA is not valid before %s: check the clock of this machine", stamp(s.Active.Cert.NotBefore))
	case o.Now.After(s.Active.Cert.NotAfter):
		return s.replace(o, p)
	case s.Hold != p.Hold:
		n := *s
		n.Generation++
		n.Hold = p.Hold
		return &n, "each wait of a rotation lasts " + p.Hold.String(), nil
	case s.Next != nil:
		next, what = s.whilePublished(o, p)
		return next, what, nil
	case s.Retired != nil:
		next, what = s.whileActivated(o, p)
		return next, what, nil
	}
	n := s.enter(o.Now)
	switch {
	case o.Request != "" && o.Request != s.Done:
		n.Requested, n.Done, what = true, o.Request, "a new CA is published beside the old one: it was requested"
	case IsDue(s.Active.Cert, o.Now):
		n.Requested, what = false, "a new CA is published beside the old one: two thirds of the old one's lifetime have passed"
	default:
		return nil, "", nil
	}
	if n.Next, err = p.New(o.Now); err != nil {
		return nil, "", err
	}
	return n, what, nil
}

// enter returns a copy of the state in another phase.
func (s *State) enter(now time.Time) *State {
	n := *s
	n.Generation++
	n.Since = now
	return &n
}

// replace replaces a CA that has expired at once: nothing that it signed is accepted any more.
func (s *State) replace(o *Observation, p *Policy) (next *State, what string, err error) {
	n := s.enter(o.Now)
	n.Retired, n.Next, n.Done = nil, nil, o.Request
	if s.Next != nil && o.Now.Before(s.Next.Cert.NotAfter) {
		n.Active = s.Next
		return n, "the CA has expired, and the next one signs at once", nil
	}
	if n.Active, err = p.New(o.Now); err != nil {
		return nil, "", err
	}
	return n, "the CA has expired, and a new one signs at once: calls fail until every registration has it", nil
}

// whilePublished waits until every client has trusted the next CA for the hold. Without registrations to
// read, a rotation that was not requested waits for as long as the old CA can sign a whole serving
// certificate: that leaves months to configure clients.
func (s *State) whilePublished(o *Observation, p *Policy) (*State, string) {
	if o.Request != "" && o.Request != s.Done {
		n := *s
		n.Generation++
		n.Requested, n.Done = true, o.Request
		return &n, "the CA that is published fulfills the request"
	}
	if o.Trusted != nil {
		if since, ok := o.Trusted(s.Next.Cert); !ok || since < p.Hold {
			return nil, ""
		}
	} else if o.Watched < p.Hold || !s.Requested && o.Now.Add(p.LeafLife).Before(s.Active.Cert.NotAfter) {
		return nil, ""
	}
	n := s.enter(o.Now)
	// The key of the old one is dropped, so that it cannot be stolen.
	n.Retired, n.Active, n.Next = &Authority{Cert: s.Active.Cert}, s.Next, nil
	return n, "the new CA signs"
}

// whileActivated waits until no replica serves a certificate of the retired CA. That is certain when the
// last one that it signed has expired. If an administrator asked for the rotation, they get it as soon as
// every replica has had the hold to read the state.
func (s *State) whileActivated(o *Observation, p *Policy) (*State, string) {
	if o.Request != "" && o.Request != s.Done && !s.Requested {
		n := *s
		n.Generation++
		n.Requested = true
		return &n, "the old CA will be removed soon: another rotation was requested"
	}
	if o.Trusted != nil {
		if _, ok := o.Trusted(s.Active.Cert); !ok {
			return nil, ""
		}
	}
	if o.Watched < p.Hold || !s.Requested && o.Now.Before(s.Since.Add(p.LeafLife+p.Hold)) { // clocks differ
		return nil, ""
	}
	n := s.enter(o.Now)
	n.Retired = nil
	return n, "the old CA is removed"
}
