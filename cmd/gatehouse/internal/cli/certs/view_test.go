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
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
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
		return rotation.Report{Replica: name, Issuer: a.ID(), SHA256: "ab", NotAfter: now.Add(6 * 24 * time.Hour), Seen: now.Add(-5 * time.Second), Version: "v1.0.0", Lease: "gatehouse-ca-" + name + "-5c0e2a7d91b3f846"}
	}
	entry := func(object, webhook string) trustEntry {
		return trustEntry{object: object, webhook: webhook, bundle: trusting(a)}
	}
	return &snapshot{
		now: now, place: "Secret gatehouse-system/gatehouse-ca", hold: rotation.DefaultHold, registered: true,
		forget: "kubectl -n gatehouse-system delete lease ",
		state: &rotation.State{
			Lineage: "line", Created: a.Cert.NotBefore, Generation: 1, Phase: rotation.Stable, Since: now.Add(-30 * 24 * time.Hour), Current: a,
		},
		replicas: []rotation.Report{report("gatehouse-0"), report("gatehouse-1")},
		entries: []trustEntry{
			entry("MutatingWebhookConfiguration/gatehouse", "default.mutate.gatehouse.dev"),
			entry("ValidatingWebhookConfiguration/gatehouse", "fail.validate.gatehouse.dev"),
		},
	}
}

// inPhase puts the snapshot into a rotation, as it is right after the phase began.
func (s *snapshot) inPhase(t *testing.T, p rotation.Phase) *rotation.Authority {
	t.Helper()
	b := testCA(t, 2, s.now.Add(-time.Hour))
	s.state.Phase, s.state.Since, s.state.Cause, s.state.Pending = p, s.now.Add(-10*time.Second), rotation.Requested, b
	if p == rotation.Activate {
		s.state.Previous, s.state.Current, s.state.Pending = &rotation.Authority{Cert: s.state.Current.Cert}, b, nil
	}
	if p != rotation.Publish {
		for i := range s.entries {
			s.entries[i].bundle = append(s.entries[i].bundle, trusting(b)...)
		}
	}
	return b
}

