package certs

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

const (
	// graceTime is how long a server may take for what it does by itself.
	graceTime = 2 * time.Minute
	// lastDay is what is left of a certificate that lives for the usual week and
	// should have been renewed days ago.
	lastDay = 24 * time.Hour
)

// clientFiles are the API server's client certificate and its key.
const clientFiles = certstore.ClientCertFile + " and " + certstore.ClientKeyFile

func problem(object, message, remedy string) diagnostic {
	return diagnostic{levelProblem, object, message, remedy}
}

func unknown(object, message, remedy string) diagnostic {
	return diagnostic{levelUnknown, object, message, remedy}
}

func note(object, message, remedy string) diagnostic {
	return diagnostic{levelNote, object, message, remedy}
}

// diagnostics returns problems, then what cannot be decided, then notes, each in the
// order of what is shown.
func (s *snapshot) diagnostics() []diagnostic {
	found := []diagnostic{} // in JSON, no list is null
	for _, diagnose := range []func() []diagnostic{
		s.diagnoseState, s.diagnoseAuthorities, s.diagnoseFiles, s.diagnoseRotation, s.diagnoseReplicas, s.diagnoseWebhooks,
	} {
		found = append(found, diagnose()...)
	}
	rank := map[level]int{levelProblem: 0, levelUnknown: 1, levelNote: 2}
	slices.SortStableFunc(found, func(a, b diagnostic) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return found
}

// start returns how to start servers that keep their state here.
func (s *snapshot) start() string {
	if s.dir != "" {
		return s.program + " serve --self-signed HOSTS --self-signed-dir " + cli.ShellQuote(s.dir)
	}
	return "start servers with --self-signed-secret, or correct --secret"
}

// diagnoseState checks that the state can be read.
func (s *snapshot) diagnoseState() []diagnostic {
	var damage rotation.Damage
	switch {
	case s.stateErr == nil:
		return nil
	case errors.As(s.stateErr, &damage):
		remedy := "a server that runs writes it again from memory within a minute: if it does not, its log says why"
		if s.alive() == 0 {
			remedy = "no server runs that could write it again from memory; one that is started goes on with what can be read, or makes a new CA"
		}
		var found []diagnostic
		for _, one := range damage {
			found = append(found, problem(s.place, one, remedy))
		}
		return found
	case errors.Is(s.stateErr, rotation.ErrEmpty):
		remedy := "a server that runs writes it again from memory within a minute: if it does not, its log says why"
		switch {
		case s.alive() > 0:
		case s.dir != "":
			remedy = s.program + " certs init " + cli.ShellQuote(s.dir) + " --host HOST, or " + s.start()
		default:
			remedy = s.start()
		}
		return []diagnostic{problem(s.place, "there is no CA in it", remedy)}
	}
	level := levelUnknown
	if _, foreign := errors.AsType[*certstore.ForeignError](s.stateErr); foreign {
		level = levelProblem
	}
	message, remedy := splitHint(s.place, s.stateErr)
	return []diagnostic{{level, s.place, message, remedy}}
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

// diagnoseFiles checks what is stored for clients beside the state.
func (s *snapshot) diagnoseFiles() []diagnostic {
	if s.state == nil || s.now.After(s.state.Current.Cert.NotAfter) {
		return nil
	}
	var found []diagnostic
	current := s.state.Current.Cert
	if !slices.ContainsFunc(certificatesIn(s.bundle), current.Equal) {
		one := problem(s.place, rotation.KeyBundle+": does not hold the current CA "+shortID(s.state.Current.ID()), "a server that runs writes it again, and whoever was given the file needs it anew")
		if s.dir == "" {
			one.Level, one.Remedy = levelNote, "registrations are told by the other keys; it is written again with the next step of a rotation"
		}
		found = append(found, one)
	}
	if s.dir == "" {
		return found
	}
	if pending := s.state.Pending; pending != nil && !s.registered && slices.ContainsFunc(certificatesIn(s.bundle), pending.Cert.Equal) {
		one := note("file "+filepath.Join(s.dir, certstore.CAFile), "holds the new CA "+shortID(pending.ID())+" beside the old one; who trusts it cannot be decided without --registration", "give it to the API server before the new CA signs")
		if s.whole() {
			if at := s.next().At; at != nil && s.state.Phase == rotation.Hold {
				one.Remedy += " at " + dated(*at, s.now)
			}
		}
		one.Remedy += ", and update copies of " + clientFiles
		found = append(found, one)
	}
	const writes = "a server that runs writes a new one; kube-apiserver reads it within five minutes"
	object := "file " + filepath.Join(s.dir, certstore.ClientCertFile)
	switch client := certificatesIn(s.clientCert); {
	case errors.Is(s.clientErr, fs.ErrNotExist):
		found = append(found, note(object, "is not there", "a server that runs with --self-signed-dir writes it"))
	case s.clientErr != nil:
		found = append(found, unknown(object, "cannot be read: "+cli.Cause(s.clientErr).Error(), ""))
	case len(client) == 0:
		found = append(found, problem(object, "holds no certificate that can be read", writes))
	case s.now.After(client[0].NotAfter):
		found = append(found, problem(object, "has ended at "+dated(client[0].NotAfter, s.now)+": token reviews are answered to nobody who shows it", writes))
	case !slices.ContainsFunc(s.state.Authorities(), func(a *rotation.Authority) bool { return client[0].CheckSignatureFrom(a.Cert) == nil }):
		found = append(found, problem(object, "is of none of the CAs in "+s.place+": token reviews are answered to nobody who shows it", writes))
	}
	return found
}

// certificatesIn returns the certificates in PEM that can be read.
func certificatesIn(text []byte) []*x509.Certificate {
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			list = append(list, cert)
		}
	}
}

