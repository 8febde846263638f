package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// explained returns the explanation of one verdict, a line for each thing.
func explained(v *sidecar.Verdict) string {
	var b strings.Builder
	for _, s := range v.Explanation.Steps {
		fmt.Fprintf(&b, "%s: %s", s.Name, s.Result)
		if s.Detail != "" {
			fmt.Fprintf(&b, " (%s)", s.Detail)
		}
		b.WriteByte('\n')
	}
	for _, p := range v.Explanation.Parameters {
		fmt.Fprintf(&b, "%s = %s from %s\n", p.Name, p.Value, p.From)
	}
	for _, fieldPath := range v.Explanation.Adds {
		fmt.Fprintf(&b, "adds %s\n", fieldPath)
	}
	return fmt.Sprintf("%s\n%s\n", v.Reason, b.String())
}

// TestExplain shows how verdicts come about: what was looked at, the parameters
// and where they come from, and what is added.
func TestExplain(t *testing.T) {
	t.Parallel()
	const tmpl = "\ntemplate: {metadata: {labels: {a: '${params.level}'}}, spec: {containers: [{name: a, image: a, ports: [{containerPort: 80}]}], volumes: [{name: v, emptyDir: {}}]}}\nappContainers: [{template: {env: [{name: A, value: a}]}}]"
	const params = "parameters: [{name: level, type: string, default: low}, {name: size, type: integer, default: 1}, {name: team, type: string, default: none}]"
	cluster := "labels: {tier: web}\nannotations: {a.sidecar.gatehouse.dev/size: '2', a.sidecar.gatehouse.dev/level: high}"
	var b strings.Builder
	for _, tc := range []struct{ name, profile, namespace, pod string }{
		{"applied", params + tmpl, cluster, "metadata: {labels: {app: x}, annotations: {a.sidecar.gatehouse.dev/level: mid}}\nspec: {containers: [{name: app}]}"},
		{"every step", params + "\nrollout: {percent: 100}\nhostNetwork: Inject\npodsThatEnd: Inject\nmatch: {namespaceSelector: {matchLabels: {tier: web}}, objectSelector: {matchLabels: {app: x}}, matchConditions: [{name: small, expression: 'size(pod.spec.containers) == 1'}]}" + tmpl, cluster, "metadata: {labels: {app: x}, annotations: {sidecar.gatehouse.dev/inject: a}}\nspec: {hostNetwork: true, restartPolicy: Never, containers: [{name: app}]}"},
		{"namespace not selected", params + "\nmatch: {namespaceSelector: {matchLabels: {tier: db}}}" + tmpl, cluster, "spec: {}"},
		{"labels not selected", params + "\nmatch: {objectSelector: {matchLabels: {app: x}}}" + tmpl, cluster, "spec: {}"},
		{"declined", params + tmpl, cluster, says("-a")},
		{"declined by the namespace", params + tmpl, namespaceSays("false"), "spec: {}"},
		{"not in the rollout", params + "\nrollout: {percent: 0}" + tmpl, cluster, "metadata: {generateName: checkout-}\nspec: {}"},
		{"host network", params + tmpl, cluster, "spec: {hostNetwork: true}"},
		{"host process", params + tmpl, cluster, "spec: {securityContext: {windowsOptions: {hostProcess: true}}}"},
		{"operating system", params + "\ntemplate: {spec: {shareProcessNamespace: true}}", cluster, "spec: {os: {name: windows}}"},
		{"mirror", params + tmpl, cluster, "metadata: {annotations: {kubernetes.io/config.mirror: x}}"},
		{"must end", params + tmpl, cluster, "spec: {restartPolicy: Never}"},
		{"condition", params + "\nmatch: {matchConditions: [{name: small, expression: 'size(pod.spec.containers) == 1'}]}" + tmpl, cluster, "spec: {containers: []}"},
		{"condition that cannot be decided", params + "\nmatch: {matchConditions: [{name: small, expression: 'size(pod.spec.containers) == 1'}]}" + tmpl, cluster, "spec: {}"},
		{"parameter", params + tmpl, cluster, "metadata: {annotations: {a.sidecar.gatehouse.dev/size: big}}"},
		{"conflict", params + "\nonConflict: Skip" + tmpl, cluster, "spec: {containers: [{name: app, ports: [{containerPort: 80}]}]}"},
		{"conflict that is kept", params + "\nonConflict: Keep" + tmpl, cluster, "spec: {containers: [{name: app, ports: [{containerPort: 80}]}]}"},
		{"what is there stays", params + "\nonSameName: Keep" + tmpl, cluster, "spec: {containers: [{name: a, image: mine}, {name: app, env: [{name: A, value: mine}]}]}"},
		{"pod security", params + tmpl, "labels: {pod-security.kubernetes.io/enforce: restricted}", "spec: {containers: [{name: app, " + clean + "}]}"},
	} {
		set := compileIn(t, shop(t, tc.namespace), optOut("a", tc.profile))
		d, _ := inject(t, set, tc.pod)
		in := input(t, tc.pod)
		in.Explain = true
		with := set.Decide(t.Context(), in)
		check(t, tc.name, reasons(&with), reasons(&d))
		b.WriteString("# " + tc.name + "\n" + explained(&with.Verdicts[0]))
	}
	golden(t, "explained.txt", b.String())
}