// short returns the outcome, what comes next, and the diagnostics, each on a line.
func short(v *statusView) string {
	lines := []string{"outcome: " + string(v.Outcome)}
	if v.Next != nil {
		lines = append(lines, "next: "+v.Next.text(v.At))
		for _, one := range v.Next.WaitsFor {
			lines = append(lines, "waits for "+one)
		}
	}
	for _, f := range v.Findings {
		lines = append(lines, string(f.Level)+": "+f.Object+": "+f.Message)
		if f.Remedy != "" {
			lines = append(lines, "  remedy: "+f.Remedy)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestCertsView compares what comes next and the diagnostics with testdata/view.txtar.
// UPDATE_GOLDEN=1 writes it anew.
func TestCertsView(t *testing.T) {
	t.Parallel()
	unreachable := func(s *snapshot, i int) { s.replicas[i].Seen = s.now.Add(-3 * time.Minute) }
	cases := map[string]func(t *testing.T, s *snapshot){
		"all is well": func(*testing.T, *snapshot) {},
		"the CA has expired": func(t *testing.T, s *snapshot) {
			s.state.Current = testCA(t, 1, s.now.Add(-366*24*time.Hour))
			for i := range s.entries {
				s.entries[i].bundle, s.replicas[i].Issuer = trusting(s.state.Current), s.state.Current.ID()
			}
		},
		"the CA is not valid yet": func(_ *testing.T, s *snapshot) { s.now = s.now.Add(-32 * 24 * time.Hour) },
		"a rotation is requested": func(_ *testing.T, s *snapshot) { s.state.Request = &rotation.Request{ID: "x", At: s.now} },
		"no server reads the request": func(_ *testing.T, s *snapshot) {
			s.state.Request = &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
		},
		"a request waits until the rotation before is over": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			s.state.Since, s.state.Request = s.now.Add(-time.Hour), &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
		},
		"published just now": func(t *testing.T, s *snapshot) { s.inPhase(t, rotation.Publish) },
		"one registration lacks the pending CA": func(t *testing.T, s *snapshot) {
			ca := s.inPhase(t, rotation.Publish)
			s.state.Since = s.now.Add(-time.Hour)
			s.entries[0].bundle = append(s.entries[0].bundle, trusting(ca)...)
		},
		"hold": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.state.Since = s.now.Add(-4 * time.Minute)
		},
		"hold without registrations": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.registered, s.entries, s.replicas, s.single, s.state.Cause = false, nil, nil, true, rotation.Due
		},
		"a replica is waited for": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			unreachable(s, 1)
		},
		"the CA that was removed in an emergency is still trusted": func(t *testing.T, s *snapshot) {
			s.state.Cause = rotation.Emergency
			s.entries[1].bundle = append(s.entries[1].bundle, trusting(testCA(t, 9, s.now))...)
		},
		"the old CA is removed too early": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			s.entries[0].bundle = s.entries[0].bundle[1:]
		},
		"no replica has a heartbeat": func(_ *testing.T, s *snapshot) { unreachable(s, 0); unreachable(s, 1) },
		"a registration has another CA": func(t *testing.T, s *snapshot) {
			s.entries[1].bundle, s.entries[1].author = trusting(testCA(t, 9, s.now)), "helm"
		},
		"cainjector writes no bundle": func(_ *testing.T, s *snapshot) {
			s.entries[1].bundle, s.entries[1].remark, s.entries[1].injector = nil, "no caBundle", "cert-manager.io/inject-ca-from"
		},
		"a Certificate does not do what it says": func(_ *testing.T, s *snapshot) { s.entries[0].renewal = []string{"the Certificate a/b is not renewed"} },
		"a registration cannot be read, and another is missing": func(_ *testing.T, s *snapshot) {
			s.entries[0] = trustEntry{object: "MutatingWebhookConfiguration/gatehouse", unknown: true, problem: "may not be read"}
			s.entries[1] = trustEntry{object: "ValidatingWebhookConfiguration/gatehouse", problem: "does not exist"}
		},
		"what replicas serve": func(t *testing.T, s *snapshot) {
			for i, change := range []func(r *rotation.Report){
				func(r *rotation.Report) { r.Issuer, r.NotAfter = "", time.Time{} },
				func(r *rotation.Report) { r.NotAfter = s.now.Add(-time.Second) },
				func(r *rotation.Report) { r.Issuer = testCA(t, 9, s.now).ID() },
				func(r *rotation.Report) { r.NotAfter, r.Seen = s.now.Add(-time.Hour), s.now.Add(-3*time.Hour) },
				func(r *rotation.Report) { r.Issuer = store.UnreadableIssuer },
			} {
				r := s.replicas[0]
				if i > 0 {
					r.Replica, r.Issuer, r.NotAfter = fmt.Sprintf("gatehouse-%d", i), s.state.Current.ID(), s.now.Add(6*24*time.Hour)
				}
				change(&r)
				s.replicas = append(s.replicas[:i], r)
			}
		},
		"a damaged Secret": func(_ *testing.T, s *snapshot) {
			s.state, s.stateErr = nil, rotation.Damage{"state.json: cannot be read as JSON", "pending.crt: is missing"}
		},
		"no Secret": func(_ *testing.T, s *snapshot) { s.state, s.stateErr, s.replicas = nil, rotation.ErrEmpty, nil },
		"a Secret that cannot be read": func(_ *testing.T, s *snapshot) {
			s.state, s.stateErr, s.replicas, s.replicasErr = nil, errors.New("forbidden"), nil, errors.New("forbidden")
		},
		"a Secret of another owner": func(_ *testing.T, s *snapshot) {
			s.state, s.replicas = nil, nil
			s.stateErr = &store.ForeignError{Place: s.place, Problem: "it is no CA", Remedy: "leave it"}
		},
	}
	const file = "testdata/view.txtar"
	golden := map[string]string{}
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		golden[f.Name] = string(f.Data)
	}
	if len(golden) != len(cases) && os.Getenv("UPDATE_GOLDEN") == "" {
		t.Errorf("%s has %d cases, want %d (regenerate with UPDATE_GOLDEN=1)", file, len(golden), len(cases))
	}
	archive.Files = nil
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		s := testSnapshot(t)
		cases[name](t, s)
		v := s.view()
		got := short(v)
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(got)})
		if got != golden[name] && os.Getenv("UPDATE_GOLDEN") == "" {
			t.Errorf("%s (regenerate with UPDATE_GOLDEN=1 and read the difference): is\n%s\nwant\n%s", name, got, golden[name])
		}
		for _, f := range v.Findings {
			if f.Level == levelProblem && f.Remedy == "" {
				t.Errorf("%s: there is no remedy for %s: %s", name, f.Object, f.Message)
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var table bytes.Buffer
		v.print(&table)
		for _, secret := range []string{"PRIVATE", `"Key"`} {
			if bytes.Contains(text, []byte(secret)) || strings.Contains(table.String(), secret) {
				t.Errorf("%s: a key may be shown: %s\n%s", name, text, table.String())
			}
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertsGuide keeps the output in the guide equal to what is printed.
func TestCertsGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../../docs/certificates.md")
	if err != nil {
		t.Fatal(err)
	}
	shows := func(t *testing.T, v *statusView) {
		t.Helper()
		var text bytes.Buffer
		v.print(&text)
		if !strings.Contains(string(guide), "$ gatehouse certs status\n"+text.String()+"```\n") {
			t.Errorf("docs/certificates.md does not show what is printed:\n%s", text.String())
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
				t.Errorf("docs/certificates.md does not say what to do about %q", text)
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
}
