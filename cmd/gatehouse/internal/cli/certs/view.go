package certs

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// unreachableTime is after how long without a heartbeat a replica is unreachable.
const unreachableTime = 4 * certstore.ReportInterval

// snapshot is everything that was read at one time, and why something could not be.
type snapshot struct {
	now time.Time
	// place is where the state is kept, as messages name it, and dir the directory
	// if it is one.
	place, dir string
	// state is nil if there is none, or none that can be read; stateErr says why. Of
	// a state that is damaged there may be a part, whose lineage is "".
	state    *rotation.State
	stateErr error
	// bundle is what the state has for people and for clients, and clientCert the API
	// server's client certificate in the directory, or clientErr.
	bundle, clientCert []byte
	clientErr          error

	replicas    []rotation.Report
	replicasErr error

	// entries are what webhooks trust. They are only looked at if registrations were
	// asked for.
	registered bool
	entries    []trustEntry

	// hold is what servers were told of --rotation-hold.
	hold time.Duration
	// program is the name of this one, for remedies, and forget returns the command that
	// removes the report at a location.
	program string
	forget  func(location string) string
}

// trustEntry is what a webhook of a configuration trusts, or why there is none.
type trustEntry struct {
	// object is the kind and the name of the configuration, and webhook the name of
	// the entry, "" where something is wrong with the whole.
	object, webhook string
	bundle          []cabundle.Certificate
	// problem is what is wrong with it, or, if unknown, why it could not be read, and
	// remedy what to do about it. Both are "" if there is nothing, or if something else
	// is known that is to be done.
	problem, remedy string
	unknown         bool
	// remark is about a bundle that can be used.
	remark string
	// author is who wrote the bundle last, if that was nobody of ours.
	author string
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

// The roles of authorities.
const (
	roleCurrent  = "current"
	rolePending  = "pending"
	rolePrevious = "previous"
)

// statusView is the state of certificates as it is shown, and as JSON. Nothing in it
// is a secret.
type statusView struct {
	// Outcome is yes if everything is trusted and valid, no if something is wrong,
	// and unknown if nothing is known to be wrong and something could not be read.
	Outcome authn.Outcome `json:"outcome"`
	// At is when it was looked at.
	At time.Time `json:"at"`
	// Store is where the state is kept.
	Store string `json:"store"`
	// Phase is "" if nothing can be told, and so is what follows from it.
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

// level is how bad a diagnostic is.
type level string

const (
	levelProblem level = "problem"
	levelUnknown level = "unknown"
	levelNote    level = "note"
)

// diagnostic is something that somebody should know.
type diagnostic struct {
	Level  level  `json:"level"`
	Object string `json:"object"`
	// Message is what is the matter with the object, and Remedy what to do.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// nextStep is what a server does next.
type nextStep struct {
	What string `json:"what"`
	// When is what it waits for in general, At the time where there is one, and
	// WaitsFor who keeps it waiting.
	When     string     `json:"when,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	WaitsFor []string   `json:"waitsFor,omitempty"`

	// names are those in WaitsFor, without what changes all the time.
	names []string
	// due is when it should be done at the latest, unless a server began anew; At is
	// only shown if that is ahead. Nil if that cannot be decided.
	due *time.Time
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
	// Issuer is the ID of the CA of what it serves, and Role what that CA is, "" if
	// it is not of the state.
	Issuer string `json:"issuer,omitempty"`
	Role   string `json:"role,omitempty"`
	// SHA256 is the fingerprint of what it serves.
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
	// Refuses are the replicas whose certificate it does not accept.
	Refuses []string `json:"refuses"`
	// Outcome is whether it accepts what every replica serves that is not away, and
	// will accept what the current CA signs.
	Outcome authn.Outcome `json:"outcome"`
}

type trustedView struct {
	// Role is "" for a CA that is not of the state.
	Role string `json:"role,omitempty"`
	cabundle.Certificate
}

// whole reports whether all of the state could be read.
func (s *snapshot) whole() bool { return s.state != nil && s.stateErr == nil }

// authorities are the CAs of the state with their roles, the one that signs first.
func (s *snapshot) authorities() []authorityView {
	views := []authorityView{}
	if s.state == nil {
		return views
	}
	for _, a := range []struct {
		role string
		*rotation.Authority
	}{{roleCurrent, s.state.Current}, {rolePending, s.state.Pending}, {rolePrevious, s.state.Previous}} {
		if a.Authority == nil {
			continue
		}
		views = append(views, authorityView{
			Role: a.role, Subject: a.Cert.Subject.String(), ID: a.ID(), NotBefore: a.Cert.NotBefore.UTC(), NotAfter: a.Cert.NotAfter.UTC(),
		})
	}
	return views
}

// role is what the CA with the ID is, "" if it is not of the state.
func (s *snapshot) role(id string) string {
	for _, a := range s.authorities() {
		if a.ID == id {
			return a.Role
		}
	}
	return ""
}

func (s *snapshot) away(r *rotation.Report) bool { return s.now.Sub(r.Seen) > unreachableTime }

// serves reports whether the replica may serve a certificate that is valid. One that
// is away may be cut off, and serve all the same.
func (s *snapshot) serves(r *rotation.Report) bool {
	return r.Issuer != "" && !s.now.After(r.NotAfter)
}

// alive is how many replicas are not away.
func (s *snapshot) alive() int {
	n := 0
	for i := range s.replicas {
		if !s.away(&s.replicas[i]) {
			n++
		}
	}
	return n
}

// nobody says that no replica is alive.
func (s *snapshot) nobody() string {
	if len(s.replicas) == 0 {
		return "no replica says what it serves"
	}
	return "no replica has had a heartbeat for " + duration.HumanDuration(unreachableTime)
}

// view is what is shown.
func (s *snapshot) view() *statusView {
	v := &statusView{
		At: *someTime(s.now), Store: s.place, Authorities: s.authorities(), Findings: s.diagnostics(),
		Replicas: []replicaView{}, Webhooks: []webhookView{},
	}
	if s.whole() {
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
		switch v.Findings[i].Level {
		case levelProblem:
			v.Outcome = authn.No
		case levelUnknown:
			if v.Outcome == authn.Yes {
				v.Outcome = authn.Unknown
			}
		case levelNote:
		}
	}
	return v
}

func (s *snapshot) webhook(e *trustEntry) webhookView {
	v := webhookView{
		Object: e.object, Webhook: e.webhook, Trusts: []trustedView{}, Lacks: []string{}, Refuses: []string{}, Outcome: authn.Yes,
	}
	if e.unknown {
		v.Outcome = authn.Unknown
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
	refused, away := s.refused(e)
	v.Refuses = append(append(v.Refuses, refused...), away...)
	switch {
	case e.problem != "", slices.Contains(v.Lacks, roleCurrent), len(refused) > 0:
		v.Outcome = authn.No
	case s.state == nil && len(s.replicas) == 0:
		v.Outcome = authn.Unknown
	}
	return v
}

// refused are the replicas that serve what the entry does not verify, and those of
// them apart that are away. One that cannot name the CA of what it serves is none of
// them.
func (s *snapshot) refused(e *trustEntry) (names, away []string) {
	for i := range s.replicas {
		switch r := &s.replicas[i]; {
		case !s.serves(r) || !isID(r.Issuer) || e.has(r.Issuer):
		case s.away(r):
			away = append(away, r.Replica)
		default:
			names = append(names, r.Replica)
		}
	}
	return names, away
}

// isID reports whether an issuer is an ID, and not certstore.UnreadableIssuer.
func isID(issuer string) bool { return len(issuer) == hex.EncodedLen(sha256.Size) }

// lacking are the entries that can be read and do not trust the CA.
func (s *snapshot) lacking(a *rotation.Authority) []string {
	var names []string
	for i := range s.entries {
		if e := &s.entries[i]; !e.unknown && !e.has(a.ID()) {
			names = append(names, e.name())
		}
	}
	return names
}

// unrelated are the entries that trust something, if none of them trusts a CA of the
// state: registration and state may not belong together.
func (s *snapshot) unrelated() []*trustEntry {
	if !s.whole() {
		return nil
	}
	var list []*trustEntry
	for i := range s.entries {
		e := &s.entries[i]
		if len(e.bundle) > 0 {
			list = append(list, e)
		}
		if slices.ContainsFunc(e.bundle, func(c cabundle.Certificate) bool { return s.role(c.ID) != "" }) {
			return nil
		}
	}
	return list
}

// others are the CAs that the entry trusts and that are not of the state, as they are
// shown.
func (s *snapshot) others(e *trustEntry) []string {
	var ids []string
	for _, c := range e.bundle {
		if s.role(c.ID) == "" {
			ids = append(ids, shortID(c.ID))
		}
	}
	return ids
}

// someTime is a time as it is shown, nil if there is none.
func someTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// shortID is enough of an ID to tell CAs apart.
func shortID(id string) string {
	const enough = 12
	return id[:min(enough, len(id))]
}

// ago is how long a time is ahead or ago.
func ago(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + duration.HumanDuration(d)
	}
	return duration.HumanDuration(now.Sub(t)) + " ago"
}

// dated is a time with how long it is ahead or ago.
func dated(t, now time.Time) string { return cli.FormatTime(&t) + " (" + ago(t, now) + ")" }

// join is names as a text has them.
func join(names []string) string { return strings.Join(names, ", ") }