// diagnoseAuthorities checks the validity of the CAs.
func (s *snapshot) diagnoseAuthorities() []diagnostic {
	var found []diagnostic
	for _, a := range s.authorities() {
		object := s.place + ", " + a.Role + " CA " + shortID(a.ID)
		switch {
		case s.now.After(a.NotAfter) && a.Role == rolePrevious:
			found = append(found, note(object, "has ended at "+dated(a.NotAfter, s.now)+", and is not published any more", ""))
		case s.now.After(a.NotAfter):
			found = append(found, problem(object, "has ended at "+dated(a.NotAfter, s.now), "a server that runs puts another in its place at once: if it does not, its log says why"))
		case s.now.Before(a.NotBefore):
			found = append(found, problem(object, "is not valid before "+dated(a.NotBefore, s.now), "check the clocks of this machine and of the servers"))
		}
	}
	return found
}

// diagnoseRotation checks that the next step is taken in time.
func (s *snapshot) diagnoseRotation() []diagnostic {
	if !s.whole() {
		return nil
	}
	next := s.next()
	idle := s.state.Phase == rotation.Stable && s.state.Request == nil
	if s.replicasErr == nil && s.alive() == 0 {
		one := problem(s.place, "no running server manages it: "+s.nobody(), s.start())
		switch {
		case !idle:
			one.Message += ", and a rotation waits"
		case s.dir != "":
			one.Level = levelNote // one machine, where the server is stopped
		}
		return []diagnostic{one}
	}
	const remedy = "the servers' logs say why, and Events of the reason " + certs.ReasonStoreFailed
	if s.unread() != nil {
		return []diagnostic{problem(s.place, "no server has read the request for a new CA of "+dated(s.state.Request.At, s.now), remedy)}
	}
	// Nobody has to be waited for, and nothing happens.
	since := s.state.Since
	switch {
	case len(next.WaitsFor) > 0, idle && next.At == nil, s.state.Request != nil && s.state.Phase == rotation.Stable:
		return nil
	case idle:
		since = *next.At
	case next.due != nil:
		// A server that begins anew counts the hold anew.
		since = next.due.Add(s.hold)
	case next.At != nil:
		since = next.At.Add(s.hold)
	case s.state.Phase == rotation.Hold, s.replicasErr != nil:
		return nil
	}
	if s.now.Before(since.Add(graceTime)) {
		return nil
	}
	return []diagnostic{problem(s.place, next.What+": there is nothing to wait for since "+dated(since, s.now)+", and no server does it", remedy)}
}

