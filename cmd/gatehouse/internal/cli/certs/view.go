package certs

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

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
	Phase certs.Phase `json:"phase,omitempty"`
	Since *time.Time  `json:"since,omitempty"`
	Next  *nextStep   `json:"next,omitempty"`
	// Findings are problems first, then what could not be decided, then notes.
	Findings    []diagnostic    `json:"findings"`
	Authorities []authorityView `json:"authorities"`
	Webhooks    []webhookView   `json:"webhooks"`
	// CertManager are the objects of cert-manager that the certificate depends on.
	CertManager []issuedView `json:"certManager"`
}

// nextStep is what the elected server does next: What, at the time if it is known, when what it waits for has happened.
type nextStep struct {
	What     string     `json:"what"`
	When     string     `json:"when"`
	At       *time.Time `json:"at,omitempty"`
	WaitsFor []string   `json:"waitsFor,omitempty"`
}

type authorityView struct {
	Role    string `json:"role"`
	Subject string `json:"subject"`
	// ID is the SHA-256 of the certificate.
	ID       string    `json:"id"`
	NotAfter time.Time `json:"notAfter"`
}

// webhookView is what a webhook trusts.
type webhookView struct {
	Object  string        `json:"object"`
	Webhook string        `json:"webhook,omitempty"`
	Trusts  []trustedView `json:"trusts"`
	// Outcome is whether it accepts what the servers serve.
	Outcome authn.Outcome `json:"outcome"`
}

type trustedView struct {
	// Role is "" for a CA that is not in the state.
	Role string `json:"role,omitempty"`
	registration.Certificate
}

type level string

const (
	levelProblem level = "problem"
	levelUnknown level = "unknown"
	levelNote    level = "note"
)

