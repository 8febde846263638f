package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// reach returns a policy, and a binding if its match is not "".
func reach(policyMatch, bindingMatch string) string {
	text := `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: p}, spec: {matchConstraints: {` + policyMatch + `}, validations: [{expression: "false"}]}}`
	if bindingMatch != "" {
		bindingMatch = ", matchResources: {" + bindingMatch + "}"
	}
	return documents(text, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]`+bindingMatch+`}}`)
}

// TestReach has what can never match.
func TestReach(t *testing.T) {
	t.Parallel()
	rules := func(operations, group, resources, more string) string {
		return fmt.Sprintf(`[{apiGroups: ["%s"], apiVersions: [v1], operations: [%s], resources: [%s]%s}]`, group, operations, resources, more)
	}
	pods := "resourceRules: " + rules("CREATE, UPDATE", "", "pods", "")
	const (
		disjoint = "no request matches both its resourceRules and the policy's, so the binding does nothing"
		idle     = "its bindings match nothing that it matches, so it does nothing"
	)
	namespace := func(selector string) string { return "namespaceSelector: {" + selector + "}" }
	for _, tc := range []struct {
		name, policy, binding string
		want                  []string // the ends of the messages
	}{
		{"the same", pods, pods, nil},
		{"no rules of its own", pods, namespace("matchLabels: {a: b}"), nil},
		{"another resource", pods, "resourceRules: " + rules("CREATE", "", "services", ""), []string{idle, disjoint}},
		{"another operation", pods, "resourceRules: " + rules("DELETE", "", "pods", ""), []string{idle, disjoint}},
		{"another group", pods, "resourceRules: " + rules("'*'", "apps", "'*'", ""), []string{idle, disjoint}},
		{"another subresource", pods, "resourceRules: " + rules("UPDATE", "", "pods/status", ""), []string{idle, disjoint}},
		{"all subresources, and it itself", pods, "resourceRules: " + rules("UPDATE", "", "pods/*", ""), nil},
		{"all resources without subresources", "resourceRules: " + rules("CREATE", "", "pods/exec", ""), "resourceRules: " + rules("CREATE", "", "'*'", ""), []string{idle, disjoint}},
		{"everything", pods, `resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]`, nil},
		{"another scope", pods[:len(pods)-2] + ", scope: Cluster}]", "resourceRules: " + rules("CREATE", "", "pods", ", scope: Namespaced"), []string{idle, disjoint}},
		{"other names", "resourceRules: " + rules("UPDATE", "", "pods", ", resourceNames: [a, b]"), "resourceRules: " + rules("UPDATE", "", "pods", ", resourceNames: [c]"), []string{idle, disjoint}},
		{"one name of two", "resourceRules: " + rules("UPDATE", "", "pods", ", resourceNames: [a, b]"), "resourceRules: " + rules("UPDATE", "", "pods", ", resourceNames: [b]"), nil},
		{"another version, which is converted", "resourceRules: " + rules("CREATE", "autoscaling", "horizontalpodautoscalers", ""), strings.Replace("resourceRules: "+rules("CREATE", "autoscaling", "horizontalpodautoscalers", ""), "[v1]", "[v2]", 1), nil},
		{"another version, and both are exact", "matchPolicy: Exact, resourceRules: " + rules("CREATE", "autoscaling", "horizontalpodautoscalers", ""), "matchPolicy: Exact, " + strings.Replace("resourceRules: "+rules("CREATE", "autoscaling", "horizontalpodautoscalers", ""), "[v1]", "[v2]", 1), []string{idle, disjoint}},
		{"events of the other group", "resourceRules: " + rules("CREATE", "", "events", ""), "resourceRules: " + rules("CREATE", "events.k8s.io", "events", ""), nil},
		{"the policy excludes all", pods + ", excludeResourceRules: " + rules("'*'", "", "'*'", ""), "", []string{"excludeResourceRules exclude every request that matches its resourceRules, so the policy does nothing"}},
		{"the policy excludes all, one by one", pods + ", excludeResourceRules: " + strings.Replace(rules("CREATE", "", "pods", ""), "]}]", "]}, ", 1) + rules("UPDATE", "", "pods", "")[1:], "", []string{"excludeResourceRules exclude every request that matches its resourceRules, so the policy does nothing"}},
		{"the policy excludes a part", pods + ", excludeResourceRules: " + rules("CREATE", "", "pods", ""), "", nil},
		{"the policy excludes names", pods + ", excludeResourceRules: " + rules("'*'", "", "pods", ", resourceNames: [a]"), "", nil},
		{"the binding excludes all", pods, "excludeResourceRules: " + rules("'*'", "", "'*'", ""), []string{idle, "excludeResourceRules exclude every request that matches its resourceRules and the policy's, so the binding does nothing"}},
		{"the binding excludes what is left", pods + ", excludeResourceRules: " + rules("CREATE", "", "pods", ""), "excludeResourceRules: " + rules("UPDATE", "", "pods", ""), []string{idle, "excludeResourceRules exclude every request that matches its resourceRules and the policy's, so the binding does nothing"}},
		{"other namespaces", pods + ", " + namespace("matchLabels: {env: prod}"), namespace("matchLabels: {env: test}"), []string{idle, `no namespace can meet its namespaceSelector and the policy's, because of the label "env", so the binding does nothing`}},
		{"other namespaces, and all resources", `resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}], ` + namespace("matchLabels: {env: prod}"), namespace("matchLabels: {env: test}"), nil},
		{"other namespaces, and resources in none", "resourceRules: " + rules("CREATE", "", "nodes", "") + ", " + namespace("matchLabels: {env: prod}"), namespace("matchLabels: {env: test}"), nil},
		{"other namespaces, of their scope", `resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"], scope: Namespaced}], ` + namespace("matchLabels: {env: prod}"), namespace("matchExpressions: [{key: env, operator: DoesNotExist}]"), []string{idle, `because of the label "env", so the binding does nothing`}},
		{"a namespace that cannot exist", pods + ", " + namespace("matchLabels: {kubernetes.io/metadata.name: Shop}"), "", []string{`no namespace can meet its namespaceSelector, because of the label "kubernetes.io/metadata.name", so the policy does nothing`}},
		{"values that are left", pods + ", " + namespace("matchExpressions: [{key: env, operator: In, values: [a, b]}]"), namespace("matchExpressions: [{key: env, operator: NotIn, values: [a]}]"), nil},
		{"other objects of a creation", "resourceRules: " + rules("CREATE", "", "pods", "") + ", objectSelector: {matchLabels: {a: x}}", "objectSelector: {matchLabels: {a: z}}", []string{idle, `no object can meet its objectSelector and the policy's, because of the label "a", so the binding does nothing`}},
		{"other objects of an update, of which each selects one", pods + ", objectSelector: {matchLabels: {a: x}}", "objectSelector: {matchLabels: {a: z}}", nil},
		{"no object", pods + ", objectSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}", "", []string{`no object can meet its objectSelector, because of the label "a", so the policy does nothing`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			found := diagnosticsOf(t, reach(tc.policy, tc.binding))
			if len(found) != len(tc.want) {
				t.Fatalf("got %v, want %q", found, tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasSuffix(found[i].Message, want) || !found[i].NoEffect {
					t.Errorf("got %v, want %q", found[i], want)
				}
			}
		})
	}
}

