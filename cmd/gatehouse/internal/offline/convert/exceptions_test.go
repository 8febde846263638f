package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// noPods is a ValidatingPolicy that refuses all pods but those of the host network, and the workloads that make such.
const noPods = `apiVersion: policies.kyverno.io/v1beta1
kind: ValidatingPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}
  validations: [{expression: "object.spec.?hostNetwork.orValue(false) == true"}]
`

// excepting returns a policy with an exception: of conditions in CEL, or of filters of Kyverno's older kind.
func excepting(match string) string {
	meta := "metadata: {name: e, namespace: gatehouse-system}\nspec:\n"
	if strings.HasPrefix(match, "- ") {
		return noPods + "---\napiVersion: policies.kyverno.io/v1beta1\nkind: PolicyException\n" + meta +
			"  policyRefs: [{name: p, kind: ValidatingPolicy}]\n  matchConditions:\n" + indent(match, "    ")
	}
	return clusterPolicy("validate: {pattern: {spec: {hostNetwork: true}}}") + "---\napiVersion: kyverno.io/v2\nkind: PolicyException\n" + meta +
		"  exceptions: [{policyName: p, ruleNames: [r, autogen-r]}]\n  match: " + match + "\n"
}

// workload returns a Deployment.
func workload(name string) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {selector: {matchLabels: {x: y}}, "+
		"template: {metadata: {labels: {x: y}}, spec: {containers: [{name: a, image: b}]}}}}", name)
}

// TestExceptions wants the objects to be exempt that Kyverno exempts, of workloads by what they are themselves.
func TestExceptions(t *testing.T) {
	t.Parallel()
	resources := request.NewResources(nil)
	pod := func(metadata string) string { return "{metadata: {" + metadata + "}, spec: {}}" }
	a, b, legacy := workload("a"), workload("b"), workload("legacy-x")
	for _, row := range []struct{ name, match, exempt, refused string }{
		{"a name", "- {name: of, expression: \"object.metadata.name == 'a'\"}", a + "\n" + pod("name: a"), b + "\n" + pod("name: b") + "\n" + pod("generateName: a-")},
		{"names", "- {name: of, expression: \"object.metadata.name in ['a', 'c']\"}", a, b},
		{"one name or another", "- {name: of, expression: \"(object.metadata.name == 'a' || object.metadata.name == 'c')\"}", a, b},
		{"the beginning of a name", "- {name: of, expression: \"object.metadata.name.startsWith('legacy-')\"}", legacy + "\n" + pod("name: legacy-1"), a},
		{"a name in a namespace", "- {name: of, expression: \"object.metadata.name == 'a' && object.metadata.namespace == 'default'\"}", a, b},
		{"a name elsewhere", "- {name: of, expression: \"object.metadata.name == 'a' && request.namespace != 'default'\"}", "", a},
		{"a name and a condition", "- {name: of, expression: \"object.metadata.name == 'a'\"}\n- {name: m, expression: \"request.namespace == 'x'\"}", "", a},
		{"filters by name", "{any: [{resources: {kinds: [Pod, Deployment], names: [a]}}]}", a + "\n" + pod("name: a"), b + "\n" + legacy},
		{"filters by wildcards", "{any: [{resources: {kinds: [Pod, Deployment], names: [legacy-*]}}]}", legacy + "\n" + pod("generateName: legacy-x-"), workload("legacy")},
		{
			"filters with other names each", "{any: [{resources: {kinds: [Pod, Deployment], names: [a], namespaces: [default]}}, {resources: {kinds: [Pod, Deployment], names: [b], namespaces: [x]}}]}",
			a, b,
		},
		{"filters by namespace", "{any: [{resources: {kinds: [Pod, Deployment], namespaces: [def*]}}]}", a + "\n" + b, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out := convert.Convert(read(t, excepting(row.match)), convert.Options{})
			for _, r := range out.Results {
				if r.Status == convert.Not {
					t.Fatalf("not converted: %+v", r)
				}
			}
			set := compile(t, out, "").Policy
			for verdict, objects := range map[bool]string{true: row.exempt, false: row.refused} {
				for object := range strings.Lines(objects) {
					d := set.Decide(t.Context(), policy.Input{Request: mustRequest(t, resources, object)})
					if got := d.Response().Allowed; got != verdict {
						t.Errorf("allowed: %v, want %v: %s\n%v\n%s", got, verdict, object, d.Violations, out.Documents[1].Text)
					}
				}
			}
		})
	}
}

