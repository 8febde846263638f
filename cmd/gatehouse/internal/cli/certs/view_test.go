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
	forget := func(s *snapshot, i, ca int) { s.entries[i].bundle = slices.Delete(s.entries[i].bundle, ca, ca+1) }
	cases := map[string]func(t *testing.T, s *snapshot){
		"all is well": func(*testing.T, *snapshot) {},
		"renewal is overdue": func(t *testing.T, s *snapshot) {
			s.state.Current = testCA(t, 1, s.now.Add(-300*24*time.Hour))
			s.bundle = rotation.Bundle(s.state.Trusted(s.now))
			for i := range s.entries {
				s.entries[i].bundle, s.replicas[i].Issuer = trusting(s.state.Current), s.state.Current.ID()
			}
		},
		"the CA has ended": func(t *testing.T, s *snapshot) {
			s.state.Current = testCA(t, 1, s.now.Add(-366*24*time.Hour))
			for i := range s.entries {
				s.entries[i].bundle, s.replicas[i].Issuer = trusting(s.state.Current), s.state.Current.ID()
			}
			s.state.Since = s.now.Add(-time.Minute)
		},
		"the CA is not valid yet": func(_ *testing.T, s *snapshot) { s.now = s.now.Add(-32 * 24 * time.Hour) },
		"a rotation is requested": func(_ *testing.T, s *snapshot) { s.state.Request = &rotation.Request{ID: "x", At: s.now} },
		"nobody heeds the request": func(_ *testing.T, s *snapshot) {
			s.state.Request = &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
		},
		"a request is as old as the look of a server": func(_ *testing.T, s *snapshot) {
			s.state.Request = &rotation.Request{ID: "x", At: s.now.Add(-time.Minute)}
		},
		"nobody heeds a request while one is held up": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Publish)
			s.state.Since, s.state.Request = s.now.Add(-time.Minute), &rotation.Request{ID: "x", At: s.now.Add(-61 * time.Second)}
		},
		"a request waits until the rotation before is over": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			s.state.Since, s.state.Request = s.now.Add(-time.Hour), &rotation.Request{ID: "x", At: s.now.Add(-time.Hour)}
		},
		"published a moment ago": func(t *testing.T, s *snapshot) { s.inPhase(t, rotation.Publish) },
		"one registration is not told": func(t *testing.T, s *snapshot) {
			ca := s.inPhase(t, rotation.Publish)
			s.state.Since = s.now.Add(-time.Hour)
			s.entries[0].bundle = append(s.entries[0].bundle, trusting(ca)...)
		},
		"published, and stuck": func(t *testing.T, s *snapshot) {
			ca := s.inPhase(t, rotation.Publish)
			s.state.Since = s.now.Add(-time.Hour)
			for i := range s.entries {
				s.entries[i].bundle = append(s.entries[i].bundle, trusting(ca)...)
			}
		},
		"hold": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.state.Since = s.now.Add(-4 * time.Minute)
		},
		"hold that a replica counts anew": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.state.Since = s.now.Add(-19 * time.Minute)
		},
		"hold in an emergency, and stuck": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.state.Cause, s.state.Since = rotation.Emergency, s.now.Add(-time.Hour)
		},
		"the pending CA is overwritten in the hold": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			forget(s, 1, 1)
		},
		"a replica is waited for": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			unreachable(s, 1)
		},
		"a replica is waited for in an emergency": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			s.state.Cause = rotation.Emergency
		},
		"a replica is waited for in an emergency, by a server that began anew": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			s.state.Cause, s.state.Since = rotation.Emergency, s.now.Add(-2*time.Minute)
		},
		"a replica that is away was not waited for": func(t *testing.T, s *snapshot) {
			s.replicas[1].Issuer = testCA(t, 9, s.now).ID()
			unreachable(s, 1)
		},
		"the CA that was given up in an emergency is trusted still": func(t *testing.T, s *snapshot) {
			s.state.Cause = rotation.Emergency
			s.entries[1].bundle = append(s.entries[1].bundle, trusting(testCA(t, 9, s.now))...)
		},
		"another CA is trusted besides": func(t *testing.T, s *snapshot) {
			s.entries[1].bundle = append(s.entries[1].bundle, trusting(testCA(t, 9, s.now))...)
		},
		"the registrations are of something else": func(t *testing.T, s *snapshot) {
			for i := range s.entries {
				s.entries[i].bundle = trusting(testCA(t, 9, s.now))
			}
			s.entries[0].remark = "half of it"
		},
		"the old CA is taken away too early": func(t *testing.T, s *snapshot) {
			s.replicas[0].Issuer = s.inPhase(t, rotation.Activate).ID()
			forget(s, 0, 0)
		},
		"nobody says what it serves": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Activate)
			s.replicas = nil
		},
		"nothing is heard of any replica": func(_ *testing.T, s *snapshot) { unreachable(s, 0); unreachable(s, 1) },
		"a registration trusts nothing of ours": func(t *testing.T, s *snapshot) {
			s.entries[1].bundle = trusting(testCA(t, 9, s.now))
		},
		"a registration cannot be read, and another is damaged": func(_ *testing.T, s *snapshot) {
			s.entries[0] = trustEntry{object: "MutatingWebhookConfiguration/gatehouse", unknown: true, problem: "may not be read"}
			s.entries[1].bundle, s.entries[1].problem = nil, "caBundle is not PEM"
		},
		"replicas cannot be read": func(_ *testing.T, s *snapshot) { s.replicas, s.replicasErr = nil, errors.New("leases: forbidden") },
		"what replicas serve": func(t *testing.T, s *snapshot) {
			more := s.replicas[0]
			more.Replica, more.Issuer = "gatehouse-2", testCA(t, 9, s.now).ID()
			s.replicas = append(s.replicas, more)
			more.Replica, more.Issuer, more.NotAfter, more.Seen = "gatehouse-3", s.state.Current.ID(), s.now.Add(-time.Hour), s.now.Add(-3*time.Hour)
			s.replicas = append(s.replicas, more)
			more.Replica, more.NotAfter, more.Seen = "gatehouse-4", s.now.Add(23*time.Hour), s.now
			s.replicas = append(s.replicas, more)
			s.replicas[0].Issuer, s.replicas[0].NotAfter = "", time.Time{}
			s.replicas[1].NotAfter = s.now.Add(-time.Second)
		},
		"a damaged Secret": func(_ *testing.T, s *snapshot) {
			s.state = &rotation.State{Phase: rotation.Stable, Current: s.state.Current}
			s.stateErr = rotation.Damage{"state.json: cannot be read as JSON", "pending.crt: is missing"}
		},
		"no Secret": func(_ *testing.T, s *snapshot) { s.state, s.stateErr, s.replicas = nil, rotation.ErrEmpty, nil },
		"a Secret that cannot be read": func(_ *testing.T, s *snapshot) {
			s.state, s.stateErr, s.replicas, s.replicasErr = nil, errors.New("forbidden"), nil, errors.New("forbidden")
		},
		"a directory without a server": func(_ *testing.T, s *snapshot) {
			s.inDir()
			s.replicas = nil
		},
		"a directory whose clients nobody can ask": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.inDir()
			s.state.Cause = rotation.Due
		},
		"a directory whose files are of another CA": func(t *testing.T, s *snapshot) {
			s.inDir()
			s.bundle = rotation.Bundle([]*x509.Certificate{testCA(t, 9, s.now).Cert})
			s.clientCert = s.bundle
		},
		"a directory whose client certificate has ended": func(t *testing.T, s *snapshot) {
			s.inDir()
			s.clientCert = rotation.Bundle([]*x509.Certificate{testCA(t, 3, s.now.Add(-400*24*time.Hour)).Cert})
		},
		"a directory without a client certificate": func(_ *testing.T, s *snapshot) {
			s.inDir()
			s.clientCert, s.clientErr = nil, fs.ErrNotExist
		},
		"a replica that cannot say what it serves": func(_ *testing.T, s *snapshot) { s.replicas[0].Issuer = store.UnreadableIssuer },
		"somebody else's Secret": func(_ *testing.T, s *snapshot) {
			s.state, s.replicas = nil, nil
			s.stateErr = &store.ForeignError{Place: s.place, Problem: "it is no CA", Remedy: "leave it"}
		},
		"somebody else's CA": func(_ *testing.T, s *snapshot) { s.state.Current = &rotation.Authority{Cert: s.state.Current.Cert} },
		"an unreachable replica whose report cannot be removed": func(_ *testing.T, s *snapshot) {
			unreachable(s, 1)
			s.replicas[1].Location = ""
		},
		"a directory whose clients are to be told by hand": func(t *testing.T, s *snapshot) {
			s.inPhase(t, rotation.Hold)
			s.inDir()
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
		if err := v.print(&table); err != nil {
			t.Fatal(err)
		}
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
