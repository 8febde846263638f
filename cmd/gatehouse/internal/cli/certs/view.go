package certs

import (
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/webhookcall"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// unreachableTime is after how long without a heartbeat a replica is unreachable.
const unreachableTime = 4 * certstore.ReportInterval

// snapshot is everything that was read at one time, and why something could not be.
type snapshot struct {
	now time.Time
	// place is where the state is kept, as messages name it, and named reports whether a flag names it.
	place string
	named bool
	// state is nil if there is none, or none that can be read; stateErr says why.
	state    *rotation.State
	stateErr error

	// single reports whether the state belongs to one server, which sends no heartbeats.
	single      bool
	replicas    []rotation.Report
	replicasErr error

	// entries are what webhooks trust. They are read if registered is true.
	registered bool
	entries    []trustEntry

	// hold is --rotation-hold of the servers.
	hold time.Duration
	// forget is that of storage.
	forget string
}

// trustEntry is what a webhook of a configuration trusts, or why that is not known.
type trustEntry struct {
	// object is the kind and the name of the configuration, and webhook the name of
	// the entry, "" if a problem concerns the object.
	object, webhook string
	bundle          []cabundle.Certificate
	// problem is what is wrong with the object, or, if unknown, why it could not be read.
	problem string
	unknown bool
	// remark is what is wrong with the bundle.
	remark string
	// author is who wrote the bundle last, if that was not Gatehouse, and injector the
	// annotation by which cert-manager's cainjector writes it.
	author, injector string
	// renewal is what of cert-manager's annotations and of the Certificate does not do what it says. The first entry of a
	// configuration has it.
	renewal []string
	// probed reports whether a connection was made to see whether the bundle verifies the certificate, because there is no state
	// that says so, and probeErr is why it does not, or why there is no connection.
	probed   bool
	probeErr error
}

// accepts returns what the connection has shown.
func (e *trustEntry) accepts() authn.Outcome {
	_, untrusted := errors.AsType[*webhookcall.UntrustedError](e.probeErr)
	switch {
	case untrusted:
		return authn.No
	case e.probed && e.probeErr == nil:
		return authn.Yes
	default:
		return authn.Unknown
	}
}

func (e *trustEntry) name() string {
	if e.webhook == "" {
		return e.object
	}
	return e.object + ", webhook " + e.webhook
}

func (e *trustEntry) has(id string) bool {
	return slices.ContainsFunc(e.bundle, func(c cabundle.Certificate) bool { return c.ID == id })
}

// statusView is the state of certificates as it is shown, and as JSON. Nothing in it
// is a secret.
type statusView struct {
	// Outcome is yes if everything is trusted and valid, no if something is wrong,
	// and unknown if nothing is known to be wrong and something could not be read.
	Outcome authn.Outcome `json:"outcome"`
	At      time.Time     `json:"at"`
	// Store is where the state is kept.
	Store string `json:"store"`
	// Phase is "" if the state cannot be read, and what follows from it is then missing.
	Phase rotation.Phase `json:"phase,omitempty"`
	Since *time.Time     `json:"since,omitempty"`
	// Cause is that of the rotation, or of the last one.
	Cause rotation.Cause `json:"cause,omitempty"`
	// Generation grows with every change.
	Generation int64     `json:"generation,omitempty"`
	Next       *nextStep `json:"next,omitempty"`
	// Findings are problems first, then what could not be decided, then notes.
	Findings    []diagnostic    `json:"findings"`
	Authorities []authorityView `json:"authorities"`
	Replicas    []replicaView   `json:"replicas"`
	Webhooks    []webhookView   `json:"webhooks"`
}

// nextStep is what a server does next.
type nextStep struct {
	What string `json:"what"`
	// When is what it waits for in general, At the time if there is one, and WaitsFor
	// what keeps it waiting.
	When     string     `json:"when"`
	At       *time.Time `json:"at,omitempty"`
	WaitsFor []string   `json:"waitsFor,omitempty"`
}

type authorityView struct {
	Role    string `json:"role"`
	Subject string `json:"subject"`
	// ID is the SHA-256 of the certificate.
	ID        string    `json:"id"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

type replicaView struct {
	Name string `json:"name"`
	// Issuer is the ID of the CA of its certificate, and Role the role of that CA, "" if
	// it is not in the state.
	Issuer string `json:"issuer,omitempty"`
	Role   string `json:"role,omitempty"`
	// SHA256 is the fingerprint of its certificate.
	SHA256   string     `json:"sha256,omitempty"`
	NotAfter *time.Time `json:"notAfter,omitempty"`
	Seen     *time.Time `json:"seen,omitempty"`
	Away     bool       `json:"away"`
	Version  string     `json:"version,omitempty"`
}

// webhookView is what a webhook trusts.
type webhookView struct {
	Object  string        `json:"object"`
	Webhook string        `json:"webhook,omitempty"`
	Trusts  []trustedView `json:"trusts"`
	// Lacks are the roles of the CAs of the state that it does not trust.
	Lacks []string `json:"lacks"`
	// Refuses are the replicas with a heartbeat whose certificate it does not accept.
	Refuses []string `json:"refuses"`
	// Outcome is whether it accepts what these replicas serve, and will accept what the
	// current CA signs.
	Outcome authn.Outcome `json:"outcome"`
}

type trustedView struct {
	// Role is "" for a CA that is not in the state.
	Role string `json:"role,omitempty"`
	cabundle.Certificate
}

// authorities returns the CAs of the state with their roles, the one that signs first.
func (s *snapshot) authorities() []authorityView {
	views := []authorityView{}
	if s.state == nil {
		return views
	}
	for _, a := range []struct {
		role string
		*rotation.Authority
	}{{"current", s.state.Current}, {"pending", s.state.Pending}, {"previous", s.state.Previous}} {
		if a.Authority != nil {
			views = append(views, authorityView{
				Role: a.role, Subject: a.Cert.Subject.String(), ID: a.ID(), NotBefore: a.Cert.NotBefore.UTC(), NotAfter: a.Cert.NotAfter.UTC(),
			})
		}
	}
	return views
}

// role returns the role of the CA with the ID, "" if it is not in the state.
func (s *snapshot) role(id string) string {
	for _, a := range s.authorities() {
		if a.ID == id {
			return a.Role
		}
	}
	return ""
}

func (s *snapshot) away(r *rotation.Report) bool { return s.now.Sub(r.Seen) > unreachableTime }

// isDown reports whether no server is known to run.
func (s *snapshot) isDown() bool {
	return !s.single && s.replicasErr == nil && !slices.ContainsFunc(s.replicas, func(r rotation.Report) bool { return !s.away(&r) })
}

// refused returns the replicas with a heartbeat whose certificate the entry does not verify.
func (s *snapshot) refused(e *trustEntry) []string {
	names := []string{}
	for i := range s.replicas {
		r := &s.replicas[i]
		if !s.away(r) && r.Issuer != "" && r.Issuer != certstore.UnreadableIssuer && !s.now.After(r.NotAfter) && !e.has(r.Issuer) {
			names = append(names, r.Replica)
		}
	}
	return names
}

// lacking returns the entries that can be read and do not trust the CA.
func (s *snapshot) lacking(a *rotation.Authority) []string {
	var names []string
	for i := range s.entries {
		if e := &s.entries[i]; !e.unknown && !e.has(a.ID()) {
			names = append(names, e.name())
		}
	}
	return names
}

// next returns what rotation.Step waits for.
func (s *snapshot) next() *nextStep {
	state := s.state
	switch state.Phase {
	case rotation.Publish:
		return &nextStep{What: "the hold begins", When: "every registration trusts the new CA", WaitsFor: s.lacking(state.Pending)}
	case rotation.Hold:
		n := &nextStep{What: "the new CA signs", WaitsFor: s.lacking(state.Pending)}
		if !s.registered && state.Cause == rotation.Due {
			n.When = "the old CA cannot sign for a whole week any more, because it is unknown who trusts the new one"
			n.At = someTime(state.Current.Cert.NotAfter.Add(-rotation.DefaultLeafLife))
			return n
		}
		policy := rotation.Policy{Hold: s.hold, EmergencyHold: rotation.DefaultEmergencyHold}
		hold := policy.HoldFor(state.Cause)
		n.When = "every registration has trusted it for " + duration.HumanDuration(hold) + ", as seen by one server without a restart"
		if end := state.Since.Add(hold); len(n.WaitsFor) == 0 && end.After(s.now) {
			n.At = someTime(end)
		}
		return n
	case rotation.Activate:
		n := &nextStep{What: "the old CA is removed", When: "every registration and every replica uses the new one", WaitsFor: s.lacking(state.Current)}
		if state.Cause == rotation.Emergency {
			n.When += ", or a minute has passed"
		}
		waiting := state.Waiting(&rotation.Observation{Now: s.now, Replicas: s.replicas})
		for i := range s.replicas {
			if r := &s.replicas[i]; slices.Contains(waiting, r.Replica) {
				n.WaitsFor = append(n.WaitsFor, r.Replica+", whose certificate ends at "+dated(r.NotAfter, s.now))
			}
		}
		return n
	case rotation.Stable:
	}
	if state.Request != nil {
		return &nextStep{What: "the rotation that was requested at " + cli.FormatTime(&state.Request.At) + " begins", When: "a server has read the request"}
	}
	return &nextStep{What: "renewal is due", When: "the current CA has used up two thirds of its life", At: someTime(rotation.DueAt(state.Current.Cert))}
}

// view returns what is shown.
func (s *snapshot) view() *statusView {
	v := &statusView{
		At: *someTime(s.now), Store: s.place, Authorities: s.authorities(), Findings: s.diagnostics(),
		Replicas: []replicaView{}, Webhooks: []webhookView{},
	}
	if s.state != nil {
		v.Phase, v.Since, v.Cause, v.Generation, v.Next = s.state.Phase, someTime(s.state.Since), s.state.Cause, s.state.Generation, s.next()
	}
	for i := range s.replicas {
		r := &s.replicas[i]
		v.Replicas = append(v.Replicas, replicaView{
			Name: r.Replica, Issuer: r.Issuer, Role: s.role(r.Issuer), SHA256: r.SHA256, NotAfter: someTime(r.NotAfter),
			Seen: someTime(r.Seen), Away: s.away(r), Version: r.Version,
		})
	}
	for i := range s.entries {
		v.Webhooks = append(v.Webhooks, s.webhook(&s.entries[i]))
	}
	v.Outcome = authn.Yes
	for i := range v.Findings {
		switch level := v.Findings[i].Level; {
		case level == levelProblem:
			v.Outcome = authn.No
		case level == levelUnknown && v.Outcome == authn.Yes:
			v.Outcome = authn.Unknown
		}
	}
	return v
}

func (s *snapshot) webhook(e *trustEntry) webhookView {
	v := webhookView{Object: e.object, Webhook: e.webhook, Trusts: []trustedView{}, Lacks: []string{}, Refuses: []string{}, Outcome: authn.Unknown}
	if e.unknown {
		return v
	}
	for _, c := range e.bundle {
		v.Trusts = append(v.Trusts, trustedView{Role: s.role(c.ID), Certificate: c})
	}
	for _, a := range s.authorities() {
		if !e.has(a.ID) {
			v.Lacks = append(v.Lacks, a.Role)
		}
	}
	v.Refuses = s.refused(e)
	switch {
	case e.problem != "", len(v.Refuses) > 0, slices.Contains(v.Lacks, "current"):
		v.Outcome = authn.No
	case s.state != nil || len(s.replicas) > 0:
		v.Outcome = authn.Yes
	default:
		v.Outcome = e.accepts()
	}
	return v
}

// someTime returns a time as it is shown, nil if there is none.
func someTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// shortID returns enough of an ID to distinguish CAs.
func shortID(id string) string {
	const enough = 12
	return id[:min(enough, len(id))]
}

// dated returns a time with how long it is ahead or ago.
func dated(t, now time.Time) string {
	relative := duration.HumanDuration(now.Sub(t)) + " ago"
	if d := t.Sub(now); d > 0 {
		relative = "in " + duration.HumanDuration(d)
	}
	return cli.FormatTime(&t) + " (" + relative + ")"
}

func join(names []string) string { return strings.Join(names, ", ") }
