package certs

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// certsNow is when tests look.
func certsNow() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// testCA is a CA that is the same in every run, of which there are as many as there
// are seeds.
func testCA(t *testing.T, seed byte, issued time.Time) *rotation.Authority {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	id := bytes.Repeat([]byte{seed}, 20)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(seed)), Subject: pkix.Name{CommonName: fmt.Sprintf("gatehouse self-signed CA %x", id[:4])},
		NotBefore: issued.Add(-rotation.Backdate), NotAfter: issued.Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: id,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &rotation.Authority{Cert: cert, Key: key}
}

// trusting is a bundle of the CA.
func trusting(a *rotation.Authority) []cabundle.Certificate {
	return []cabundle.Certificate{{Subject: a.Cert.Subject.String(), ID: a.ID(), NotAfter: a.Cert.NotAfter}}
}

// testSnapshot is a state in which all is well: one CA, two replicas, two webhooks.
func testSnapshot(t *testing.T) *snapshot {
	t.Helper()
	now := certsNow()
	a := testCA(t, 1, now.Add(-30*24*time.Hour))
	report := func(name string) rotation.Report {
		return rotation.Report{Replica: name, Issuer: a.ID(), SHA256: "ab", NotAfter: now.Add(6 * 24 * time.Hour), Seen: now.Add(-5 * time.Second), Version: "v1.0.0", Location: "gatehouse-ca-" + name + "-5c0e2a7d91b3f846-9d41c07be2a85f63"}
	}
	entry := func(object, webhook string) trustEntry {
		return trustEntry{object: object, webhook: webhook, bundle: trusting(a)}
	}
	return &snapshot{
		now: now, place: "Secret gatehouse-system/gatehouse-ca", hold: rotation.DefaultHold, program: "gatehouse", registered: true,
		forget: func(lease string) string { return "kubectl -n gatehouse-system delete lease " + lease },
		state: &rotation.State{
			Lineage: "line", Created: a.Cert.NotBefore, Generation: 1, Phase: rotation.Stable, Since: now.Add(-30 * 24 * time.Hour), Current: a,
		},
		bundle:   rotation.Bundle([]*x509.Certificate{a.Cert}),
		replicas: []rotation.Report{report("gatehouse-0"), report("gatehouse-1")},
		entries: []trustEntry{
			entry("MutatingWebhookConfiguration/gatehouse", "default.mutate.gatehouse.dev"),
			entry("ValidatingWebhookConfiguration/gatehouse", "fail.validate.gatehouse.dev"),
		},
	}
}

// inPhase puts the sight into a rotation, as it is right after the phase began.
func (s *snapshot) inPhase(t *testing.T, p rotation.Phase) *rotation.Authority {
	t.Helper()
	b := testCA(t, 2, s.now.Add(-time.Hour))
	s.state.Phase, s.state.Since, s.state.Cause, s.state.Pending = p, s.now.Add(-10*time.Second), rotation.Requested, b
	if p == rotation.Activate {
		s.state.Previous, s.state.Current, s.state.Pending = &rotation.Authority{Cert: s.state.Current.Cert}, b, nil
	}
	s.bundle = rotation.Bundle(s.state.Trusted(s.now))
	if p != rotation.Publish {
		for i := range s.entries {
			s.entries[i].bundle = append(s.entries[i].bundle, trusting(b)...)
		}
	}
	return b
}

// inDir puts the sight into a directory, with a client certificate that is the CA's
// own, for the sake of brevity.
func (s *snapshot) inDir() {
	s.place, s.dir, s.registered, s.entries = "directory certs", "certs", false, nil
	s.clientCert = rotation.Bundle([]*x509.Certificate{s.state.Current.Cert})
}

// short is the view as the tests have it: what comes next, and the diagnostics
// without their remedies, each on a line.
func short(v *statusView) string {
	var lines []string
	if v.Next != nil {
		lines = append(lines, "next: "+v.Next.text(v.At))
		for _, one := range v.Next.WaitsFor {
			lines = append(lines, "waits for "+one)
		}
	}
	for _, f := range v.Findings {
		lines = append(lines, string(f.Level)+": "+f.Object+": "+f.Message)
	}
	return strings.Join(lines, "\n")
}

