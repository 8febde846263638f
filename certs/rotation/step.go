package rotation

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"
)

// Report is the heartbeat of a replica.
type Report struct {
	// Replica is its name.
	Replica string
	// Issuer is the ID of the authority of its certificate, "" if it serves none.
	Issuer string
	// SHA256 is the fingerprint of the certificate, in lower-case hexadecimal, and
	// NotAfter its end.
	SHA256   string
	NotAfter time.Time
	// Seen is when the replica was last seen.
	Seen time.Time
	// Version is that of its program.
	Version string
	// Lease is the name of the Lease that holds the report, "" if it is in memory.
	Lease string
}

// Observation is what is known besides the state.
type Observation struct {
	// Now is the time by the wall clock.
	Now time.Time
	// Watched is since when this process has seen the state in its phase and with its
	// cause: Now minus the elapsed time, so that setting a clock has no effect. The clock of
	// the process that began the phase may have been wrong. If it is zero, State.Since counts.
	Watched time.Time
	// Trusts reports whether clients trust an authority, and returns since when they have
	// done so without an interruption, measured as Watched is. It is nil if there are no
	// registrations to read.
	Trusts func(*x509.Certificate) (since time.Time, ok bool)
	// Replicas are the reports of all replicas, unreachable ones included. If Unknown is
	// set they could not be read, and no authority is removed.
	Replicas []Report
	Unknown  bool
}

// Policy configures Step.
type Policy struct {
	// New makes a CA.
	New func(now time.Time) (*Authority, error)
	// LeafLife is how long a serving certificate is valid.
	LeafLife time.Duration
	// Hold is how long a CA is trusted by all clients before it signs, and
	// EmergencyHold that in an emergency.
	Hold, EmergencyHold time.Duration
	// EmergencyWait is how long replicas are waited for in an emergency.
	EmergencyWait time.Duration
}

// The defaults. A hold is longer than the slowest API server needs to notice a change.
const (
	DefaultHold          = 10 * time.Minute
	DefaultEmergencyHold = 10 * time.Second
	DefaultEmergencyWait = time.Minute
)

// began returns when the phase began, as far as this process knows.
func (s *State) began(o *Observation) time.Time {
	if o.Watched.IsZero() {
		return s.Since
	}
	return o.Watched
}

// HoldFor returns how long the hold of a rotation for a cause lasts.
func (p *Policy) HoldFor(c Cause) time.Duration {
	if c == Emergency {
		return min(p.EmergencyHold, p.Hold)
	}
	return p.Hold
}

// Step returns the next state, nil if no step is due, and a description of it for an
// administrator. An error says why a step that is due cannot be taken.
//
// It takes one step at most, so that each is stored before the next.
func Step(s *State, o *Observation, p *Policy) (next *State, what string, err error) {
	if o.Now.Before(s.Current.Cert.NotBefore) && (s.Request == nil || !s.Request.Emergency) {
		return nil, "", fmt.Errorf("the CA is not valid before %s: check the clock of this machine; "+
			"if the clock was wrong when the CA was created, request an emergency rotation", stamp(s.Current.Cert.NotBefore))
	}
	if !s.Current.isUsable(o) {
		// One that is not valid yet gets here only in an emergency: usually the clock is wrong.
		return s.replace(o, p)
	}
	switch s.Phase {
	case Publish:
		next, what, err = s.whilePublishing(o, p)
	case Hold:
		next, what, err = s.whileHolding(o, p)
	case Activate:
		next, what = s.whileActivating(o, p)
	case Stable:
		next, what, err = s.whileStable(o, p)
	default:
		err = fmt.Errorf("unknown phase %q", s.Phase)
	}
	return next, what, err
}