// TestNeverTrue has match conditions that are false whatever is asked about, and others.
func TestNeverTrue(t *testing.T) {
	t.Parallel()
	const (
		exception  = `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: x, namespace: gatehouse-system}, spec: {reason: old, policies: [{name: p}], match: {names: [b], matchConditions: [{name: c, expression: %q}]}}}`
		match      = `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}`
		validating = `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: q}, spec: {` + match + `, matchConditions: [{name: c, expression: %q}], validationActions: [Deny], validations: [{expression: "true"}]}}`
	)
	for expression, never := range map[string]bool{
		"false": true, "1 == 2": true, "!true": true, "!(1 < 2 || has(object.a))": true, "false && object.spec.x == 1": true, "object.spec.x == 1 && 'a' == 'b'": true,
		"'x' in ['a', 'b']": true, "[1, 2].all(n, n > 1)": true, "1 > 2 || 'a'.startsWith('b')": true, "size('abc') > 3": true,
		"true": false, "object.spec.x == 1": false, "false || object.spec.x == 1": false, "object.spec.x == 1 && object.spec.x == 2": false, "1 / 0 == 1": false,
		"true ? object.spec.x == 1 : false": false, "[1].exists(object, object > 1)": false, "request.operation == 'CREATE' || false": false,
		"lists.range(100000).all(n, n > 0)": false, "has(object.spec)": false,
	} {
		for what, document := range map[string]string{"policy": validating, "exception": exception} {
			found := diagnosticsOf(t, documents(reach("resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]", ""), fmt.Sprintf(document, expression)))
			said := 0
			for i := range found {
				if found[i].NoEffect && strings.Contains(found[i].Message, fmt.Sprintf("%q is never true, so the ", expression)) && strings.HasSuffix(found[i].Field, "matchConditions[0].expression") {
					said++
				} else {
					t.Errorf("%s %s: %v", what, expression, found[i])
				}
			}
			if (said == 1) != never {
				t.Errorf("%s %s: got %v", what, expression, found)
			}
		}
	}
}