func TestCertsView(t *testing.T) {
	t.Parallel()
	const (
		secret     = "Secret gatehouse-system/gatehouse-ca"
		mutating   = "MutatingWebhookConfiguration/gatehouse, webhook default.mutate.gatehouse.dev"
		validating = "ValidatingWebhookConfiguration/gatehouse, webhook fail.validate.gatehouse.dev"
	)
	a, b := shortID(testCA(t, 1, certsNow().Add(-30*24*time.Hour)).ID()), shortID(testCA(t, 2, certsNow().Add(-time.Hour)).ID())
	away := func(s *snapshot, i int) { s.replicas[i].Seen = s.now.Add(-3 * time.Minute) }
	forget := func(s *snapshot, i, ca int) { s.entries[i].bundle = slices.Delete(s.entries[i].bundle, ca, ca+1) }
	for name, test := range map[string]struct {
		change func(t *testing.T, s *snapshot)
		want   authn.Outcome
		text   string
	}{
		"all is well": {
			func(*testing.T, *snapshot) {}, authn.Yes,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life",
		},
		"renewal is overdue": {
			func(t *testing.T, s *snapshot) {
				s.state.Current = testCA(t, 1, s.now.Add(-300*24*time.Hour))
				s.bundle = rotation.Bundle(s.state.Trusted(s.now))
				for i := range s.entries {
					s.entries[i].bundle, s.replicas[i].Issuer = trusting(s.state.Current), s.state.Current.ID()
				}
			}, authn.No,
			"next: renewal is due at 2026-09-24T20:00:00Z (56d ago), when the current CA has used up two thirds of its life\n" +
				"problem: " + secret + ": renewal is due: there is nothing to wait for since 2026-09-24T20:00:00Z (56d ago), and no server does it",
		},
		"the CA has ended": {
			func(t *testing.T, s *snapshot) {
				s.state.Current = testCA(t, 1, s.now.Add(-366*24*time.Hour))
				for i := range s.entries {
					s.entries[i].bundle, s.replicas[i].Issuer = trusting(s.state.Current), s.state.Current.ID()
				}
				s.state.Since = s.now.Add(-time.Minute)
			}, authn.No,
			"next: another CA takes the place of the one that has ended, when a server looks at it\n" +
				"problem: " + secret + ", current CA CURRENT: has ended at 2026-11-19T12:00:00Z (24h ago)",
		},
		"the CA is not valid yet": {
			func(_ *testing.T, s *snapshot) { s.now = s.now.Add(-32 * 24 * time.Hour) }, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 245d), when the current CA has used up two thirds of its life\n" +
				"problem: " + secret + ", current CA " + a + ": is not valid before 2026-10-20T12:00:00Z (in 24h)\n" +
				"note: replica gatehouse-0: was last seen at 2026-11-20T11:59:55Z (in 31d): its clock and that of this machine differ\n" +
				"note: replica gatehouse-1: was last seen at 2026-11-20T11:59:55Z (in 31d): its clock and that of this machine differ",
		},
		"a rotation is requested": {
			func(_ *testing.T, s *snapshot) { s.state.Request = &rotation.Request{ID: "x", At: s.now} }, authn.Yes,
			"next: the rotation that was requested at 2026-11-20T12:00:00Z begins, when a server has read the request",
		},
		"nobody heeds the request": {
			func(_ *testing.T, s *snapshot) {
				s.state.Request = &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
			}, authn.No,
			"next: the rotation that was requested at 2026-11-20T11:00:00Z begins, when a server has read the request\n" +
				"problem: " + secret + ": no server has read the request for a new CA of 2026-11-20T11:00:00Z (60m ago)",
		},
		"a request is as old as the look of a server": {
			func(_ *testing.T, s *snapshot) {
				s.state.Request = &rotation.Request{ID: "x", At: s.now.Add(-time.Minute)}
			}, authn.Yes,
			"next: the rotation that was requested at 2026-11-20T11:59:00Z begins, when a server has read the request",
		},
		"nobody heeds a request while one is held up": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Publish)
				s.state.Since, s.state.Request = s.now.Add(-time.Minute), &rotation.Request{ID: "x", At: s.now.Add(-61 * time.Second)}
			}, authn.No,
			"next: the hold begins, when every registration trusts the new CA\nwaits for " + mutating + "\nwaits for " + validating + "\n" +
				"problem: " + secret + ": no server has read the request for a new CA of 2026-11-20T11:58:59Z (61s ago)\n" +
				"note: " + mutating + ": does not trust the pending CA " + b + " yet\nnote: " + validating + ": does not trust the pending CA " + b + " yet",
		},
		"a request waits until the rotation before is over": {
			func(t *testing.T, s *snapshot) {
				s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
				s.state.Since, s.state.Request = s.now.Add(-time.Hour), &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
			}, authn.Yes,
			"next: the old CA is forgotten, when every replica serves a certificate of the new one\n" +
				"waits for gatehouse-1 (last seen 5s ago), whose certificate ends at 2026-11-26T12:00:00Z (in 6d)",
		},
		"published a moment ago": {
			func(t *testing.T, s *snapshot) { s.inPhase(t, rotation.Publish) }, authn.Yes,
			"next: the hold begins, when every registration trusts the new CA\nwaits for " + mutating + "\nwaits for " + validating + "\n" +
				"note: " + mutating + ": does not trust the pending CA " + b + " yet\nnote: " + validating + ": does not trust the pending CA " + b + " yet",
		},
		"one registration is not told": {
			func(t *testing.T, s *snapshot) {
				ca := s.inPhase(t, rotation.Publish)
				s.state.Since = s.now.Add(-time.Hour)
				s.entries[0].bundle = append(s.entries[0].bundle, trusting(ca)...)
			}, authn.No,
			"next: the hold begins, when every registration trusts the new CA\nwaits for " + validating + "\n" +
				"problem: " + validating + ": does not trust the pending CA " + b + ", which is published since 2026-11-20T11:00:00Z (60m ago)",
		},
		"published, and stuck": {
			func(t *testing.T, s *snapshot) {
				ca := s.inPhase(t, rotation.Publish)
				s.state.Since = s.now.Add(-time.Hour)
				for i := range s.entries {
					s.entries[i].bundle = append(s.entries[i].bundle, trusting(ca)...)
				}
			}, authn.No,
			"next: the hold begins, when every registration trusts the new CA\n" +
				"problem: " + secret + ": the hold begins: there is nothing to wait for since 2026-11-20T11:00:00Z (60m ago), and no server does it",
		},
		"hold": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Hold)
				s.state.Since = s.now.Add(-4 * time.Minute)
			}, authn.Yes,
			"next: the new CA signs at 2026-11-20T12:06:00Z (in 6m), when the hold of 10m ends",
		},
		"hold that a replica counts anew": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Hold)
				s.state.Since = s.now.Add(-19 * time.Minute)
			}, authn.Yes,
			"next: the new CA signs, when one server has run for 10m without a restart",
		},
		"hold in an emergency, and stuck": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Hold)
				s.state.Cause, s.state.Since = rotation.Emergency, s.now.Add(-time.Hour)
			}, authn.No,
			"next: the new CA signs, when one server has run for 10s without a restart\n" +
				"problem: " + secret + ": the new CA signs: there is nothing to wait for since 2026-11-20T11:10:10Z (49m ago), and no server does it",
		},
		"the pending CA is overwritten in the hold": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Hold)
				forget(s, 1, 1)
			}, authn.No,
			"next: the new CA signs, when every registration trusts it again, and then for as long as the hold\nwaits for " + validating + "\n" +
				"problem: " + validating + ": does not trust the pending CA " + b + " any more",
		},
		"a replica is waited for": {
			func(t *testing.T, s *snapshot) {
				s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
				away(s, 1)
			}, authn.Yes,
			"next: the old CA is forgotten, when every replica serves a certificate of the new one\n" +
				"waits for gatehouse-1 (last seen 3m ago), whose certificate ends at 2026-11-26T12:00:00Z (in 6d)\n" +
				"note: replica gatehouse-1: is away since 2026-11-20T11:57:00Z (3m ago): it is taken to serve what it did until that ends at 2026-11-26T12:00:00Z (in 6d)",
		},
		"a replica is waited for in an emergency": {
			func(t *testing.T, s *snapshot) {
				s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
				s.state.Cause = rotation.Emergency
			}, authn.Yes,
			"next: the old CA is forgotten at 2026-11-20T12:00:50Z (in 50s), when every replica serves a certificate of the new one, or at that time without waiting\n" +
				"waits for gatehouse-1 (last seen 5s ago), whose certificate ends at 2026-11-26T12:00:00Z (in 6d)",
		},
		"a replica is waited for in an emergency, by a server that began anew": {
			func(t *testing.T, s *snapshot) {
				s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
				s.state.Cause, s.state.Since = rotation.Emergency, s.now.Add(-2*time.Minute)
			}, authn.Yes,
			"next: the old CA is forgotten, when every replica serves a certificate of the new one, or without waiting when one server has run for 60s without a restart\n" +
				"waits for gatehouse-1 (last seen 5s ago), whose certificate ends at 2026-11-26T12:00:00Z (in 6d)",
		},
		"a replica that is away was not waited for": {
			func(t *testing.T, s *snapshot) {
				s.replicas[1].Issuer = testCA(t, 9, s.now).ID()
				away(s, 1)
			}, authn.Yes,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"note: replica gatehouse-1: is away since 2026-11-20T11:57:00Z (3m ago): it is taken to serve what it did until that ends at 2026-11-26T12:00:00Z (in 6d)\n" +
				"note: " + mutating + ": does not trust the CA of what gatehouse-1 may serve, of which nothing is heard: calls to it fail, if it runs\n" +
				"note: " + validating + ": does not trust the CA of what gatehouse-1 may serve, of which nothing is heard: calls to it fail, if it runs",
		},
		"the CA that was given up in an emergency is trusted still": {
			func(t *testing.T, s *snapshot) {
				s.state.Cause = rotation.Emergency
				s.entries[1].bundle = append(s.entries[1].bundle, trusting(testCA(t, 9, s.now))...)
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: " + validating + ": trusts besides " + shortID(testCA(t, 9, certsNow()).ID()) + ", which is not in " + secret + ", and the last rotation was an emergency",
		},
		"another CA is trusted besides": {
			func(t *testing.T, s *snapshot) {
				s.entries[1].bundle = append(s.entries[1].bundle, trusting(testCA(t, 9, s.now))...)
			}, authn.Yes,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"note: " + validating + ": trusts besides " + shortID(testCA(t, 9, certsNow()).ID()) + ", which is not in " + secret,
		},
		"the registrations are of something else": {
			func(t *testing.T, s *snapshot) {
				for i := range s.entries {
					s.entries[i].bundle = trusting(testCA(t, 9, s.now))
				}
				s.entries[0].remark = "half of it"
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: " + secret + ": no webhook trusts a CA of it, so that it may not belong to these registrations: " +
				mutating + ", trusts NINE; " + validating + ", trusts NINE: calls to gatehouse-0, gatehouse-1 fail\n" +
				"note: " + mutating + ": caBundle: half of it",
		},
		"the old CA is taken away too early": {
			func(t *testing.T, s *snapshot) {
				s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
				forget(s, 0, 0)
			}, authn.No,
			"next: the old CA is forgotten, when every replica serves a certificate of the new one\n" +
				"waits for gatehouse-1 (last seen 5s ago), whose certificate ends at 2026-11-26T12:00:00Z (in 6d)\n" +
				"problem: " + mutating + ": does not trust the CA of what gatehouse-1 may serve: calls to it fail",
		},
		"nobody says what it serves": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Activate)
				s.replicas = nil
			}, authn.No,
			"next: the old CA is forgotten at 2026-11-27T11:59:50Z (in 6d23h), when the certificates of the old one have ended, because no replica says what it serves\n" +
				"problem: " + secret + ": no server runs that takes care of it: no replica says what it serves, and a rotation waits",
		},
		"nothing is heard of any replica": {
			func(_ *testing.T, s *snapshot) { away(s, 0); away(s, 1) }, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: " + secret + ": no server runs that takes care of it: nothing was heard of any replica for 60s\n" +
				"note: replica gatehouse-0: is away since 2026-11-20T11:57:00Z (3m ago): it is taken to serve what it did until that ends at 2026-11-26T12:00:00Z (in 6d)\n" +
				"note: replica gatehouse-1: is away since 2026-11-20T11:57:00Z (3m ago): it is taken to serve what it did until that ends at 2026-11-26T12:00:00Z (in 6d)",
		},
		"a registration trusts nothing of ours": {
			func(t *testing.T, s *snapshot) {
				s.entries[1].bundle = trusting(testCA(t, 9, s.now))
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: " + validating + ": does not trust the current CA " + a + ": calls to gatehouse-0, gatehouse-1 fail\n" +
				"note: " + validating + ": trusts besides " + shortID(testCA(t, 9, certsNow()).ID()) + ", which is not in " + secret,
		},
		"a registration cannot be read, and another is damaged": {
			func(_ *testing.T, s *snapshot) {
				s.entries[0] = trustEntry{object: "MutatingWebhookConfiguration/gatehouse", unknown: true, problem: "may not be read"}
				s.entries[1].bundle, s.entries[1].problem = nil, "caBundle is not PEM"
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: " + validating + ": caBundle is not PEM\nunknown: MutatingWebhookConfiguration/gatehouse: may not be read",
		},
		"replicas cannot be read": {
			func(_ *testing.T, s *snapshot) { s.replicas, s.replicasErr = nil, errors.New("leases: forbidden") }, authn.Unknown,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"unknown: replicas: what they serve cannot be read: leases: forbidden",
		},
		"what replicas serve": {
			func(t *testing.T, s *snapshot) {
				more := s.replicas[0]
				more.Replica, more.Issuer = "gatehouse-2", testCA(t, 9, s.now).ID()
				s.replicas = append(s.replicas, more)
				more.Replica, more.Issuer, more.NotAfter, more.Seen = "gatehouse-3", s.state.Current.ID(), s.now.Add(-time.Hour), s.now.Add(-3*time.Hour)
				s.replicas = append(s.replicas, more)
				more.Replica, more.NotAfter, more.Seen = "gatehouse-4", s.now.Add(23*time.Hour), s.now
				s.replicas = append(s.replicas, more)
				s.replicas[0].Issuer, s.replicas[0].NotAfter = "", time.Time{}
				s.replicas[1].NotAfter = s.now.Add(-time.Second)
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: replica gatehouse-0: serves no certificate\n" +
				"problem: replica gatehouse-1: serves a certificate that has ended at 2026-11-20T11:59:59Z (1s ago)\n" +
				"problem: replica gatehouse-2: serves a certificate of the CA " + shortID(testCA(t, 9, certsNow()).ID()) + ", which is not in " + secret + "\n" +
				"problem: " + mutating + ": does not trust the CA of what gatehouse-2 may serve: calls to it fail\n" +
				"problem: " + validating + ": does not trust the CA of what gatehouse-2 may serve: calls to it fail\n" +
				"note: replica gatehouse-3: is away since 2026-11-20T09:00:00Z (3h ago), and nothing that it serves can be valid\n" +
				"note: replica gatehouse-4: its certificate ends at 2026-11-21T11:00:00Z (in 23h), and is usually renewed days before",
		},
		"a damaged Secret": {
			func(_ *testing.T, s *snapshot) {
				s.state = &rotation.State{Phase: rotation.Stable, Current: s.state.Current}
				s.stateErr = rotation.Damage{"state.json: cannot be read as JSON", "pending.crt: is missing"}
			}, authn.No,
			"problem: " + secret + ": state.json: cannot be read as JSON\nproblem: " + secret + ": pending.crt: is missing",
		},
		"no Secret": {
			func(_ *testing.T, s *snapshot) { s.state, s.stateErr, s.replicas = nil, rotation.ErrEmpty, nil }, authn.No,
			"problem: " + secret + ": there is no CA in it",
		},
		"a Secret that cannot be read": {
			func(_ *testing.T, s *snapshot) {
				s.state, s.stateErr, s.replicas, s.replicasErr = nil, errors.New("forbidden"), nil, errors.New("forbidden")
			}, authn.Unknown,
			"unknown: " + secret + ": forbidden\nunknown: replicas: what they serve cannot be read: forbidden",
		},
		"a directory without a server": {
			func(_ *testing.T, s *snapshot) {
				s.inDir()
				s.replicas = nil
			}, authn.Yes,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"note: directory certs: no server runs that takes care of it: no replica says what it serves",
		},
		"a directory whose clients nobody can ask": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Hold)
				s.inDir()
				s.state.Cause = rotation.Due
			}, authn.Yes,
			"next: the new CA signs at 2027-10-14T12:00:00Z (in 328d), when the old one cannot sign for a whole week any more, so that there is time to tell clients\n" +
				"note: file certs/ca.crt: holds the new CA " + b + " beside the old one; who trusts it cannot be told without --registration",
		},
		"a directory whose files are of another CA": {
			func(t *testing.T, s *snapshot) {
				s.inDir()
				s.bundle = rotation.Bundle([]*x509.Certificate{testCA(t, 9, s.now).Cert})
				s.clientCert = s.bundle
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: directory certs: ca.crt: does not hold the current CA " + a + "\n" +
				"problem: file certs/apiserver-client.crt: is of none of the CAs in directory certs: token reviews are answered to nobody who shows it",
		},
		"a directory whose client certificate has ended": {
			func(t *testing.T, s *snapshot) {
				s.inDir()
				s.clientCert = rotation.Bundle([]*x509.Certificate{testCA(t, 3, s.now.Add(-400*24*time.Hour)).Cert})
			}, authn.No,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"problem: file certs/apiserver-client.crt: has ended at 2026-10-16T12:00:00Z (35d ago): token reviews are answered to nobody who shows it",
		},
		"a directory without a client certificate": {
			func(_ *testing.T, s *snapshot) {
				s.inDir()
				s.clientCert, s.clientErr = nil, fs.ErrNotExist
			}, authn.Yes,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"note: file certs/apiserver-client.crt: is not there",
		},
		"a replica that cannot say what it serves": {
			func(_ *testing.T, s *snapshot) { s.replicas[0].Issuer = store.UnreadableIssuer }, authn.Unknown,
			"next: renewal is due at 2027-06-21T20:00:00Z (in 213d), when the current CA has used up two thirds of its life\n" +
				"unknown: replica gatehouse-0: serves what is of no CA that is known here, or does not say what in a way that can be read",
		},
		"somebody else's Secret": {
			func(_ *testing.T, s *snapshot) {
				s.state, s.replicas = nil, nil
				s.stateErr = &store.ForeignError{Place: s.place, Problem: "it is no CA", Remedy: "leave it"}
			}, authn.No,
			"problem: " + secret + ": it is no CA, so it is somebody else's and is left alone",
		},
		"somebody else's CA": {
			func(_ *testing.T, s *snapshot) { s.state.Current = &rotation.Authority{Cert: s.state.Current.Cert} }, authn.Yes,
			"next: a rotation begins, when the issuer has another CA",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testSnapshot(t)
			test.change(t, s)
			want := strings.ReplaceAll(test.text, "NINE", shortID(testCA(t, 9, certsNow()).ID()))
			if s.state != nil {
				want = strings.ReplaceAll(want, "CURRENT", shortID(s.state.Current.ID()))
			}
			v := s.view()
			if got := short(v); got != want {
				t.Errorf("is\n%s\n\nwant\n%s", got, want)
			}
			if v.Outcome != test.want {
				t.Errorf("the outcome is %s, want %s", v.Outcome, test.want)
			}
			for _, f := range v.Findings {
				if f.Level == levelProblem && f.Remedy == "" {
					t.Errorf("there is no remedy for %s: %s", f.Object, f.Message)
				}
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var table bytes.Buffer
			if err := v.print(&table); err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"PRIVATE", `"Key"`} {
				if bytes.Contains(text, []byte(secret)) || strings.Contains(table.String(), secret) {
					t.Errorf("a key may be shown: %s\n%s", text, table.String())
				}
			}
		})
	}
}

