package certs

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/webhookcall"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// level is how bad a diagnostic is.
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
const seeLogs = "the servers' logs and Events of the reason " + certs.ReasonStoreFailed + " say why"

// diagnostics returns problems, then what cannot be decided, then notes, each in the
// order of what is shown.
func (s *snapshot) diagnostics() []diagnostic {
	found := append([]diagnostic{}, s.diagnoseState()...) // in JSON, no list is null
	found = append(found, s.diagnoseReplicas()...)
	for i := range s.entries {
		found = append(found, s.diagnoseWebhook(&s.entries[i])...)
	}
	rank := map[level]int{levelProblem: 0, levelUnknown: 1, levelNote: 2}
	slices.SortStableFunc(found, func(a, b diagnostic) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return found
}

// diagnoseState checks that there is a state, and that a server continues it.
func (s *snapshot) diagnoseState() []diagnostic {
	problem := func(object, message, remedy string) []diagnostic {
		return []diagnostic{{levelProblem, object, message, remedy}}
	}
	var damage rotation.Damage
	_, foreign := errors.AsType[*certstore.ForeignError](s.stateErr)
	switch {
	case s.stateErr == nil:
	case errors.Is(s.stateErr, rotation.ErrEmpty):
		if text := s.unshared(); text != "" {
			return []diagnostic{{levelNote, s.place, text, ""}}
		}
		return problem(s.place, "there is no CA in it", "check --secret, --dir and the flags of the servers; the first server creates a CA, and a running one restores it")
	case errors.As(s.stateErr, &damage):
		return problem(s.place, damage.Error(), "a running server restores it from memory; without one, the next server creates a new CA")
	default:
		message, remedy := splitHint(s.place, s.stateErr)
		if foreign {
			return problem(s.place, message, remedy)
		}
		return []diagnostic{{levelUnknown, s.place, message, remedy}}
	}
	var found []diagnostic
	for _, a := range s.authorities() {
		object := s.place + ", " + a.Role + " CA " + shortID(a.ID)
		switch {
		case s.now.After(a.NotAfter) && a.Role != "previous":
			found = append(found, problem(object, "has expired at "+dated(a.NotAfter, s.now), "a running server replaces it at once; "+seeLogs)...)
		case s.now.Before(a.NotBefore):
			found = append(found, problem(object, "is not valid before "+dated(a.NotBefore, s.now), "check the clocks of this machine and of the servers")...)
		}
	}
	switch r := s.state.Request; {
	case s.isDown():
		found = append(found, problem(s.place, "no server has had a heartbeat in the last minute, so none renews it", "start servers with --self-signed-secret, or correct --secret")...)
	case r != nil && s.state.Phase != rotation.Activate && !s.now.Before(r.At.Add(graceTime)) && !s.now.Before(s.state.Since.Add(graceTime)):
		found = append(found, problem(s.place, "no server has read the request for a new CA of "+dated(r.At, s.now), seeLogs)...)
	}
	return found
}

// unshared says why there need not be a CA in the default place, "" if there should be one: servers with --self-signed-dir, with
// cert-manager or with files keep none there, and a connection has shown what webhooks trust, or has failed for another reason.
func (s *snapshot) unshared() string {
	if s.named || s.single || len(s.replicas) > 0 || s.replicasErr != nil || len(s.entries) == 0 ||
		slices.ContainsFunc(s.entries, func(e trustEntry) bool { return !e.probed || e.accepts() == authn.No }) {
		return ""
	}
	return "there is no CA in it: the servers share none there, so a connection to each webhook shows what it trusts"
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

// diagnoseReplicas checks what replicas serve.
func (s *snapshot) diagnoseReplicas() []diagnostic {
	if s.replicasErr != nil {
		message, remedy := splitHint("replicas", s.replicasErr)
		return []diagnostic{{levelUnknown, "replicas", "what they serve cannot be read: " + message, remedy}}
	}
	var found []diagnostic
	for i := range s.replicas {
		r := &s.replicas[i]
		d := diagnostic{Level: levelProblem, Object: "replica " + r.Replica, Remedy: "its log says why"}
		switch {
		case s.away(r):
			d.Level, d.Message = levelNote, "is away since "+dated(r.Seen, s.now)+", and may serve its last certificate until "+dated(r.NotAfter, s.now)
			d.Remedy = "if it certainly does not run any more: " + s.forget + shell.Quote(r.Lease)
			if r.Issuer == "" || s.now.After(r.NotAfter) {
				d.Message, d.Remedy = "is away since "+dated(r.Seen, s.now)+", and its certificate has expired", ""
			}
		case r.Issuer == "":
			d.Message = "serves no certificate"
		case s.now.After(r.NotAfter):
			d.Message = "serves a certificate that expired at " + dated(r.NotAfter, s.now)
		case r.Issuer == certstore.UnreadableIssuer:
			d.Level, d.Message = levelUnknown, "serves a certificate of an unknown CA, or its Lease cannot be read"
		case s.state != nil && s.role(r.Issuer) == "":
			d.Message = "serves a certificate of the CA " + shortID(r.Issuer) + ", which is not in " + s.place
		default:
			continue
		}
		found = append(found, d)
	}
	return found
}

// diagnoseWebhook checks what a webhook trusts.
func (s *snapshot) diagnoseWebhook(e *trustEntry) []diagnostic {
	if e.unknown {
		return []diagnostic{{levelUnknown, e.name(), e.problem, ""}}
	}
	var notes []diagnostic
	for _, remark := range e.renewal {
		notes = append(notes, diagnostic{levelNote, e.object, remark, ""})
	}
	return append(notes, s.diagnoseTrust(e)...)
}

// diagnoseTrust checks the caBundle of a webhook that could be read.
func (s *snapshot) diagnoseTrust(e *trustEntry) []diagnostic {
	if e.problem != "" {
		return []diagnostic{{levelProblem, e.name(), e.problem, "apply the output of gatehouse manifests, or name another with --registration"}}
	}
	var found []diagnostic
	add := func(level level, message, remedy string) {
		found = append(found, diagnostic{level, e.name(), message, remedy})
	}
	if untrusted, ok := errors.AsType[*webhookcall.UntrustedError](e.probeErr); ok {
		add(levelProblem, untrusted.Text, "write the CA of the servers into the caBundle: gatehouse manifests --ca-file FILE, a replica with --publish-ca-bundle, or cert-manager does")
		return found
	}
	if e.probeErr != nil {
		add(levelUnknown, "what it serves cannot be seen from here: "+e.probeErr.Error(), "run this, or gatehouse probe, in a pod or on a node")
	}
	publish := "a server writes it with --publish-ca-bundle: its log, and Events of the reason " + certs.ReasonPublishFailed + ", say why it does not"
	if e.injector != "" {
		publish = "cert-manager's cainjector writes it, by the annotation " + e.injector + ": see its log, or remove the annotation"
	}
	var lacks []string
	for _, a := range s.authorities() {
		isNew := a.Role == "pending" && s.state.Phase == rotation.Publish && s.now.Before(s.state.Since.Add(graceTime))
		if !e.has(a.ID) && !isNew && a.Role != "previous" {
			lacks = append(lacks, "the "+a.Role+" CA "+shortID(a.ID))
		}
	}
	refused := s.refused(e)
	if len(lacks) > 0 || len(refused) > 0 {
		if len(lacks) == 0 {
			lacks = append(lacks, "the CA of some replicas")
		}
		message := "does not trust " + strings.Join(lacks, " and ")
		if e.author != "" {
			message += ", written last by " + strconv.Quote(e.author)
		}
		if len(refused) > 0 {
			message += ": calls to " + join(refused) + " fail"
		}
		add(levelProblem, message, publish)
	}
	if e.remark != "" {
		add(levelNote, "caBundle: "+e.remark, "")
	}
	var others []string
	for _, c := range e.bundle {
		if s.role(c.ID) == "" {
			others = append(others, shortID(c.ID))
		}
	}
	if s.state != nil && len(others) > 0 {
		level := levelNote
		if s.state.Cause == rotation.Emergency {
			level = levelProblem // the removed CA may be the one whose key leaked
		}
		add(level, "trusts "+join(others)+", which is not in "+s.place, "anyone with its key can impersonate the servers: remove it unless it is intended")
	}
	return found
}