// TestExceptionsNotConverted wants what an exception cannot see of a workload to be named.
func TestExceptionsNotConverted(t *testing.T) {
	t.Parallel()
	for match, construct := range map[string]string{
		"- {name: of, expression: \"has(object.metadata.labels) && object.metadata.labels.a == 'b'\"}":                 "a condition about a workload",
		"- {name: of, expression: \"object.metadata.name == 'a' || object.spec.replicas == 1\"}":                       "a condition about a workload",
		"- {name: of, expression: \"request.userInfo.username == resource.Get('v1', 'configmaps', 'a', 'b').data.x\"}": "a condition about a ConfigMap",
		"- {name: of, expression: \"http.Get('https://a.example').ok\"}":                                               "http.Get(), which Kyverno adds to CEL",
		"- {name: of, expression: \"request.userInfo.username\"}":                                                      "must evaluate to bool",
		"- {name: of, expression: \"!(object.metadata.name == 'a' && true)\"}":                                         "a condition about a workload",
		"- {name: of, expression: \"object.metadata.name == 'a' && request.kind.kind == 'Deployment'\"}":               "a condition about a workload",
		"{any: [{resources: {kinds: [Pod, Deployment], selector: {matchLabels: {a: b}}}}]}":                            "a condition about a workload",
		"{any: [{resources: {kinds: [Pod, Deployment], names: [\"*x\"]}}]}":                                            "a condition about a workload",
		"{any: [{resources: {kinds: [Deployment], names: [x]}}]}":                                                      "an exception for workloads",
	} {
		out := convert.Convert(read(t, excepting(match)), convert.Options{})
		if r := out.Results[len(out.Results)-1]; r.Status != convert.Not || !strings.Contains(r.Problems[0].Construct, construct) || r.Problems[0].Instead == "" {
			t.Errorf("%s: %+v, want %q", match, r, construct)
		}
	}
}

// TestExceptionsOfOneName wants an exception to be from the policy of its kind and namespace alone.
func TestExceptionsOfOneName(t *testing.T) {
	t.Parallel()
	older := clusterPolicy("validate: {pattern: {spec: {hostNetwork: true}}}")
	inNamespace := func(name string) string {
		return "---\n" + strings.NewReplacer("kind: ClusterPolicy", "kind: Policy", "name: p,", "name: p, namespace: "+name+",").Replace(older)
	}
	all := older + "---\n" + noPods + inNamespace("blue") + inNamespace("red")
	exception := func(group, refs string) string {
		return "---\napiVersion: " + group + "\nkind: PolicyException\nmetadata: {name: e, namespace: gatehouse-system}\nspec:\n  " + refs + "\n"
	}
	const match, conditions = "\n  match: {any: [{resources: {kinds: [Pod], names: [x]}}]}", "\n  matchConditions: [{name: of, expression: \"object.metadata.name == 'x'\"}]"
	for text, want := range map[string]string{
		exception("kyverno.io/v2", "exceptions: [{policyName: p, ruleNames: [r]}]"+match):                     "p",
		exception("kyverno.io/v2", "exceptions: [{policyName: red/p, ruleNames: [r]}]"+match):                 "red-p",
		exception("kyverno.io/v2", "exceptions: [{policyName: green/p, ruleNames: [r]}]"+match):               "",
		exception("policies.kyverno.io/v1", "policyRefs: [{name: p, kind: ValidatingPolicy}]"+conditions):     "p-2",
		exception("policies.kyverno.io/v1", "policyRefs: [{name: p, kind: MutatingPolicy}]"+conditions):       "",
		exception("policies.kyverno.io/v1", "policyRefs: [{name: other, kind: ValidatingPolicy}]"+conditions): "",
	} {
		out := convert.Convert(read(t, all+text), convert.Options{})
		last := out.Documents[len(out.Documents)-1]
		if r := out.Results[len(out.Results)-1]; want == "" && (r.Status != convert.Not || last.Kind == "PolicyException") {
			t.Errorf("%s%+v", text, r)
		}
		if names := strings.Count(string(last.Text), "  - name: "); want != "" && (names != 1 || !strings.Contains(string(last.Text), "  - name: "+want+"\n")) {
			t.Errorf("%s%s", text, last.Text)
		}
	}
}