// diagnoseReplicas checks what replicas serve.
func (s *snapshot) diagnoseReplicas() []diagnostic {
	if s.replicasErr != nil {
		message, remedy := splitHint("replicas", s.replicasErr)
		return []diagnostic{unknown("replicas", "what they serve cannot be read: "+message, remedy)}
	}
	var found []diagnostic
	for i := range s.replicas {
		r := &s.replicas[i]
		level, message, remedy := s.diagnoseReplica(r)
		if message != "" {
			found = append(found, diagnostic{level, "replica " + r.Replica, message, remedy})
		}
	}
	return found
}

func (s *snapshot) diagnoseReplica(r *rotation.Report) (level level, message, remedy string) {
	const log = "its log says why"
	ended := s.now.After(r.NotAfter)
	switch {
	case s.away(r) && (r.Issuer == "" || ended):
		return levelNote, "is away since " + dated(r.Seen, s.now) + ", and nothing that it serves can be valid", "nothing: a server removes its report when it has been away for a day"
	case s.away(r):
		return levelNote, "is away since " + dated(r.Seen, s.now) + ": it is assumed to serve its last certificate, which expires at " + dated(r.NotAfter, s.now),
			s.gone(r.Replica)
	case r.Issuer == "":
		return levelProblem, "serves no certificate", log
	case ended:
		return levelProblem, "serves a certificate that has ended at " + dated(r.NotAfter, s.now), log + "; check its clock"
	case r.Issuer == certstore.UnreadableIssuer:
		return levelUnknown, "serves what is of no CA that is known here, or does not say what in a way that can be read", "it says it anew within a minute, unless it is a program of another version: " + log
	case s.whole() && s.role(r.Issuer) == "":
		return levelProblem, "serves a certificate of the CA " + shortID(r.Issuer) + ", which is not in " + s.place, "it takes one of the current CA within a minute: if it does not, " + log
	case r.NotAfter.Sub(s.now) < lastDay:
		return levelNote, "its certificate ends at " + dated(r.NotAfter, s.now) + ", and is usually renewed days before", log + ", unless certificates are short-lived on purpose"
	case r.Seen.Sub(s.now) > unreachableTime:
		return levelNote, "was last seen at " + dated(r.Seen, s.now) + ": its clock and that of this machine differ", "set the clock that is wrong"
	default:
		return "", "", ""
	}
}