// replace replaces a useless CA at once. One that has not expired stays trusted, for
// replicas that still serve a certificate of it.
func (s *State) replace(o *Observation, p *Policy) (*State, string, error) {
	n := s.activate(o.Now)
	n.Cause = Recovery
	if s.Current.hasExpired(o.Now) {
		n.Previous = nil
	}
	if s.Request != nil {
		n.Request, n.Done = nil, s.Request.ID
	}
	emergency := s.Request != nil && s.Request.Emergency
	if s.Pending != nil && !emergency && s.Pending.isUsable(o) {
		n.Cause = s.Cause
		return n, "the CA has expired, and the next one signs at once", nil
	}
	a, err := p.New(o.Now)
	if err != nil {
		return nil, "", err
	}
	n.Current = a
	return n, "the CA has expired or cannot sign, and a new one signs at once: calls fail until every registration has it", nil
}

// isUsable reports whether the authority can sign now.
func (a *Authority) isUsable(o *Observation) bool {
	return !a.hasExpired(o.Now) && !o.Now.Before(a.Cert.NotBefore) && a.Key != nil
}

func (s *State) whileStable(o *Observation, p *Policy) (*State, string, error) {
	var cause Cause
	switch {
	case s.Request != nil && s.Request.Emergency:
		cause = Emergency
	case s.Request != nil:
		cause = Requested
	case IsDue(s.Current.Cert, o.Now):
		cause = Due
	default:
		return nil, "", nil
	}
	pending, err := p.New(o.Now)
	if err != nil {
		return nil, "", err
	}
	n := s.enter(Publish, o.Now)
	n.Cause, n.Pending = cause, pending
	if s.Request != nil {
		n.Request, n.Done = nil, s.Request.ID
	}
	return n, "a new CA is published beside the old one: " + describeCause(cause), nil
}

func describeCause(c Cause) string {
	switch c {
	case Due:
		return "two thirds of the old one's lifetime have passed"
	case Requested:
		return "it was requested"
	case Emergency:
		return "it was requested as an emergency"
	case Recovery:
		return "two were created independently of each other"
	default:
		return string(c)
	}
}

// whilePublishing waits until every client trusts the pending CA.
func (s *State) whilePublishing(o *Observation, p *Policy) (*State, string, error) {
	if n, what, err := s.stepUrgently(o, p); n != nil || err != nil {
		return n, what, err
	}
	if o.Trusts == nil {
		return s.enter(Hold, o.Now), "the new CA is stored: configure clients now that do not read it themselves", nil
	}
	if _, ok := o.Trusts(s.Pending.Cert); !ok {
		return nil, "", nil
	}
	return s.enter(Hold, o.Now), "every registration trusts the new CA", nil
}

// whileHolding waits until the last client has noticed. Without registrations to read, a
// hold that was not requested lasts as long as the old CA can sign a whole serving
// certificate: that leaves months to configure clients.
func (s *State) whileHolding(o *Observation, p *Policy) (*State, string, error) {
	if n, what, err := s.stepUrgently(o, p); n != nil || err != nil {
		return n, what, err
	}
	since := s.began(o)
	switch {
	case o.Trusts != nil:
		trusted, ok := o.Trusts(s.Pending.Cert)
		if !ok {
			if o.Now.Before(since.Add(p.HoldFor(s.Cause))) {
				return nil, "", nil // the publisher is restoring it
			}
			return s.enter(Publish, o.Now), "a registration does not trust the new CA any more", nil
		}
		if trusted.After(since) {
			since = trusted
		}
	case s.Cause == Due && !o.Now.Add(p.LeafLife).After(s.Current.Cert.NotAfter):
		return nil, "", nil
	}
	if o.Now.Before(since.Add(p.HoldFor(s.Cause))) {
		return nil, "", nil
	}
	if s.Previous != nil && !s.isOver(o, p) {
		return nil, "", nil // there is one Previous only
	}
	return s.activate(o.Now), "the new CA signs", nil
}

