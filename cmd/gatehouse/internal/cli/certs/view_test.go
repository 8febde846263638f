package certs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newCA(t *testing.T, created time.Time) *certs.Authority {
	t.Helper()
	ca, err := certs.NewAuthority(created, certs.DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// trusting is a configuration whose webhook trusts these CAs.
func trusting(kind registration.Kind, list ...*certs.Authority) registration.Status {
	w := registration.WebhookStatus{Name: "w.gatehouse.dev", Managers: []registration.Manager{{Name: registration.FieldManager}}}
	for _, a := range list {
		w.Bundle = append(w.Bundle, registration.Certificate{Subject: a.Cert.Subject.String(), ID: a.ID(), NotAfter: a.Cert.NotAfter})
	}
	return registration.Status{Kind: kind, Name: "gatehouse", Found: true, Webhooks: []registration.WebhookStatus{w}}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	active, next, old := newCA(t, noon.Add(-time.Hour)), newCA(t, noon), newCA(t, noon.Add(-400*24*time.Hour))
	const place = "Secret gatehouse-system/gatehouse-ca"
	stable := &certs.State{Generation: 1, Hold: certs.DefaultHold, Since: noon.Add(-time.Hour), Active: active}
	published := &certs.State{Generation: 2, Hold: certs.DefaultHold, Since: noon.Add(-4 * time.Minute), Active: active, Next: next}
	requested := &certs.State{Generation: 3, Hold: certs.DefaultHold, Since: noon.Add(-4 * time.Minute), Requested: true, Active: next, Retired: active}
	due := &certs.State{Generation: 3, Hold: certs.DefaultHold, Since: noon.Add(-4 * time.Minute), Active: next, Retired: active}
	for name, c := range map[string]struct {
		snapshot
		want authn.Outcome
		says []string
	}{
		"all is well": {snapshot{state: stable, configurations: []registration.Status{trusting(registration.Validating, active)}}, authn.Yes, []string{
			"phase: Stable since 2026-11-20T11:00:00Z (60m ago)", "next: a new CA is published at 2027-07-21T19:00:00Z (in 243d), when the active one has used up two thirds of its life",
			"active", "ValidatingWebhookConfiguration/gatehouse  w.gatehouse.dev  active  yes",
		}},
		"requested": {snapshot{state: stable, request: noon.Format(time.RFC3339Nano)}, authn.Yes, []string{"next: the rotation that was requested begins, when the elected replica has read the request"}},
		"requested in vain": {snapshot{state: stable, request: noon.Add(-2 * time.Minute).Format(time.RFC3339Nano)}, authn.No, []string{
			"problem: " + place + ": no replica has begun the rotation that was requested at 2026-11-20T11:58:00Z",
		}},
		"published": {snapshot{state: published, configurations: []registration.Status{trusting(registration.Validating, active, next)}}, authn.Yes, []string{
			"next: the new CA signs at 2026-11-20T12:06:00Z (in 6m), when every registration has trusted it for 10m", "active, next",
		}},
		"one lacks the next": {snapshot{state: published, configurations: []registration.Status{trusting(registration.Mutating, active)}}, authn.No, []string{
			"waits for MutatingWebhookConfiguration/gatehouse, webhook w.gatehouse.dev", "does not trust the next CA " + next.ID()[:12],
		}},
		"published without registrations": {snapshot{state: published}, authn.Yes, []string{"when the old CA cannot sign for a whole week any more"}},
		"activated, requested":            {snapshot{state: requested, configurations: []registration.Status{trusting(registration.Validating, active, next)}}, authn.Yes, []string{"next: the old CA is removed at 2026-11-20T12:06:00Z", "every replica has had 10m"}},
		"activated, due":                  {snapshot{state: due, configurations: []registration.Status{trusting(registration.Validating, active, next)}}, authn.Yes, []string{"next: the old CA is removed at 2026-11-27T12:06:00Z"}},
		"expired":                         {snapshot{state: &certs.State{Generation: 1, Since: noon.Add(-time.Hour), Active: old}}, authn.No, []string{"the CA has expired at 2026-10-16T12:00:00Z"}},
		"another CA is trusted too": {snapshot{state: stable, configurations: []registration.Status{trusting(registration.Validating, active, old)}}, authn.Yes, []string{
			"note: ValidatingWebhookConfiguration/gatehouse, webhook w.gatehouse.dev: trusts " + old.ID()[:12] + ", which is not in " + place,
		}},
		"a configuration is missing":     {snapshot{state: stable, configurations: []registration.Status{{Kind: registration.Validating, Name: "gatehouse"}}}, authn.No, []string{"does not exist: the API server does not call for it"}},
		"a configuration cannot be read": {snapshot{state: stable, configurations: []registration.Status{{Kind: registration.Validating, Name: "gatehouse", Err: errors.New("no right")}}}, authn.Unknown, []string{"cannot decide: ValidatingWebhookConfiguration/gatehouse: no right"}},
		"the Secret cannot be read":      {snapshot{stateErr: fmt.Errorf("%s: cannot get it: no (hint: grant it)", place)}, authn.Unknown, []string{"cannot decide: " + place + ": cannot get it: no", "remedy: grant it"}},
		"no CA":                          {snapshot{stateErr: certs.ErrEmpty}, authn.No, []string{"problem: " + place + ": there is no CA in it"}},
		"no CA, and others wrote": {snapshot{
			stateErr: certs.ErrEmpty, configurations: []registration.Status{{Kind: registration.Validating, Name: "gatehouse", Found: true, Webhooks: []registration.WebhookStatus{{
				Name: "w.gatehouse.dev", Bundle: []registration.Certificate{{ID: old.ID()}}, Managers: []registration.Manager{{Name: "cainjector"}},
			}}}},
		}, authn.Yes, []string{"note: " + place + ": there is no CA in it: others write what webhooks trust", "remedy: gatehouse probe"}},
		"cert-manager": {snapshot{state: stable, issued: []issuedView{
			{Object: "Certificate a/b", Problem: "is not ready: no issuer"}, {Object: "Issuer a/b"}, {Object: "ClusterIssuer c", Problem: "cannot be read: no", Unknown: true},
		}}, authn.No, []string{"problem: Certificate a/b: is not ready: no issuer", "cannot decide: ClusterIssuer c: cannot be read: no", "Issuer a/b       yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.snapshot
			s.now, s.place = noon, place
			v := s.view()
			var out bytes.Buffer
			v.print(&out)
			if v.Outcome != c.want {
				t.Errorf("the outcome is %s, want %s", v.Outcome, c.want)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, &out)
				}
			}
			if strings.Contains(out.String(), "PRIVATE") {
				t.Error("a key is shown")
			}
		})
	}
}