// many returns more profiles than are all looked at: by label of the pod, by label of
// the namespace, by both, by names of namespaces and by nothing.
func many() []string {
	var all []string
	for i := range 8 {
		for _, match := range []string{
			"{objectSelector: {matchLabels: {app: v%d}}}",
			"{objectSelector: {matchExpressions: [{key: app, operator: In, values: [v%d, w]}, {key: other, operator: DoesNotExist}]}}",
			"{namespaceSelector: {matchLabels: {team: v%d}}}",
			"{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: v%d}}}",
			"{namespaceSelector: {matchLabels: {team: v1}}, objectSelector: {matchLabels: {app: v%d}}}",
			"{objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [v%d]}]}}",
		} {
			name := fmt.Sprintf("p%02d", len(all))
			injection := [...]string{"OptOut", "OptIn"}[len(all)%2]
			p := spec(name, fmt.Sprintf(match, i), injection)
			if len(all)%5 == 0 {
				p = strings.Replace(p, "spec:\n", "spec:\n  rollout: {percent: 40}\n", 1)
			}
			all = append(all, p)
		}
	}
	return all
}

// TestManyProfiles: with an index the decision is that of looking at all, which
// an explanation does.
func TestManyProfiles(t *testing.T) {
	t.Parallel()
	set := compileIn(t, objects{namespaces: shop(t, "labels: {team: v1}").namespaces}, many()...)
	set2 := compileIn(t, objects{}, many()...)
	left := false
	for _, labels := range []string{"", "app: v1", "app: v7", "app: w", "app: v1, other: x", "app: none", "other: v1"} {
		for _, word := range []string{"", "true", "false", "p00,-p05", "p06", "p47"} {
			pod := "metadata: {labels: {" + labels + "}"
			if word != "" {
				pod += `, annotations: {sidecar.gatehouse.dev/inject: "` + word + `"}`
			}
			for name, s := range map[string]*sidecar.Set{"known": set, "unknown": set2} {
				t.Run(fmt.Sprintf("%s namespace, %s, %s", name, labels, word), func(t *testing.T) {
					in := input(t, pod+"}")
					d := s.Decide(t.Context(), in)
					checkExplained(t, s, in, &d)
				})
				d := s.Decide(t.Context(), input(t, pod+"}"))
				left = left || d.NotSelected > 0
			}
		}
	}
	if !left {
		t.Error("no profile was ever left out: the index is of no use")
	}
}

// TestManyProfilesAndEscapes: labels may be written with escapes, and must be
// found all the same.
func TestManyProfilesAndEscapes(t *testing.T) {
	t.Parallel()
	set := compileIn(t, shop(t, ""), many()...)
	want := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(`{"metadata":{"labels":{"app":"v4"}},"spec":{}}`)))
	for _, labels := range []string{`"a\u0070p":"v4"`, `"app":"v\u0034"`} {
		d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(`{"metadata":{"labels":{`+labels+`}},"spec":{}}`)))
		check(t, labels, reasons(&d), reasons(&want))
	}
	if !strings.Contains(reasons(&want), "p24=applied") || want.NotSelected == 0 {
		t.Errorf("got %s", reasons(&want))
	}
}

// TestAuditCountsTheRest: profiles that are left out are counted.
func TestAuditCountsTheRest(t *testing.T) {
	t.Parallel()
	set := compileIn(t, shop(t, ""), append(many(), spec("z", "{}", "OptOut"))...)
	audit := set.Decide(t.Context(), sidecar.Input{Request: request("shop", `{"metadata":{"labels":{"app":"none"}},"spec":{}}`)}).Response().AuditAnnotations["profiles"]
	if want := ",z=applied,+40"; !strings.HasSuffix(audit, want) {
		t.Errorf("got %s, want …%s", audit, want)
	}
}
