package offline

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// A policy that requires labels of ConfigMaps, and what it admits and refuses.
const (
	teamPolicy = `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: team}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
  validations: [{expression: has(object.metadata.labels)}], validationActions: [Deny]}}`
	brokenException = `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {namespace: gatehouse-system, name: broken}, spec: {
  reason: test, policies: [{name: team}], match: {matchConditions: [{name: c, expression: objekt.x}]}}}`
	labelledMap   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {team: blue}}}`
	unlabelledMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`
)

// TestUnreadPolicies: while policies of the cluster cannot be read or have errors, nothing is certainly admitted.
func TestUnreadPolicies(t *testing.T) {
	t.Parallel()
	broken := strings.NewReplacer("name: team", "name: broken", "object.", "objekt.", "configmaps", "secrets").Replace(teamPolicy)
	for name, c := range map[string]struct {
		policies         []string
		forbidden, input string
		code, explained  int
		says             string
	}{
		"all read":                                  {[]string{teamPolicy}, "", labelledMap, cli.ExitYes, cli.ExitYes, `"verdict":"admitted"`},
		"no right to a kind":                        {[]string{teamPolicy}, "policyexceptions", labelledMap, cli.ExitUnknown, cli.ExitUnknown, `"error":"cannot read what is active in the cluster: missing right: list policyexceptions.gatehouse.dev"`},
		"no right to policies":                      {[]string{teamPolicy}, "admissionpolicies", labelledMap, cli.ExitUnknown, cli.ExitUnknown, `"verdict":"cannot-decide"`},
		"no right, and a violation":                 {[]string{teamPolicy}, "sidecarprofiles", unlabelledMap, cli.ExitNo, cli.ExitUnknown, `"verdict":"refused"`},
		"a policy with errors":                      {[]string{teamPolicy, broken}, "", labelledMap, cli.ExitUnknown, cli.ExitUnknown, "AdmissionPolicy/broken has errors, so that nothing can be decided by it"},
		"an exception with errors":                  {[]string{teamPolicy, brokenException}, "", labelledMap, cli.ExitYes, cli.ExitYes, "warning: cluster: PolicyException/gatehouse-system/broken: it has errors, so that it exempts nothing, in the servers too"},
		"an exception with errors, and a violation": {[]string{teamPolicy, brokenException}, "", unlabelledMap, cli.ExitNo, cli.ExitYes, `"verdict":"refused"`},
		"no right to a namespace":                   {[]string{strings.Replace(teamPolicy, "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {a: b}}, ", 1)}, "namespaces", labelledMap, cli.ExitUnknown, cli.ExitUnknown, "missing right: get namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := func(plural, kind string, namespaced bool) fakeapi.Resource {
				return fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource(plural), Kind: kind, Namespaced: namespaced}
			}
			api := fakeapi.New(
				resource("admissionpolicies", "AdmissionPolicy", false), resource("sidecarprofiles", "SidecarProfile", false), resource("policyexceptions", "PolicyException", true),
			)
			for _, text := range c.policies {
				var object map[string]any
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				api.Put(object)
			}
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if r.Resource == c.forbidden && c.forbidden != "" {
					return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(r.Resource).GroupResource(), "", nil)
				}
				return nil, nil
			}
			kubeconfig := clitest.Kubeconfig(t, api)
			for command, want := range map[string]int{"check": c.code, "explain": c.explained} {
				code, said := gatehouse(t, c.input, command, "--kubeconfig", kubeconfig, "--allow-empty", "-o", "json")
				if code != want || !strings.Contains(said, c.says) {
					t.Errorf("%s ends with %d, want %d:\n%s", command, code, want, said)
				}
			}
		})
	}
}
