package debug_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// TestConfiguration: callers on this host read what decides about objects in the directory, and nothing else that is active.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(`
{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: team}, spec: {validationActions: [Deny],
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, validations: [{expression: "true"}]}}
---
{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, exceptions: {requireExpiry: true}}
---
{apiVersion: gatehouse.dev/v1alpha1, kind: AuthenticationConfiguration, guard: {prefixes: [{source: access-tokens, username: "secret-robot:", groups: ""}]}}
---
{apiVersion: gatehouse.dev/v1alpha1, kind: AccessToken, metadata: {name: secret-token}, spec: {sha256: `+strings.Repeat("ab", 32)+`, user: {username: "secret-robot:x"}, expiresAt: "2999-01-01T00:00:00Z"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: secret-param, namespace: default}, data: {a: c2VjcmV0}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, found := config.Inspect(dir)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	cluster := c.Policy.AdmissionPolicies[0]
	cluster.Name, cluster.Source = "of-the-cluster", config.ClusterSource
	c.Policy.AdmissionPolicies = append(c.Policy.AdmissionPolicies, cluster)
	var active *config.Config
	s := &subject{}
	s.Handler = debug.Handler(debug.Options{Level: debug.NewLevel(&s.variable, slog.New(slog.DiscardHandler)), Configuration: func() *config.Config { return active }})
	if code, said := s.ask(t, http.MethodGet, debug.ConfigurationPath, ""); code != http.StatusServiceUnavailable {
		t.Errorf("before one is active it answers %d %s", code, said)
	}
	active = c.Own()
	code, said := s.ask(t, http.MethodGet, debug.ConfigurationPath, "")
	for _, want := range []string{"name: team", "kind: PolicyConfiguration", "requireExpiry: true"} {
		if code != http.StatusOK || !strings.Contains(said, want) {
			t.Errorf("it answers %d, without %q:\n%s", code, want, said)
		}
	}
	for _, secret := range []string{"secret-", "abab", "c2VjcmV0", "of-the-cluster", "AccessToken", "AuthenticationConfiguration"} {
		if strings.Contains(said, secret) {
			t.Errorf("it answers %q:\n%s", secret, said)
		}
	}
	if code, _ := s.ask(t, http.MethodGet, debug.ConfigurationPath, "", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }); code != http.StatusForbidden {
		t.Errorf("another host gets %d", code)
	}
	if code, _ := s.ask(t, http.MethodPut, debug.ConfigurationPath, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("PUT gets %d", code)
	}
}