// diagnostic is something that an administrator should know.
type diagnostic struct {
	Level  level  `json:"level"`
	Object string `json:"object"`
	// Message is what is the matter with the object, and Remedy what to do.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// graceTime is how long a server may take for what it does by itself.
const graceTime = time.Minute

// seeLogs is the remedy for what a running server should have done.
const seeLogs = "see the log of the replica that is elected, and Events of the reasons " + certs.ReasonStoreFailed + " and " + certs.ReasonWriteFailed

// authorities returns the CAs of the state with their roles, the one that signs first.
func (s *snapshot) authorities() []authorityView {
	views := []authorityView{}
	if s.state == nil {
		return views
	}
	for _, a := range []struct {
		role string
		*certs.Authority
	}{{"active", s.state.Active}, {"next", s.state.Next}, {"retired", s.state.Retired}} {
		if a.Authority != nil {
			views = append(views, authorityView{Role: a.role, Subject: a.Cert.Subject.String(), ID: a.ID(), NotAfter: a.Cert.NotAfter.UTC()})
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

func has(w *registration.WebhookStatus, id string) bool {
	return slices.ContainsFunc(w.Bundle, func(c registration.Certificate) bool { return c.ID == id })
}

func nameOf(c *registration.Status, w *registration.WebhookStatus) string {
	return string(c.Kind) + "/" + c.Name + ", webhook " + w.Name
}

// lacking returns the webhooks that can be read and do not trust the CA.
func (s *snapshot) lacking(a *certs.Authority) []string {
	var names []string
	for i := range s.configurations {
		c := &s.configurations[i]
		if c.Err == nil && len(c.Webhooks) == 0 {
			names = append(names, string(c.Kind)+"/"+c.Name)
		}
		for j := range c.Webhooks {
			if w := &c.Webhooks[j]; !has(w, a.ID()) {
				names = append(names, nameOf(c, w))
			}
		}
	}
	return names
}

// next returns what certs.Step waits for.
func (s *snapshot) next() *nextStep {
	state := s.state
	hold := duration.HumanDuration(state.Hold)
	switch state.Phase() {
	case certs.Published:
		n := &nextStep{What: "the new CA signs", When: "every registration has trusted it for " + hold, WaitsFor: s.lacking(state.Next)}
		switch {
		case len(s.configurations) == 0 && !state.Requested:
			n.When = "the old CA cannot sign for a whole week any more, because it is unknown who trusts the new one"
			n.At = someTime(state.Active.Cert.NotAfter.Add(-certs.DefaultLeafLife))
		case len(n.WaitsFor) == 0:
			n.At = someTime(later(state.Since.Add(state.Hold), s.now))
		}
		return n
	case certs.Activated:
		n := &nextStep{What: "the old CA is removed", When: "every replica has had " + hold + " to read the new one", WaitsFor: s.lacking(state.Active)}
		end := state.Since.Add(state.Hold)
		if !state.Requested {
			n.When, end = "the last certificate that it signed has expired", end.Add(certs.DefaultLeafLife)
		}
		n.At = someTime(later(end, s.now))
		return n
	case certs.Stable:
	}
	if s.request != "" && s.request != state.Done {
		return &nextStep{What: "the rotation that was requested begins", When: "the elected replica has read the request"}
	}
	return &nextStep{What: "a new CA is published", When: "the active one has used up two thirds of its life", At: someTime(certs.DueAt(state.Active.Cert))}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// view returns what is shown.
func (s *snapshot) view() *statusView {
	v := &statusView{
		At: *someTime(s.now), Store: s.place, Authorities: s.authorities(), Findings: s.diagnostics(),
		Webhooks: []webhookView{}, CertManager: append([]issuedView{}, s.issued...),
	}
	if s.state != nil {
		v.Phase, v.Since, v.Next = s.state.Phase(), someTime(s.state.Since), s.next()
	}
	for i := range s.configurations {
		c := &s.configurations[i]
		if len(c.Webhooks) == 0 {
			v.Webhooks = append(v.Webhooks, webhookView{Object: string(c.Kind) + "/" + c.Name, Trusts: []trustedView{}, Outcome: authn.Unknown})
		}
		for j := range c.Webhooks {
			v.Webhooks = append(v.Webhooks, s.webhook(c, &c.Webhooks[j]))
		}
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

func (s *snapshot) webhook(c *registration.Status, w *registration.WebhookStatus) webhookView {
	v := webhookView{Object: string(c.Kind) + "/" + c.Name, Webhook: w.Name, Trusts: []trustedView{}, Outcome: authn.Unknown}
	for _, one := range w.Bundle {
		v.Trusts = append(v.Trusts, trustedView{Role: s.role(one.ID), Certificate: one})
	}
	switch {
	case s.state == nil:
	case has(w, s.state.Active.ID()):
		v.Outcome = authn.Yes
	default:
		v.Outcome = authn.No
	}
	return v
}

// diagnostics returns problems, then what cannot be decided, then notes, each in the
// order of what is shown.
func (s *snapshot) diagnostics() []diagnostic {
	found := append([]diagnostic{}, s.diagnoseState()...) // in JSON, no list is null
	for i := range s.configurations {
		found = append(found, s.diagnoseConfiguration(&s.configurations[i])...)
	}
	for i := range s.issued {
		v := &s.issued[i]
		switch {
		case v.Unknown:
			found = append(found, diagnostic{levelUnknown, v.Object, v.Problem, ""})
		case v.Problem != "":
			found = append(found, diagnostic{levelProblem, v.Object, v.Problem, "see cert-manager's CertificateRequests in its namespace"})
		}
	}
	rank := map[level]int{levelProblem: 0, levelUnknown: 1, levelNote: 2}
	slices.SortStableFunc(found, func(a, b diagnostic) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return found
}

// diagnoseState checks that there is a state, and that a server continues it.
func (s *snapshot) diagnoseState() []diagnostic {
	one := func(level level, message, remedy string) []diagnostic {
		return []diagnostic{{level, s.place, message, remedy}}
	}
	switch {
	case errors.Is(s.stateErr, certs.ErrEmpty) && s.isElsewhere():
		return one(levelNote, "there is no CA in it: others write what webhooks trust", "gatehouse probe shows whether that verifies the certificate")
	case errors.Is(s.stateErr, certs.ErrEmpty):
		return one(levelProblem, s.stateErr.Error(), "check --secret, --dir and the flags of the servers; the first server creates a CA, and the elected one restores it")
	case s.damaged:
		return one(levelProblem, s.stateErr.Error(), "the elected replica restores it from memory; without one, it creates a new CA")
	case s.stateErr != nil:
		message, remedy := splitHint(s.place, s.stateErr)
		return one(levelUnknown, message, remedy)
	}
	active := s.state.Active.Cert
	requested, err := time.Parse(time.RFC3339Nano, s.request)
	n := s.next()
	switch {
	case s.now.After(active.NotAfter):
		return one(levelProblem, "the CA has expired at "+dated(active.NotAfter, s.now), "the elected replica replaces it at once; "+seeLogs)
	case s.now.Before(active.NotBefore):
		return one(levelProblem, "the CA is not valid before "+dated(active.NotBefore, s.now), "check the clocks of this machine and of the servers")
	case s.request != "" && s.request != s.state.Done && err == nil && s.state.Phase() == certs.Stable && s.now.Sub(later(requested, s.state.Since)) > graceTime:
		return one(levelProblem, "no replica has begun the rotation that was requested at "+dated(requested, s.now), seeLogs)
	case n.At != nil && s.now.Sub(*n.At) > graceTime:
		return one(levelProblem, "a step is overdue since "+dated(*n.At, s.now)+": "+n.What, seeLogs)
	}
	return nil
}

// isElsewhere reports whether there need not be a CA in the default place: servers with --self-signed-dir or with files keep none
// there, and others than a server wrote what webhooks trust.
func (s *snapshot) isElsewhere() bool {
	found := false
	for i := range s.configurations {
		for _, w := range s.configurations[i].Webhooks {
			if len(w.Bundle) == 0 || len(w.Managers) > 0 && w.Managers[0].Name == registration.FieldManager {
				return false
			}
			found = true
		}
	}
	return found && !s.named
}

// splitHint returns an error about an object without its name, and its hint.
func splitHint(object string, err error) (message, hint string) {
	message = strings.TrimPrefix(err.Error(), object+": ")
	if body, found := strings.CutSuffix(message, ")"); found {
		if before, after, found := strings.Cut(body, " (hint: "); found {
			return before, after
		}
	}
	return message, ""
}

// diagnoseConfiguration checks what the webhooks of a configuration trust.
func (s *snapshot) diagnoseConfiguration(c *registration.Status) []diagnostic {
	object := string(c.Kind) + "/" + c.Name
	const apply = "apply the output of gatehouse manifests, or name another with --registration"
	switch {
	case c.Err != nil:
		message, remedy := splitHint(object, c.Err)
		return []diagnostic{{levelUnknown, object, message, remedy}}
	case !c.Found:
		return []diagnostic{{levelProblem, object, "does not exist: the API server does not call for it", apply}}
	case len(c.Webhooks) == 0:
		return []diagnostic{{levelProblem, object, "has no webhooks: the API server does not call for it", apply}}
	}
	var found []diagnostic
	for i := range c.Webhooks {
		found = append(found, s.diagnoseWebhook(c, &c.Webhooks[i])...)
	}
	return found
}

func (s *snapshot) diagnoseWebhook(c *registration.Status, w *registration.WebhookStatus) []diagnostic {
	var found []diagnostic
	add := func(level level, message, remedy string) {
		found = append(found, diagnostic{level, nameOf(c, w), message, remedy})
	}
	if s.state == nil {
		if w.Remark != "" {
			add(levelProblem, "caBundle: "+w.Remark, "write the CA of the servers into it: gatehouse manifests --ca-file FILE, a replica with --publish-ca-bundle, or cert-manager does")
		}
		return found
	}
	var lacks []string
	for _, a := range s.authorities() {
		isNew := a.Role == "next" && s.now.Before(s.state.Since.Add(graceTime))
		if !has(w, a.ID) && !isNew && a.Role != "retired" {
			lacks = append(lacks, "the "+a.Role+" CA "+shortID(a.ID))
		}
	}
	if len(lacks) > 0 {
		message, remedy := "does not trust "+strings.Join(lacks, " and "), "the elected replica writes it with --publish-ca-bundle: "+seeLogs
		if len(w.Managers) > 0 && w.Managers[0].Name != registration.FieldManager {
			message += ", written last by " + strconv.Quote(w.Managers[0].Name)
		}
		if c.Injector != "" {
			remedy = "cert-manager's cainjector writes it, by the annotation " + c.Injector + ": see its log, or remove the annotation"
		}
		add(levelProblem, message, remedy)
	}
	if w.Remark != "" {
		add(levelNote, "caBundle: "+w.Remark, "")
	}
	for _, one := range w.Bundle {
		if s.role(one.ID) == "" {
			add(levelNote, "trusts "+shortID(one.ID)+", which is not in "+s.place, "anyone with its key can impersonate the servers: remove it unless it is intended")
		}
	}
	return found
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
