package policy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// exceptionOf returns a PolicyException named x in a namespace.
func exceptionOf(namespace, spec string) string {
	return `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: x, namespace: ` + namespace + `}, spec: {reason: "old", ` + spec + `}}`
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	two := own(`validations: [{expression: "object.data.a == 'x'", message: a}, {expression: "object.data.b == 'x'", message: b}]`)
	configuration := func(exceptions string) string {
		return `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, exceptions: {` + exceptions + `}}`
	}
	const (
		object = `{apiVersion: v1, kind: ConfigMap, metadata: {name: legacy-1, namespace: shop, labels: {app: old}}, data: {a: w, b: w}}`
		all    = "Excepted validations[0] by gatehouse-system/x; Excepted validations[1] by gatehouse-system/x"
		none   = "Violated validations[0]; Violated validations[1]"
		shop   = "Excepted validations[0] by shop/x; Excepted validations[1] by shop/x"
	)
	asItIs := func(*admission.Request) {}
	for _, tc := range []struct {
		name, documents string
		options         func(*admission.Request)
		want            string
	}{
		{"all rules of the policy", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [shop]}")), asItIs, all},
		{"one rule", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own, rules: ["validations[1]"]}], match: {namespaces: [shop]}`)), asItIs, "Violated validations[0]; Excepted validations[1] by gatehouse-system/x"},
		{"by kind", documents(two, exceptionOf("gatehouse-system", "policies: [{kind: AdmissionPolicy, name: own}], match: {namespaces: [shop]}")), asItIs, all},
		{"another kind", documents(two, exceptionOf("gatehouse-system", "policies: [{kind: ValidatingAdmissionPolicy, name: own}], match: {namespaces: [shop]}")), asItIs, none},
		{"another namespace", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [lab]}")), asItIs, none},
		{"by name", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {names: [legacy-1]}")), asItIs, all},
		{"by beginning of the name", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {names: ["legacy-*"]}`)), asItIs, all},
		{"by a name that will be made longer", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {names: [legacy-1]}")), func(req *admission.Request) {
			req.Name = ""
			req.Object.Raw = []byte(strings.Replace(string(req.Object.Raw), `"name"`, `"generateName"`, 1))
		}, none},
		{"by another name", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {names: [legacy-]}`)), asItIs, none},
		{"by the labels of the namespace", documents(two, labelled, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaceSelector: {matchLabels: {env: prod}}}")), asItIs, all},
		{"by the labels of a namespace that is not known", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaceSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}")), asItIs, none},
		{"by labels", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {objectSelector: {matchLabels: {app: old}}}")), asItIs, all},
		{
			"by labels that only the update brings", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {objectSelector: {matchLabels: {app: old}}}")),
			updating(t, strings.NewReplacer("app: old", "app: new", "a: w", "a: x", "b: w", "b: x").Replace(object)), none,
		},
		{"by an expression", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {matchConditions: [{name: c, expression: "request.userInfo.username == 'alice' && object.data.a == 'w'"}]}`)), asItIs, all},
		{"by an expression that is false", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {matchConditions: [{name: c, expression: "request.userInfo.username == 'bob'"}]}`)), asItIs, none},
		{"by an expression that fails", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {matchConditions: [{name: c, expression: "object.data.missing != 'w'"}]}`)), asItIs, none},
		{"every field must match", documents(two, exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [shop], names: [other]}")), asItIs, none},
		{"the moment before it expires", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {namespaces: [shop]}, expiresAt: "2026-11-20T12:00:01Z"`)), asItIs, all},
		{"the moment when it expires", documents(two, exceptionOf("gatehouse-system", `policies: [{name: own}], match: {namespaces: [shop]}, expiresAt: "2026-11-20T12:00:00Z"`)), asItIs, none},

		{"a namespace that may not", documents(two, exceptionOf("shop", "policies: [{name: own}], match: {namespaces: [shop]}")), asItIs, none},
		{"a namespace that may for its own", documents(two, configuration("ownNamespaces: [shop]"), exceptionOf("shop", `policies: [{name: own}], match: {names: ["*"]}`)), asItIs, shop},
		{"a namespace that may for its own, about another", documents(two, configuration(`ownNamespaces: ["*"]`), exceptionOf("lab", "policies: [{name: own}], match: {namespaces: [shop]}")), asItIs, none},
		{"every namespace for its own", documents(two, configuration(`ownNamespaces: ["*"]`), exceptionOf("shop", `policies: [{name: own}], match: {names: ["*"]}`)), asItIs, shop},
		{"the default is replaced", documents(two, configuration("namespaces: [platform]"), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [shop]}")), asItIs, none},
		{"an end is required", documents(two, configuration("requireExpiry: true"), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [shop]}")), asItIs, none},

		{
			"a namespace is not in itself", documents(denyAll("own", "", ""), configuration(`ownNamespaces: ["*"]`), exceptionOf("shop", `policies: [{name: own}], match: {names: ["*"]}`)),
			func(req *admission.Request) {
				req.Resource.Resource, req.Kind.Kind = "namespaces", "Namespace"
			}, "Violated validations[0]",
		},
		{
			"options have no labels", documents(denyAll("own", "", ""), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {objectSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}}")),
			func(req *admission.Request) { req.Operation, req.SubResource = admissionv1.Connect, "exec" }, "Violated validations[0]",
		},

		{
			"the deletion of a collection, whose reviews do not name the object", documents(denyAll("own", "", ""), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {names: [legacy-1]}")),
			func(req *admission.Request) {
				req.Operation, req.Name = admissionv1.Delete, ""
				req.OldObject, req.Object.Raw = req.Object, nil
			}, "Excepted validations[0] by gatehouse-system/x",
		},
		{"what could not be evaluated", documents(own(`matchConditions: [{name: c, expression: "object.data.missing == 'x'"}], validations: [{expression: "true"}]`), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [shop]}")), asItIs, "Excepted matchConditions by gatehouse-system/x"},
		{"what could not be evaluated is not one of the rules", documents(own(`matchConditions: [{name: c, expression: "object.data.missing == 'x'"}], validations: [{expression: "true"}]`), exceptionOf("gatehouse-system", `policies: [{name: own, rules: ["validations[0]"]}], match: {namespaces: [shop]}`)), asItIs, "Failed matchConditions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, tc.documents)
			spec.Now = func() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }
			set, err := policy.Compile(spec)
			must(t, err)
			d := set.Decide(context.Background(), policy.Input{Request: review(t, object, tc.options), Violations: true})
			if got := outcomes(d); got != tc.want {
				t.Fatalf("got %q, want %q\n%v", got, tc.want, set.Warnings())
			}
			if want := !strings.Contains(tc.want, "Violated") && !strings.Contains(tc.want, "Failed"); d.Response().Allowed != want {
				t.Errorf("allowed: %t", d.Response().Allowed)
			}
			if strings.Contains(tc.want, "Excepted") != (d.Response().AuditAnnotations[policy.ExceptedByKey] != "") {
				t.Errorf("audit %q", d.Response().AuditAnnotations)
			}
		})
	}
}

// TestExceptionExpiresWhileServing holds that the clock decides, not the moment
// of compilation, and that without a clock an exception that ends has ended.
func TestExceptionExpiresWhileServing(t *testing.T) {
	t.Parallel()
	spec := specOf(t, documents(denyAll("p", "", ""), exceptionOf("gatehouse-system", `policies: [{name: p}], match: {namespaces: [shop]}, expiresAt: "2026-11-20T12:00:00Z"`)))
	end := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := end.Add(-time.Nanosecond)
	spec.Now = func() time.Time { return now }
	set, err := policy.Compile(spec)
	must(t, err)
	if got := verdict(decide(t, set, review(t, configMap))); got != "allowed" {
		t.Errorf("before its end: %s", got)
	}
	now = end
	if got := verdict(decide(t, set, review(t, configMap))); got != "denied" {
		t.Errorf("at its end: %s", got)
	}
	spec.Now = nil
	set, err = policy.Compile(spec)
	must(t, err)
	if got := verdict(decide(t, set, review(t, configMap))); got != "denied" {
		t.Errorf("without a clock: %s", got)
	}
}

func TestExceptionDiagnostics(t *testing.T) {
	t.Parallel()
	const x = "test.yaml#3: PolicyException/gatehouse-system/x: "
	for _, tc := range []struct{ name, spec, want string }{
		{"no policy", "policies: [], match: {namespaces: [shop]}", "error: " + x + "spec.policies: is required (hint: name at least one policy)"},
		{"a policy that does not exist", "policies: [{name: pp}], match: {namespaces: [shop]}", "warning: " + x + `spec.policies[0].name: there is no policy "pp" (hint: did you mean "p"?)`},
		{"a rule that does not exist", `policies: [{name: p, rules: ["validation[0]"]}], match: {namespaces: [shop]}`, "error: " + x + `spec.policies[0].rules[0]: the policy has no rule "validation[0]" (hint: there are validations[0])`},
		{"a policy twice", "policies: [{name: p}, {name: p}], match: {namespaces: [shop]}", "error: " + x + `spec.policies[1].name: "p" occurs twice (hint: name the rules in one place)`},
		{"an unknown kind", "policies: [{kind: Policy, name: p}], match: {namespaces: [shop]}", "error: " + x + `spec.policies[0].kind: "Policy" is not allowed; allowed are "ValidatingAdmissionPolicy", "AdmissionPolicy"`},
		{"a mutating policy", "policies: [{kind: MutatingAdmissionPolicy, name: p}], match: {namespaces: [shop]}", "error: " + x + `spec.policies[0].kind: "MutatingAdmissionPolicy" is not allowed: exceptions are from policies that validate (hint: exclude the objects in the policy, by a match condition or excludeResourceRules)`},
		{"about everything", "policies: [{name: p}], match: {}", "error: " + x + "spec.match: is empty: an exception must select objects (hint: set namespaces, names or a selector, or containers; to disable a policy, delete its binding)"},
		{"a star in the middle", `policies: [{name: p}], match: {names: ["a*b"]}`, "error: " + x + `spec.match.names[0]: "a*b" is not a name: a "*" can stand at its end only (hint: as in "legacy-*")`},
		{"an expression that does not compile", `policies: [{name: p}], match: {matchConditions: [{name: c, expression: "variables.x"}]}`, "error: " + x + `spec.match.matchConditions[0].expression: 1:1 in "variables.x": "variables" is not declared (hint: declare them in spec.variables)`},
		{"a bad selector", `policies: [{name: p}], match: {objectSelector: {matchLabels: {a: "b c"}}}`, "error: " + x + `spec.match.objectSelector.matchLabels: invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue' or 'my_value' or '12345')`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(lines(diagnosticsOf(t, documents(denyAll("p", "", ""), exceptionOf("gatehouse-system", tc.spec)))), "\n")
			if got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	got := strings.Join(lines(diagnosticsOf(t, documents(denyAll("p", "", ""), exceptionOf("shop", "policies: [{name: p}], match: {namespaces: [shop]}")))), "\n")
	if want := `warning: test.yaml#3: PolicyException/shop/x: metadata.namespace: exceptions in "shop" do nothing (hint: allowed are "gatehouse-system", see exceptions of PolicyConfiguration)`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestExceptionsForNothing has the exceptions that can exempt nothing.
func TestExceptionsForNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, policies, match, want string
		noEffect                    bool
	}{
		{"a namespace and a name", "[{name: own}]", "namespaces: [shop], names: [web-1, web-*, '*']", "", false},
		{"no namespace", "[{name: own}]", "namespaces: [Shop]", `spec.match.namespaces[0]: no namespace can have the name "Shop"`, true},
		{"a namespace, and one that cannot be", "[{name: own}]", "namespaces: [shop, a_b]", `spec.match.namespaces[1]: no namespace can have the name "a_b"`, false},
		{"no name", "[{name: own}]", "names: [web_1]", `spec.match.names[0]: no object that the policy matches can have the name "web_1"`, true},
		{"no name that begins so", "[{name: own}]", "names: ['Web-*']", `spec.match.names[0]: no object that the policy matches can have the name "Web-*"`, true},
		{"names of roles", "[{name: roles}]", "names: ['system:node', Admin]", "", false},
		{"no label", "[{name: own}]", "objectSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}", `spec.match.objectSelector: nothing can meet what it requires of the label "a", so the exception does nothing`, true},
		{"no policy", "[{name: none}]", "names: [a]", `spec.policies[0].name: there is no policy "none"`, true},
		{"a policy, and one that is not there", "[{name: own}, {name: none}]", "names: [a]", `spec.policies[1].name: there is no policy "none"`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			text := documents(own(`validations: [{expression: "true"}]`),
				strings.NewReplacer("name: own", "name: roles", "[pods, deployments, configmaps]", "[roles]", `["", apps]`, "[rbac.authorization.k8s.io]").Replace(own(`validations: [{expression: "true"}]`)),
				`{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: x, namespace: gatehouse-system}, spec: {policies: `+tc.policies+`, match: {`+tc.match+`}, reason: r}}`)
			found := diagnosticsOf(t, text)
			got, noEffect := "", false
			for _, f := range found {
				got, noEffect = got+f.Field+": "+f.Message, noEffect || f.NoEffect
			}
			if got != tc.want || noEffect != tc.noEffect {
				t.Errorf("got %q, without effect %t, want %q", got, noEffect, tc.want)
			}
		})
	}
}
