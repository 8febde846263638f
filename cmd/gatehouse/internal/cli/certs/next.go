package certs

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// next is what a server does next with a state that is whole: what rotation.Step
// waits for.
func (s *snapshot) next() *nextStep {
	n := s.after()
	if n.names == nil {
		n.names = n.WaitsFor
	}
	return n
}

func (s *snapshot) after() *nextStep {
	state := s.state
	if s.now.After(state.Current.Cert.NotAfter) {
		return &nextStep{What: "another CA takes the place of the one that has ended", When: "a server looks at it"}
	}
	switch state.Phase {
	case rotation.Publish:
		return &nextStep{
			What: "the hold begins", When: "every registration trusts the new CA", WaitsFor: s.lacking(state.Pending),
		}
	case rotation.Hold:
		return s.afterHold()
	case rotation.Activate:
		return s.afterActivate()
	case rotation.Stable:
	}
	switch {
	case state.Request != nil:
		return &nextStep{What: "the rotation that was requested at " + cli.FormatTime(&state.Request.At) + " begins", When: "a server has read the request"}
	case state.Current.Key == nil:
		return &nextStep{What: "a rotation begins", When: "the issuer has another CA"}
	default:
		return &nextStep{What: "renewal is due", When: "the current CA has used up two thirds of its life", At: someTime(rotation.DueAt(state.Current.Cert))}
	}
}

func (s *snapshot) afterHold() *nextStep {
	state := s.state
	n := &nextStep{What: "the new CA signs"}
	// Nobody can tell who trusts it.
	if !s.registered && state.Cause == rotation.Due {
		n.When = "the old one cannot sign for a whole week any more, so that there is time to tell clients"
		n.At = someTime(state.Current.Cert.NotAfter.Add(-rotation.DefaultLeafLife))
		return n
	}
	if n.WaitsFor = s.lacking(state.Pending); len(n.WaitsFor) > 0 {
		n.When = "every registration trusts it again, and then for as long as the hold"
		return n
	}
	policy := rotation.Policy{Hold: s.hold, EmergencyHold: rotation.DefaultEmergencyHold}
	hold := policy.HoldFor(state.Cause)
	n.When = "the hold of " + duration.HumanDuration(hold) + " ends"
	n.due = someTime(state.Since.Add(hold))
	if n.At = n.due; s.now.After(*n.due) {
		n.At, n.When = nil, ranFor(hold)
	}
	return n
}

// ranFor says what is waited for when a time has passed without what should have
// come then: a server that began anew has measured from its own beginning.
func ranFor(d time.Duration) string {
	return "one server has run for " + duration.HumanDuration(d) + " without a restart"
}

func (s *snapshot) afterActivate() *nextStep {
	state := s.state
	n := &nextStep{What: "the old CA is removed", When: "every replica serves a certificate of the new one"}
	if state.Previous == nil {
		n.What = "the rotation ends"
	}
	if n.WaitsFor = s.lacking(state.Current); len(n.WaitsFor) > 0 {
		n.When = "every registration trusts the new one"
		return n
	}
	n.names = state.Waiting(&rotation.Observation{Now: s.now, Replicas: s.replicas})
	for i := range s.replicas {
		if r := &s.replicas[i]; slices.Contains(n.names, r.Replica) {
			n.WaitsFor = append(n.WaitsFor, r.Replica+" (last seen "+ago(r.Seen, s.now)+"), whose certificate ends at "+dated(r.NotAfter, s.now))
		}
	}
	switch {
	case state.Cause == rotation.Emergency && len(n.WaitsFor) > 0:
		n.due = someTime(state.Since.Add(rotation.DefaultEmergencyWait))
		if s.now.After(*n.due) {
			n.When += ", or without waiting when " + ranFor(rotation.DefaultEmergencyWait)
			break
		}
		n.When += ", or at that time without waiting"
		n.At = n.due
	case len(s.replicas) == 0 && s.replicasErr == nil:
		n.When = "the certificates of the old one have ended, because no replica says what it serves"
		n.At = someTime(state.Since.Add(rotation.DefaultLeafLife))
	}
	return n
}

// requestGrace is how long a request may wait for a server to read it: they look
// every ten seconds.
const requestGrace = time.Minute

// unread is since when a request waits that a server should have read by now, nil if
// none does. A rotation that has come to its new CA is to be over first.
func (s *snapshot) unread() *time.Time {
	r := s.state.Request
	if r == nil || s.state.Phase == rotation.Activate || s.alive() == 0 && s.replicasErr == nil {
		return nil
	}
	since := r.At
	if s.state.Phase == rotation.Stable && s.state.Since.After(since) {
		since = s.state.Since
	}
	if !s.now.After(since.Add(requestGrace)) {
		return nil
	}
	return &since
}
