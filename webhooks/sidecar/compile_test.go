package sidecar_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestFindings shows what is wrong with several documents: all at once, in one order, each with
// its source. TestLint shows every diagnostic.
func TestFindings(t *testing.T) {
	t.Parallel()
	spec := sidecar.Spec{}
	for _, document := range []struct{ source, text string }{
		{"a.yaml#1", `
metadata: {name: Bad_Name}
spec:
  match:
    namespaceSelector:
      matchLabels: {"not a key": x, ok: "not a value!", "-": x}
      matchExpressions:
      - {key: tier, operator: Equals, values: [web]}
      - {key: tier, operator: In}
    objectSelector:
      matchExpressions:
      - {key: tier, operator: Exists, values: [web]}
  injection: Always
  template: {spec: {}}
`},
		{"b.yaml", `
metadata: {name: first}
spec:
  template: {spec: {initContainers: [{name: shared, image: i, restartPolicy: Always, startupProbe: {exec: {command: [x]}}, ports: [{containerPort: 9000}]}], volumes: [{name: tmp, emptyDir: {}}]}}
`},
		{"c.yaml", `
metadata: {name: second}
spec:
  template: {spec: {containers: [{name: shared, image: i, ports: [{containerPort: 1, hostPort: 1}, {containerPort: 9000}]}], volumes: [{name: tmp, emptyDir: {}}]}}
`},
		{"d.yaml", `
metadata: {name: first}
spec:
  template: {spec: {volumes: [{name: unique, emptyDir: {}}]}}
`},
	} {
		spec.Profiles = append(spec.Profiles, profile(t, document.source, document.text))
	}
	set, err := sidecar.Compile(spec)
	var found diagnostic.List
	if set != nil || !errors.As(err, &found) {
		t.Fatalf("got %v, %v", set, err)
	}
	var b strings.Builder
	for _, f := range found {
		b.WriteString(string(f.Severity) + ": " + f.String() + "\n")
	}
	golden(t, "findings.txt", b.String())
}

// TestProfilesThatExcludeEachOther may share names: no pod gets both. Others may
// not.
func TestProfilesThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, a, b string
		exclude    bool
	}{
		{"no selectors", `{}`, `{}`, false},
		{"one selector", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{}`, false},
		{"other values", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{namespaceSelector: {matchLabels: {env: dev}}}`, true},
		{"the same value", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{namespaceSelector: {matchLabels: {env: prod}}}`, false},
		{"other keys", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{namespaceSelector: {matchLabels: {tier: dev}}}`, false},
		{"values of namespace and pod", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{objectSelector: {matchLabels: {env: dev}}}`, false},
		{"pods", `{objectSelector: {matchLabels: {env: prod}}}`, `{objectSelector: {matchLabels: {env: dev}}}`, true},
		{"one of several values", `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [a, b]}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [b, c]}]}}`, false},
		{"value and its absence", `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [a, b]}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: NotIn, values: [a, b, c]}]}}`, true},
		{"value and the absence of one of two", `{objectSelector: {matchExpressions: [{key: env, operator: NotIn, values: [a]}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [a, b]}]}}`, false},
		{"there and not there", `{objectSelector: {matchExpressions: [{key: env, operator: Exists}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}`, true},
		{"a value and not there", `{objectSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}`, `{objectSelector: {matchLabels: {env: a}}}`, true},
		{"a value and there", `{objectSelector: {matchExpressions: [{key: env, operator: Exists}]}}`, `{objectSelector: {matchLabels: {env: a}}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{
				profile(t, "a.yaml", strings.Replace(spec("same", tc.a, "OptOut"), "name: same}", "name: a}", 1)),
				profile(t, "b.yaml", strings.Replace(spec("same", tc.b, "OptOut"), "name: same}", "name: b}", 1)),
			}})
			if tc.exclude != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestRevision changes with the template and with nothing else.
func TestRevision(t *testing.T) {
	t.Parallel()
	revision := func(text string) string {
		return compile(t, text).Decide(t.Context(), sidecar.ForPod("shop", []byte(`{}`))).Verdicts[0].Revision
	}
	base := revision(both)
	if len(base) != 12 {
		t.Errorf("revision %q", base)
	}
	if set := compile(t, both); set.Revision("both") != base || set.Revision("other") != "" {
		t.Errorf("revisions %q and %q without a pod", set.Revision("both"), set.Revision("other"))
	}
	if revision(strings.Replace(both, "OptOut", "OptIn", 1)) != base || revision(strings.Replace(both, "name: both", "name: other", 1)) != base {
		t.Error("the revision depends on more than the template")
	}
	for _, change := range []string{"example/setup:1", "example/agent:1", "scratch"} {
		if revision(strings.Replace(both, change, "changed", 1)) == base {
			t.Errorf("the revision does not depend on %s", change)
		}
	}
}