// stepUrgently takes the steps that do not wait: a request while a CA is pending, and a pending CA that
// is unusable.
func (s *State) stepUrgently(o *Observation, p *Policy) (*State, string, error) {
	emergency := s.Request != nil && s.Request.Emergency
	switch {
	case emergency || !s.Pending.isUsable(o):
		// Keys are stored together: whoever knows the current one knows the pending one.
		a, err := p.New(o.Now)
		if err != nil {
			return nil, "", err
		}
		n := s.enter(Publish, o.Now)
		n.Pending = a
		if emergency {
			n.Cause, n.Done, n.Request = Emergency, s.Request.ID, nil
			return n, "another CA replaces the pending one: " + describeCause(Emergency), nil
		}
		return n, "another CA replaces the pending one, which is not valid or has no key", nil
	case s.Request != nil:
		// The pending CA fulfills the request.
		n := s.next()
		n.Done, n.Request = s.Request.ID, nil
		if s.Cause != Emergency {
			n.Cause = Requested
		}
		return n, "the pending CA fulfills the request", nil
	default:
		return nil, "", nil
	}
}

// activate makes the pending CA sign, and drops the key of the one before it, so that it
// cannot be stolen.
func (s *State) activate(now time.Time) *State {
	n := s.enter(Activate, now)
	n.Previous, n.Current, n.Pending = &Authority{Cert: s.Current.Cert}, s.Pending, nil
	return n
}

// whileActivating waits until no replica serves a certificate of the previous
// CA, and every client trusts the new one.
func (s *State) whileActivating(o *Observation, p *Policy) (*State, string) {
	if s.Request != nil && s.Request.Emergency && s.Cause != Emergency {
		// The request has to wait for this rotation, which becomes an emergency too.
		n := s.next()
		n.Cause = Emergency
		return n, "the old CA will be removed soon: an emergency rotation was requested"
	}
	if o.Trusts != nil {
		if _, ok := o.Trusts(s.Current.Cert); !ok {
			return nil, ""
		}
	}
	if !s.isOver(o, p) {
		return nil, ""
	}
	waiting := s.Waiting(o)
	n := s.enter(Stable, o.Now)
	n.Previous = nil
	what := "the old CA is removed: every replica serves a certificate of the new one"
	switch {
	case o.Unknown:
		what = "the old CA is removed in the emergency, although it is unknown what replicas serve"
	case len(waiting) > 0:
		what = "the old CA is removed in the emergency, without waiting for " + strings.Join(waiting, ", ")
	}
	return n, what
}

// isOver reports whether the rotation waits for no replica.
func (s *State) isOver(o *Observation, p *Policy) bool {
	switch {
	case s.Cause == Emergency && o.Now.After(s.began(o).Add(p.EmergencyWait)):
		return true
	case o.Unknown, len(s.Waiting(o)) > 0:
		return false
	default:
		// Without reports, it waits until all certificates have expired.
		return len(o.Replicas) > 0 || !o.Now.Before(s.began(o).Add(p.LeafLife))
	}
}

// Waiting returns the names of the replicas that may still serve a certificate that is
// neither the current CA's nor the pending one's: an isolated replica serves its
// certificate until that expires.
func (s *State) Waiting(o *Observation) []string {
	var names []string
	for i := range o.Replicas {
		r := &o.Replicas[i]
		if r.Issuer != "" && r.Issuer != s.Current.ID() && r.Issuer != s.Pending.name() && !o.Now.After(r.NotAfter) {
			names = append(names, r.Replica)
		}
	}
	return names
}

// Backdate is how long before its issue a certificate becomes valid, for clocks that
// differ. Its life counts from its issue.
const Backdate = 24 * time.Hour

// IsDue reports whether a certificate of Gatehouse has used up two thirds of its life.
func IsDue(cert *x509.Certificate, now time.Time) bool { return !now.Before(DueAt(cert)) }

// DueAt returns from when on IsDue is true.
func DueAt(cert *x509.Certificate) time.Time {
	issued := cert.NotBefore.Add(Backdate)
	return issued.Add(cert.NotAfter.Sub(issued) / 3 * 2)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