// TestCertsRemedies are to be done as they are printed.
func TestCertsRemedies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, s *snapshot)
		want   string
	}{
		"a replica is away": {
			func(_ *testing.T, s *snapshot) { s.replicas[1].Seen = s.now.Add(-3 * time.Minute) },
			"if it certainly does not run any more: kubectl -n gatehouse-system delete lease gatehouse-ca-gatehouse-1-5c0e2a7d91b3f846-9d41c07be2a85f63; if it may, see",
		},
		"replicas are away of which nothing else is known": {
			func(_ *testing.T, s *snapshot) {
				s.replicas[1].Seen = s.now.Add(-3 * time.Minute)
				s.replicas[1].Location = ""
			},
			"see whether it can reach the place of the state, if it runs",
		},
		"nobody reads a request": {
			func(_ *testing.T, s *snapshot) {
				s.state.Request = &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
			},
			"the servers' logs say why, and Events of the reason CAStoreFailed",
		},
		"the registrations are of something else": {
			func(t *testing.T, s *snapshot) {
				for i := range s.entries {
					s.entries[i].bundle = trusting(testCA(t, 9, s.now))
				}
			},
			"check --secret and --registration; if they are right: a server writes it",
		},
		"an old CA is trusted after an emergency": {
			func(t *testing.T, s *snapshot) {
				s.state.Cause = rotation.Emergency
				s.entries[1].bundle = append(s.entries[1].bundle, trusting(testCA(t, 9, s.now))...)
			},
			"whoever has the key of that can stand in for the servers: take it out at once",
		},
		"clients are to be told by hand": {
			func(t *testing.T, s *snapshot) {
				s.inPhase(t, rotation.Hold)
				s.inDir()
			},
			"give it to the API server before the new CA signs at 2026-11-20T12:09:50Z (in 9m50s), and copy apiserver-client.crt and apiserver-client.key anew where they are copies",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testSnapshot(t)
			test.change(t, s)
			var remedies []string
			for _, f := range s.diagnostics() {
				remedies = append(remedies, f.Remedy)
			}
			if !slices.ContainsFunc(remedies, func(r string) bool { return strings.HasPrefix(r, test.want) }) {
				t.Errorf("the remedies are\n%s\n\nwant\n%s", strings.Join(remedies, "\n"), test.want)
			}
		})
	}
}

