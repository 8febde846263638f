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
	// certsGrace is how long a server may take for what it does by itself.
	certsGrace = 2 * time.Minute
	// certsLastDay is what is left of a certificate that lives for the usual week and
	// should have been renewed days ago.
	certsLastDay = 24 * time.Hour
)

// clientFiles are the API server's client certificate and its key.
const clientFiles = certstore.ClientCertFile + " and " + certstore.ClientKeyFile

// findings is everything that somebody should know: problems first, then what
// could not be told, then notes, each in the order of what is shown.
func (s *certsSight) findings() []certsFinding {
	found := slices.Concat(s.ofState(), s.ofAuthorities(), s.ofFiles(), s.ofRotation(), s.ofReplicas(), s.ofWebhooks())
	if found == nil {
		found = []certsFinding{}
	}
	rank := map[certsLevel]int{levelProblem: 0, levelUnknown: 1, levelNote: 2}
	slices.SortStableFunc(found, func(a, b certsFinding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return found
}

// start is how servers are started that keep their state here.
func (s *certsSight) start() string {
	if s.dir != "" {
		return s.program + " serve --self-signed HOSTS --self-signed-dir " + cli.ShellQuote(s.dir)
	}
	return "start servers with --self-signed-secret, or correct --secret"
}

// ofState is what is wrong with the state as a whole.
func (s *certsSight) ofState() []certsFinding {
	var damage rotation.Damage
	switch {
	case s.stateErr == nil:
		return nil
	case errors.As(s.stateErr, &damage):
		remedy := "a server that runs writes it again from memory within a minute: if it does not, its log says why"
		if s.alive() == 0 {
			remedy = "no server runs that could write it again from memory; one that is started goes on with what can be read, or makes a new CA"
		}
		var found []certsFinding
		for _, one := range damage {
			found = append(found, certsFinding{Level: levelProblem, Object: s.place, Message: one, Remedy: remedy})
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
		return []certsFinding{{Level: levelProblem, Object: s.place, Message: "there is no CA in it", Remedy: remedy}}
	}
	level := levelUnknown
	if _, foreign := errors.AsType[*certstore.ForeignError](s.stateErr); foreign {
		level = levelProblem
	}
	message, remedy := saidOf(s.place, s.stateErr)
	return []certsFinding{{Level: level, Object: s.place, Message: message, Remedy: remedy}}
}

// saidOf is an error about an object without its name, and the hint that is in it.
func saidOf(object string, err error) (message, hint string) {
	message = strings.TrimPrefix(err.Error(), object+": ")
	if body, found := strings.CutSuffix(message, ")"); found {
		if before, after, found := strings.Cut(body, " (hint: "); found {
			return before, after
		}
	}
	return message, ""
}

// ofFiles is what is wrong with what is there for clients beside the state.
func (s *certsSight) ofFiles() []certsFinding {
	if s.state == nil || s.now.After(s.state.Current.Cert.NotAfter) {
		return nil
	}
	var found []certsFinding
	current := s.state.Current.Cert
	if !slices.ContainsFunc(certificatesIn(s.bundle), current.Equal) {
		one := certsFinding{Level: levelProblem, Object: s.place, Message: rotation.KeyBundle + ": does not hold the current CA " + shortID(s.state.Current.ID()), Remedy: "a server that runs writes it again, and whoever was given the file needs it anew"}
		if s.dir == "" {
			one.Level, one.Remedy = levelNote, "registrations are told by the other keys; it is written again with the next step of a rotation"
		}
		found = append(found, one)
	}
	if s.dir == "" {
		return found
	}
	if pending := s.state.Pending; pending != nil && !s.registered && slices.ContainsFunc(certificatesIn(s.bundle), pending.Cert.Equal) {
		one := certsFinding{
			Level: levelNote, Object: "file " + filepath.Join(s.dir, certstore.CAFile), Message: "holds the new CA " + shortID(pending.ID()) + " beside the old one; who trusts it cannot be told without --registration",
			Remedy: "give it to the API server before the new CA signs",
		}
		if s.whole() {
			if at := s.next().At; at != nil && s.state.Phase == rotation.Hold {
				one.Remedy += " at " + dated(*at, s.now)
			}
		}
		one.Remedy += ", and copy " + clientFiles + " anew where they are copies"
		found = append(found, one)
	}
	const writes = "a server that runs writes a new one; kube-apiserver reads it within five minutes"
	object := "file " + filepath.Join(s.dir, certstore.ClientCertFile)
	switch client := certificatesIn(s.clientCert); {
	case errors.Is(s.clientErr, fs.ErrNotExist):
		found = append(found, certsFinding{Level: levelNote, Object: object, Message: "is not there", Remedy: "a server that runs with --self-signed-dir writes it"})
	case s.clientErr != nil:
		found = append(found, certsFinding{Level: levelUnknown, Object: object, Message: "cannot be read: " + cli.Cause(s.clientErr).Error()})
	case len(client) == 0:
		found = append(found, certsFinding{Level: levelProblem, Object: object, Message: "holds no certificate that can be read", Remedy: writes})
	case s.now.After(client[0].NotAfter):
		found = append(found, certsFinding{Level: levelProblem, Object: object, Message: "has ended at " + dated(client[0].NotAfter, s.now) + ": token reviews are answered to nobody who shows it", Remedy: writes})
	case !slices.ContainsFunc(s.state.Authorities(), func(a *rotation.Authority) bool { return client[0].CheckSignatureFrom(a.Cert) == nil }):
		found = append(found, certsFinding{Level: levelProblem, Object: object, Message: "is of none of the CAs in " + s.place + ": token reviews are answered to nobody who shows it", Remedy: writes})
	}
	return found
}

// certificatesIn are the certificates of a text in PEM, as far as it can be read.
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

// ofAuthorities is what is wrong with the CAs by themselves.
func (s *certsSight) ofAuthorities() []certsFinding {
	var found []certsFinding
	for _, a := range s.authorities() {
		object := s.place + ", " + a.Role + " CA " + shortID(a.ID)
		switch {
		case s.now.After(a.NotAfter) && a.Role == rolePrevious:
			found = append(found, certsFinding{Level: levelNote, Object: object, Message: "has ended at " + dated(a.NotAfter, s.now) + ", and is not published any more"})
		case s.now.After(a.NotAfter):
			found = append(found, certsFinding{
				Level: levelProblem, Object: object, Message: "has ended at " + dated(a.NotAfter, s.now),
				Remedy: "a server that runs puts another in its place at once: if it does not, its log says why",
			})
		case s.now.Before(a.NotBefore):
			found = append(found, certsFinding{
				Level: levelProblem, Object: object, Message: "is not valid before " + dated(a.NotBefore, s.now),
				Remedy: "check the clocks of this machine and of the servers",
			})
		}
	}
	return found
}

// ofRotation is what keeps the next step from being taken.
func (s *certsSight) ofRotation() []certsFinding {
	if !s.whole() {
		return nil
	}
	next := s.next()
	idle := s.state.Phase == rotation.Stable && s.state.Request == nil
	if s.replicasErr == nil && s.alive() == 0 {
		one := certsFinding{Level: levelProblem, Object: s.place, Message: "no server runs that takes care of it: " + s.nobody(), Remedy: s.start()}
		switch {
		case !idle:
			one.Message += ", and a rotation waits"
		case s.dir != "":
			one.Level = levelNote // one machine, where the server is stopped
		}
		return []certsFinding{one}
	}
	const remedy = "the servers' logs say why, and Events of the reason " + certs.ReasonStoreFailed
	if s.unread() != nil {
		return []certsFinding{{
			Level: levelProblem, Object: s.place, Message: "no server has read the request for a new CA of " + dated(s.state.Request.At, s.now), Remedy: remedy,
		}}
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
	if s.now.Before(since.Add(certsGrace)) {
		return nil
	}
	return []certsFinding{{
		Level: levelProblem, Object: s.place, Message: next.What + ": there is nothing to wait for since " + dated(since, s.now) + ", and no server does it", Remedy: remedy,
	}}
}

// ofReplicas is what is wrong with what replicas serve.
func (s *certsSight) ofReplicas() []certsFinding {
	if s.replicasErr != nil {
		message, remedy := saidOf("replicas", s.replicasErr)
		return []certsFinding{{Level: levelUnknown, Object: "replicas", Message: "what they serve cannot be read: " + message, Remedy: remedy}}
	}
	var found []certsFinding
	for i := range s.replicas {
		r := &s.replicas[i]
		level, message, remedy := s.ofReplica(r)
		if message != "" {
			found = append(found, certsFinding{Level: level, Object: "replica " + r.Replica, Message: message, Remedy: remedy})
		}
	}
	return found
}

func (s *certsSight) ofReplica(r *rotation.Report) (level certsLevel, message, remedy string) {
	const log = "its log says why"
	ended := s.now.After(r.NotAfter)
	switch {
	case s.away(r) && (r.Issuer == "" || ended):
		return levelNote, "is away since " + dated(r.Seen, s.now) + ", and nothing that it serves can be valid", "nothing: a server removes its report when it has been away for a day"
	case s.away(r):
		return levelNote, "is away since " + dated(r.Seen, s.now) + ": it is taken to serve what it did until that ends at " + dated(r.NotAfter, s.now),
			s.gone(r.Replica)
	case r.Issuer == "":
		return levelProblem, "serves no certificate", log
	case ended:
		return levelProblem, "serves a certificate that has ended at " + dated(r.NotAfter, s.now), log + "; check its clock"
	case r.Issuer == certstore.UnreadableIssuer:
		return levelUnknown, "serves what is of no CA that is known here, or does not say what in a way that can be read", "it says it anew within a minute, unless it is a program of another version: " + log
	case s.whole() && s.role(r.Issuer) == "":
		return levelProblem, "serves a certificate of the CA " + shortID(r.Issuer) + ", which is not in " + s.place, "it takes one of the current CA within a minute: if it does not, " + log
	case r.NotAfter.Sub(s.now) < certsLastDay:
		return levelNote, "its certificate ends at " + dated(r.NotAfter, s.now) + ", and is usually renewed days before", log + ", unless certificates are short-lived on purpose"
	case r.Seen.Sub(s.now) > certsAway:
		return levelNote, "was last seen at " + dated(r.Seen, s.now) + ": its clock and that of this machine differ", "set the clock that is wrong"
	default:
		return "", "", ""
	}
}

// gone is what to do about replicas that are away.
func (s *certsSight) gone(names ...string) string {
	var commands []string
	for _, name := range names {
		if command := s.forget(name); command != "" && !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	if len(commands) == 0 {
		return "see whether it can reach the place of the state, if it runs"
	}
	return "if it certainly does not run any more: " + strings.Join(commands, "; ") + "; if it may, see whether it can reach the place of the state"
}

// ofWebhooks is what webhooks do not trust and should.
func (s *certsSight) ofWebhooks() []certsFinding {
	var found []certsFinding
	strangers := s.strangers()
	if len(strangers) > 0 {
		found = append(found, s.ofStrangers(strangers))
	}
	for i := range s.entries {
		e := &s.entries[i]
		switch {
		case slices.Contains(strangers, e):
			found = append(found, ofRemark(e)...)
			continue
		case e.unknown:
			found = append(found, certsFinding{Level: levelUnknown, Object: e.name(), Message: e.problem, Remedy: e.remedy})
			continue
		case e.problem != "":
			found = append(found, certsFinding{Level: levelProblem, Object: e.name(), Message: e.problem, Remedy: cmp.Or(e.remedy, s.publish())})
			continue
		}
		found = append(found, s.ofWebhook(e)...)
	}
	return found
}

// publish is how a CA comes into a registration.
func (s *certsSight) publish() string {
	switch {
	case s.dir != "" && !s.registered:
		return "put " + s.dir + "/" + certstore.CAFile + " into its caBundle: " + s.program + " manifests --ca-file"
	case s.alive() == 0:
		return "a server writes it with --publish-ca-bundle, and none runs"
	default:
		return "a server writes it with --publish-ca-bundle: if it does not, its log says why, and Events of the reason " + certs.ReasonPublishFailed
	}
}

// ofStrangers is that nobody trusts anything of the state.
func (s *certsSight) ofStrangers(list []*trustEntry) certsFinding {
	var trusts, refused []string
	for _, e := range list {
		trusts = append(trusts, e.name()+", trusts "+listed(s.others(e)))
		names, _ := s.refused(e)
		refused = append(refused, names...)
	}
	one := certsFinding{Level: levelProblem, Object: s.place, Message: "no webhook trusts a CA of it, so that it may not belong to these registrations: " + strings.Join(trusts, "; ")}
	if slices.Sort(refused); len(refused) > 0 {
		one.Message += ": calls to " + listed(slices.Compact(refused)) + " fail"
	}
	place := "--secret"
	if s.dir != "" {
		place = "--dir"
	}
	one.Remedy = "check " + place + " and --registration; if they are right: " + cmp.Or(list[0].remedy, s.publish())
	return one
}

// ofRemark is what there is to say about a bundle that can be used.
func ofRemark(e *trustEntry) []certsFinding {
	if e.remark == "" {
		return nil
	}
	return []certsFinding{{Level: levelNote, Object: e.name(), Message: "caBundle: " + e.remark}}
}

func (s *certsSight) ofWebhook(e *trustEntry) []certsFinding {
	var found []certsFinding
	problem := func(level certsLevel, message, remedy string) {
		found = append(found, certsFinding{Level: level, Object: e.name(), Message: message, Remedy: remedy})
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
			text += ": calls to " + listed(refused) + " fail"
		}
		problem(levelProblem, text, publish)
	} else {
		if len(refused) > 0 {
			problem(levelProblem, "does not trust the CA of what "+listed(refused)+" may serve: calls to it fail", publish)
		}
		if len(away) > 0 {
			problem(levelNote, "does not trust the CA of what "+listed(away)+" may serve, of which nothing is heard: calls to it fail, if it runs", s.gone(away...))
		}
	}
	if s.whole() && lacks(s.state.Pending) {
		id := shortID(s.state.Pending.ID())
		switch {
		case s.state.Phase == rotation.Hold:
			problem(levelProblem, "does not trust the pending CA "+id+" any more",
				"it is written again, and the hold begins anew: tell whatever takes it away to leave caBundle alone, which Events of the reason "+certs.ReasonOverwritten+" name")
		case s.now.Before(s.state.Since.Add(certsGrace)):
			problem(levelNote, "does not trust the pending CA "+id+" yet", "")
		default:
			problem(levelProblem, "does not trust the pending CA "+id+", which is published since "+dated(s.state.Since, s.now), publish)
		}
	}
	found = append(found, ofRemark(e)...)
	if others := s.others(e); s.whole() && len(others) > 0 {
		const stranger = "whoever has the key of that can stand in for the servers: "
		text := "trusts besides " + listed(others) + ", which is not in " + s.place
		if s.state.Cause == rotation.Emergency {
			problem(levelProblem, text+", and the last rotation was an emergency", stranger+"take it out at once, or see why no server does: "+publish)
		} else {
			problem(levelNote, text, stranger+"take it out unless it is meant")
		}
	}
	return found
}