// gone returns what to do about unreachable replicas.
func (s *snapshot) gone(names ...string) string {
	var commands []string
	for _, name := range names {
		// Of several of one name, the one that has been silent for longest.
		var oldest rotation.Report
		for i := range s.replicas {
			if r := &s.replicas[i]; r.Replica == name && (oldest.Replica == "" || r.Seen.Before(oldest.Seen)) {
				oldest = *r
			}
		}
		if command := s.forget(oldest.Location); oldest.Location != "" && !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	if len(commands) == 0 {
		return "see whether it can reach the place of the state, if it runs"
	}
	return "if it certainly does not run any more: " + strings.Join(commands, "; ") + "; if it may, see whether it can reach the place of the state"
}

// diagnoseWebhooks checks what webhooks trust.
func (s *snapshot) diagnoseWebhooks() []diagnostic {
	var found []diagnostic
	unrelated := s.unrelated()
	if len(unrelated) > 0 {
		found = append(found, s.diagnoseUnrelated(unrelated))
	}
	for i := range s.entries {
		e := &s.entries[i]
		switch {
		case slices.Contains(unrelated, e):
			found = append(found, diagnoseBundle(e)...)
			continue
		case e.unknown:
			found = append(found, unknown(e.name(), e.problem, e.remedy))
			continue
		case e.problem != "":
			found = append(found, problem(e.name(), e.problem, cmp.Or(e.remedy, s.publish())))
			continue
		}
		found = append(found, s.diagnoseWebhook(e)...)
	}
	return found
}

// publish returns how a CA gets into a registration.
func (s *snapshot) publish() string {
	switch {
	case s.dir != "" && !s.registered:
		return "put " + s.dir + "/" + certstore.CAFile + " into its caBundle: " + s.program + " manifests --ca-file"
	case s.alive() == 0:
		return "a server writes it with --publish-ca-bundle, and none runs"
	default:
		return "a server writes it with --publish-ca-bundle: if it does not, its log says why, and Events of the reason " + certs.ReasonPublishFailed
	}
}

// diagnoseUnrelated reports that no webhook trusts a CA of the state.
func (s *snapshot) diagnoseUnrelated(list []*trustEntry) diagnostic {
	var trusts, refused []string
	for _, e := range list {
		trusts = append(trusts, e.name()+", trusts "+join(s.others(e)))
		names, _ := s.refused(e)
		refused = append(refused, names...)
	}
	one := problem(s.place, "no webhook trusts a CA of it, so that it may not belong to these registrations: "+strings.Join(trusts, "; "), "")
	if slices.Sort(refused); len(refused) > 0 {
		one.Message += ": calls to " + join(slices.Compact(refused)) + " fail"
	}
	place := "--secret"
	if s.dir != "" {
		place = "--dir"
	}
	one.Remedy = "check " + place + " and --registration; if they are right: " + cmp.Or(list[0].remedy, s.publish())
	return one
}

// diagnoseBundle returns the remark about a valid bundle.
func diagnoseBundle(e *trustEntry) []diagnostic {
	if e.remark == "" {
		return nil
	}
	return []diagnostic{note(e.name(), "caBundle: "+e.remark, "")}
}

func (s *snapshot) diagnoseWebhook(e *trustEntry) []diagnostic {
	var found []diagnostic
	add := func(level level, message, remedy string) {
		found = append(found, diagnostic{level, e.name(), message, remedy})
	}
	refused, away := s.refused(e)
	publish := cmp.Or(e.remedy, s.publish())
	lacks := func(a *rotation.Authority) bool { return a != nil && !e.has(a.ID()) }
	if s.state != nil && lacks(s.state.Current) {
		text := "does not trust the current CA " + shortID(s.state.Current.ID())
		if e.author != "" {
			text += ", written last by " + strconv.Quote(e.author)
		}
		if len(refused) > 0 {
			text += ": calls to " + join(refused) + " fail"
		}
		add(levelProblem, text, publish)
	} else {
		if len(refused) > 0 {
			add(levelProblem, "does not trust the CA of what "+join(refused)+" may serve: calls to it fail", publish)
		}
		if len(away) > 0 {
			add(levelNote, "does not trust the CA of what "+join(away)+" may serve, which has no heartbeat: calls to it fail if it still runs", s.gone(away...))
		}
	}
	if s.whole() && lacks(s.state.Pending) {
		id := shortID(s.state.Pending.ID())
		switch {
		case s.state.Phase == rotation.Hold:
			add(levelProblem, "does not trust the pending CA "+id+" any more",
				"it is written again, and the hold begins anew: tell whatever takes it away to leave caBundle alone, which Events of the reason "+certs.ReasonOverwritten+" name")
		case s.now.Before(s.state.Since.Add(graceTime)):
			add(levelNote, "does not trust the pending CA "+id+" yet", "")
		default:
			add(levelProblem, "does not trust the pending CA "+id+", which is published since "+dated(s.state.Since, s.now), publish)
		}
	}
	found = append(found, diagnoseBundle(e)...)
	if others := s.others(e); s.whole() && len(others) > 0 {
		const stranger = "anyone with its key can impersonate the servers: "
		text := "trusts besides " + join(others) + ", which is not in " + s.place
		if s.state.Cause == rotation.Emergency {
			add(levelProblem, text+", and the last rotation was an emergency", stranger+"remove it at once, or find out why no server does: "+publish)
		} else {
			add(levelNote, text, stranger+"remove it unless it is intended")
		}
	}
	return found
}
