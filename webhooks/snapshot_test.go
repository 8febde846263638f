package webhooks_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestCompileReportsEverything breaks all three parts at once.
func TestCompileReportsEverything(t *testing.T) {
	t.Parallel()
	var (
		profile sidecar.Profile
		access  authn.Token
		gate    policy.AdmissionPolicy
	)
	profile.Source, profile.Name = "b.yaml", "empty"
	access.Source, access.Name = "c.yaml", "ci"
	access.Spec = v1alpha1.AccessTokenSpec{SHA256: "short"}
	gate.Source, gate.Name = "a.yaml", "inert"
	snapshot, err := webhooks.Compile(webhooks.Spec{
		Sidecar: sidecar.Spec{Profiles: []sidecar.Profile{profile}},
		Policy:  policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{gate}},
		Authn:   authn.Spec{Tokens: []authn.Token{access}, Now: time.Now},
	})
	list, ok := errors.AsType[diagnostic.List](err)
	if !ok || snapshot != nil {
		t.Fatalf("Compile = %v, %v", snapshot, err)
	}
	var sources []string
	for _, f := range list {
		sources = append(sources, f.Source)
	}
	if got := strings.Join(slices.Compact(sources), " "); got != "a.yaml b.yaml c.yaml" {
		t.Errorf("findings are about %s, want all three documents in order", got)
	}
}

// TestEndpoints checks the table: other programs mount what it names.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, e := range webhooks.Endpoints() {
		functions := 0
		for _, has := range []bool{e.Admission != nil, e.Token != nil, e.Access != nil} {
			if has {
				functions++
			}
		}
		if e.Name == "" || e.Path != "/"+e.Name || functions != 1 {
			t.Errorf("endpoint %+v", e)
		}
		paths = append(paths, e.Path)
	}
	if !slices.Equal(paths, []string{"/authenticate", "/authorize", "/mutate", "/validate"}) {
		t.Errorf("paths are %v", paths)
	}
}
