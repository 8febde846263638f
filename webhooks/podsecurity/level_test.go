package podsecurity_test

import (
	"testing"

	podsecurityapi "k8s.io/pod-security-admission/api"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// TestOfNamespace holds the answer against the function that the API server
// asks, over all combinations of labels.
func TestOfNamespace(t *testing.T) {
	t.Parallel()
	privileged := podsecurityapi.LevelVersion{Level: podsecurityapi.LevelPrivileged, Version: podsecurityapi.LatestVersion()}
	defaults := podsecurityapi.Policy{Enforce: privileged, Audit: privileged, Warn: privileged}
	const absent = "-"
	enforcing := 0
	for _, name := range []string{absent, "", "privileged", "baseline", "restricted", "Restricted", "restricted ", "low"} {
		for _, version := range []string{absent, "", "latest", "v1.0", "v1.30", "v1.999", "1.30", "v1.030", "v2.0", "v1.99999999999999999999"} {
			labels := map[string]string{"team": "web", podsecurityapi.WarnLevelLabel: "restricted", podsecurityapi.AuditLevelLabel: "low"}
			if name != absent {
				labels[podsecurityapi.EnforceLevelLabel] = name
			}
			if version != absent {
				labels[podsecurityapi.EnforceVersionLabel] = version
			}
			policy, _ := podsecurityapi.PolicyToEvaluate(labels, defaults)
			got := podsecurity.OfNamespace(labels)
			if want := policy.Enforce.Level != podsecurityapi.LevelPrivileged; got.Enforces() != want {
				t.Errorf("%q: enforces %t, want %t", labels, got.Enforces(), want)
			}
			if got.Enforces() {
				enforcing++
				if got.String() != policy.Enforce.String() {
					t.Errorf("%q: got %s, want %s", labels, got, policy.Enforce.String())
				}
			}
		}
	}
	if enforcing != 60 {
		t.Errorf("%d of the combinations enforce a level", enforcing)
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, version            string
		want                     string
		enforces                 bool
		nameKnown, versionKnownn bool
	}{
		{"restricted", "v1.30", "restricted:v1.30", true, true, true},
		{"baseline", "", "baseline:latest", true, true, true},
		{"baseline", "latest", "baseline:latest", true, true, true},
		{"privileged", "", "privileged:latest", false, true, true},
		{"privileged", "v1.2", "privileged:v1.2", false, true, true},
		{"restrictd", "1.30", "restricted:latest", true, false, false},
		{"", "v1.30", "restricted:v1.30", true, false, true},
	} {
		got, nameKnown, versionKnown := podsecurity.Parse(tc.name, tc.version)
		if got.String() != tc.want || got.Enforces() != tc.enforces || nameKnown != tc.nameKnown || versionKnown != tc.versionKnownn {
			t.Errorf("%q %q: got %s, enforces %t, known %t %t", tc.name, tc.version, got, got.Enforces(), nameKnown, versionKnown)
		}
	}
	for what, l := range map[string]podsecurity.Level{"zero": {}, "no labels": podsecurity.OfNamespace(nil)} {
		if l.Enforces() || l.String() != "privileged:latest" {
			t.Errorf("%s: got %s", what, l)
		}
	}
}

// A namespace without the label is the usual one.
func TestOfNamespaceCost(t *testing.T) {
	labels := map[string]string{"kubernetes.io/metadata.name": "shop", "team": "web"}
	if n := testing.AllocsPerRun(100, func() {
		if podsecurity.OfNamespace(labels).Enforces() {
			t.Error("enforces")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