// A rotation is done when the request is, and every registration has the new CA alone.
func TestProgress(t *testing.T) {
	t.Parallel()
	old, young := newCA(t, noon.Add(-time.Hour)), newCA(t, noon)
	from := &certs.State{Generation: 1, Active: old}
	for name, c := range map[string]struct {
		snapshot
		text string
		done bool
	}{
		"not begun":             {snapshot{state: from, request: "1"}, "Stable: the rotation that was requested begins", false},
		"published":             {snapshot{state: &certs.State{Done: "1", Active: old, Next: young}, request: "1"}, "Published: the new CA signs", false},
		"done":                  {snapshot{state: &certs.State{Done: "1", Active: young}, configurations: []registration.Status{trusting(registration.Validating, young)}}, "", true},
		"the old one is still ": {snapshot{state: &certs.State{Done: "1", Active: young}, configurations: []registration.Status{trusting(registration.Validating, young, old)}}, "registrations are not up to date: ValidatingWebhookConfiguration/gatehouse", false},
		"unknown":               {snapshot{stateErr: errors.New("away")}, "cannot decide: ", false},
	} {
		text, done := c.progress(from, "1")
		if done != c.done || !strings.Contains(text, c.text) {
			t.Errorf("%s: got %q, %v, want %q", name, text, done, c.text)
		}
	}
}