// TestReachIsTrue compares what is said to match nothing with what is decided about requests.
func TestReachIsTrue(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(46, 11))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	rule := func() string {
		return fmt.Sprintf("{apiGroups: [%s], apiVersions: [%s], operations: [%s], resources: [%s]%s}", one("''", "apps", "'*'"), one("v1", "v1", "'*'"),
			one("CREATE", "UPDATE", "CREATE, UPDATE", "'*'"), one("pods", "pods/status", "pods/*", "deployments", "'*'", "'*/*'", "'*/status'"),
			one("", "", ", resourceNames: [a]", ", resourceNames: [a, b]", ", scope: Namespaced", ", scope: Cluster"))
	}
	selector := func() string {
		return one("", "", "matchLabels: {l: x}", "matchLabels: {l: z}", "matchExpressions: [{key: l, operator: NotIn, values: [x]}]", "matchExpressions: [{key: l, operator: DoesNotExist}]", "matchExpressions: [{key: l, operator: Exists}]")
	}
	match := func() string {
		return fmt.Sprintf("resourceRules: [%s], excludeResourceRules: [%s], objectSelector: {%s}, namespaceSelector: {%s}, matchPolicy: %s", rule(), one("", "", rule()), selector(), selector(), one("Exact", "Equivalent"))
	}
	var requests []admission.Request
	for _, kind := range []string{"apiVersion: v1, kind: Pod", "apiVersion: apps/v1, kind: Deployment", "apiVersion: v1, kind: Node"} {
		for _, label := range []string{"", "l: x", "l: z"} {
			for _, old := range []string{"-", "", "l: x", "l: z"} {
				for _, meta := range []string{"name: a, namespace: shop", "name: c, namespace: web", "name: b"} {
					if (kind == "apiVersion: v1, kind: Node") != (meta == "name: b") {
						continue
					}
					object := func(label string) string { return "{" + kind + ", metadata: {" + meta + ", labels: {" + label + "}}}" }
					req := review(t, object(label))
					if old != "-" {
						req = review(t, object(label), updating(t, object(old)))
					}
					requests = append(requests, req)
					if req.Operation == admissionv1.Update {
						req.SubResource = "status"
						requests = append(requests, req)
					}
				}
			}
		}
	}
	never, matched := 0, 0
	for range 800 {
		text := reach(match(), match())
		set := compile(t, documents(text, `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {l: x}}}`, `{apiVersion: v1, kind: Namespace, metadata: {name: web}}`))
		saysNever, matches := len(set.Warnings()) > 0, false
		for i := range requests {
			d := set.Decide(t.Context(), policy.Input{Request: requests[i], Violations: true})
			matches = matches || len(d.Violations) > 0
		}
		switch {
		case saysNever && matches:
			t.Errorf("%v, but requests match\n%s", set.Warnings(), text)
		case saysNever:
			never++
		case matches:
			matched++
		}
	}
	if never < 200 || matched < 40 {
		t.Errorf("%d match nothing, and %d something", never, matched)
	}
}