// TestCertsGuide keeps the output in the guide equal to what is printed.
func TestCertsGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../../docs/certificates-operations.md")
	if err != nil {
		t.Fatal(err)
	}
	shows := func(t *testing.T, v *statusView) {
		t.Helper()
		var text bytes.Buffer
		if err := v.print(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(guide), "$ gatehouse certs status\n"+text.String()+"```\n") {
			t.Errorf("docs/certificates-operations.md does not show what is printed:\n%s", text.String())
		}
	}
	t.Run("symptoms", func(t *testing.T) {
		t.Parallel()
		server := &x509.Certificate{DNSNames: []string{"X"}}
		const unknownCA, internalError = tls.AlertError(48), tls.AlertError(80)
		for _, err := range []error{
			x509.UnknownAuthorityError{},
			x509.HostnameError{Certificate: server, Host: "Y"},
			x509.CertificateInvalidError{Cert: server, Reason: x509.Expired},
			fmt.Errorf("remote error: %w", unknownCA),
			fmt.Errorf("remote error: %w", internalError),
		} {
			if text := strings.TrimSuffix(strings.TrimPrefix(err.Error(), "x509: "), ": "); !strings.Contains(string(guide), "| `"+text+"` |") {
				t.Errorf("docs/certificates-operations.md does not say what to do about %q", text)
			}
		}
	})
	t.Run("rotation", func(t *testing.T) {
		t.Parallel()
		s := testSnapshot(t)
		s.replicas[0].Issuer, s.replicas[0].NotAfter = s.inPhase(t, rotation.Activate).ID(), s.now.Add(7*24*time.Hour)
		s.state.Since, s.replicas[1].Seen = s.now.Add(-4*time.Minute), s.now.Add(-3*time.Minute)
		shows(t, s.view())
	})
	t.Run("trouble", func(t *testing.T) {
		t.Parallel()
		s := testSnapshot(t)
		s.entries[1].bundle = trusting(testCA(t, 9, s.now))
		shows(t, s.view())
	})
}
