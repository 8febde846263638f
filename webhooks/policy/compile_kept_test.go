package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestBrokenPolicies holds what becomes of policies of which an expression does
// not compile, if they are kept: their failurePolicy decides for what they match,
// and the others go on.
func TestBrokenPolicies(t *testing.T) {
	t.Parallel()
	maps := `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]}, `
	broken := denyAll("broken", maps+`validations: [{expression: "objct.x"}]`, "")
	spec := specOf(t, documents(broken, denyAll("whole", maps+`validations: [{expression: "false", message: whole}]`, "validationActions: [Warn]")))
	if _, err := policy.Compile(spec); err == nil {
		t.Fatal("it compiles")
	}
	spec.KeepBroken = true
	set, err := policy.Compile(spec)
	must(t, err)
	if found := set.Warnings(); len(found) != 1 || found[0].Severity != diagnostic.Error || !strings.Contains(found[0].Message, `"objct" is not declared`) {
		t.Errorf("diagnostics: %v", found)
	}
	response := decide(t, set, review(t, configMap))
	if got := message(response); got != "ValidatingAdmissionPolicy 'broken' denied request: failed to configure policy: its expressions do not compile (hint for its maintainer: gatehouse lint)" {
		t.Errorf("got %q", got)
	}
	if len(response.Warnings) != 1 {
		t.Errorf("the other policy does not go on: %q", response.Warnings)
	}
	if got := verdict(decide(t, set, review(t, labelled))); got != "allowed" {
		t.Errorf("what it does not match is %s", got)
	}
	spec.Policies[0].Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
	set, err = policy.Compile(spec)
	must(t, err)
	if got := verdict(decide(t, set, review(t, configMap))); got != "allowed" {
		t.Errorf("with failurePolicy Ignore it is %s", got)
	}

	// An exception that is wrong lets nothing pass, and keeps nothing from working.
	spec.Exceptions = specOf(t, exceptionOf("shop", `policies: [{name: broken}], match: {matchConditions: [{name: c, expression: "object.x("}]}`)).Exceptions
	if _, err := policy.Compile(spec); err != nil {
		t.Errorf("a broken exception: %v", err)
	}

	// What is wrong beside expressions is an error all the same.
	spec.Policies[0].Spec.MatchConstraints = nil
	if _, err := policy.Compile(spec); err == nil {
		t.Error("a policy without matchConstraints is kept")
	}
}

// TestPrevious holds that a policy that has not changed is not compiled again, and
// one that has is.
func TestPrevious(t *testing.T) { //nolint:paralleltest // it counts allocations
	var spec policy.Spec
	const n = 40
	for i := range n {
		one := specOf(t, denyAll(fmt.Sprintf("p%d", i), `validations: [{expression: "object.data.a == 'x'", message: "before"}, {expression: "object.data.a.matches('^b$')"}]`, "validationActions: [Warn]"))
		spec.Policies, spec.Bindings = append(spec.Policies, one.Policies...), append(spec.Bindings, one.Bindings...)
	}
	compiled := func() *policy.Set {
		set, err := policy.Compile(spec)
		must(t, err)
		return set
	}
	first := compiled()
	spec.Policies[7].Spec.Validations[0].Message = "after"
	var second *policy.Set
	whole := testing.AllocsPerRun(1, func() { spec.Previous = nil; second = compiled() })
	if part := testing.AllocsPerRun(1, func() { spec.Previous = first; second = compiled() }); part > whole/4 {
		t.Errorf("compiling allocates %v times, and %v times with one policy changed", whole, part)
	}
	warnings := strings.Join(decide(t, second, review(t, configMap)).Warnings, "\n")
	if strings.Count(warnings, ": before") != n-1 || strings.Count(warnings, ": after") != 1 {
		t.Errorf("got\n%s", warnings)
	}
	if strings.Contains(strings.Join(decide(t, first, review(t, configMap)).Warnings, "\n"), ": after") {
		t.Error("the earlier Set has changed")
	}
	// Another version compiles everything anew.
	spec.Configuration = &policy.Configuration{}
	spec.Configuration.CELCompatibilityVersion = "1.30"
	third := compiled()
	if got := len(decide(t, third, review(t, configMap)).Warnings); got == 0 {
		t.Error("no warnings")
	}
}

// TestCompatibilityVersion holds that the configured version decides which
// functions there are.
func TestCompatibilityVersion(t *testing.T) {
	t.Parallel()
	semver := denyAll("p", `validations: [{expression: "semver('1.2.3').major() == 1"}]`, "")
	version := func(v string) string {
		return `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, celCompatibilityVersion: "` + v + `"}`
	}
	for _, tc := range []struct {
		name, documents string
		want            string
	}{
		{"the default", semver, ""},
		{"an older version", documents(semver, version("1.30")), `"semver" is not declared`},
		{"not a version", documents(semver, version("latest")), `test.yaml#3: PolicyConfiguration: celCompatibilityVersion: "latest" is not a known version (hint: allowed are "1.30" to "1.37")`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.Compile(specOf(t, tc.documents))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestRequestBudget holds that policies cannot spend more on a request than they
// may together, and that the answer names the policy at which it was too much.
func TestRequestBudget(t *testing.T) {
	t.Parallel()
	documents := documents(
		denyAll("a", `validations: [{expression: "lists.range(100).all(x, x >= 0)"}]`, ""),
		denyAll("b", `validations: [{expression: "lists.range(100).all(x, x >= 0)"}]`, ""),
		`{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, requestCostBudget: 700}`)
	response := compile(t, documents).Decide(context.Background(), policy.Input{Request: review(t, configMap)}).Response()
	if got := message(response); verdict(response) != "cannot decide" || got != "the policies for this request cost more than 700, at ValidatingAdmissionPolicy 'b'" {
		t.Errorf("%s: %q", verdict(response), got)
	}
}

// TestAdmissionPolicyBindings holds that an AdmissionPolicy can be bound, with
// params and without, beside actions of its own.
func TestAdmissionPolicyBindings(t *testing.T) {
	t.Parallel()
	policies := func(spec string) string {
		return `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: own}, spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]}, ` + spec + `}}`
	}
	binding := func(spec string) string {
		return `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: bound}, spec: {policyName: own, ` + spec + `}}`
	}
	for _, tc := range []struct{ name, documents, want string }{
		{"bound", documents(policies(`validations: [{expression: "false", message: never}]`), binding("validationActions: [Deny]")), "AdmissionPolicy 'own' with binding 'bound' denied request: never"},
		{
			"bound, and actions of its own", documents(policies(`validationActions: [Deny], validations: [{expression: "false", message: never}]`), binding("validationActions: [Deny]")),
			"2 violations: 1. AdmissionPolicy 'own' denied request: never\n2. AdmissionPolicy 'own' with binding 'bound' denied request: never",
		},
		{
			"params", documents(policies(`paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "false", messageExpression: "string(params.metadata.name)"}]`),
				binding("validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: Deny}"),
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: shop}}`, `{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: shop}}`),
			"2 violations: 1. AdmissionPolicy 'own' with binding 'bound' denied request: one\n2. AdmissionPolicy 'own' with binding 'bound' denied request: two",
		},
		{"not in force", policies(`validations: [{expression: "false"}]`), ""},
		{
			"a kind that is not served", documents(policies(`paramKind: {apiVersion: example.com/v1, kind: Unserved}, validations: [{expression: "false"}]`), binding("validationActions: [Warn], paramRef: {name: x, parameterNotFoundAction: Allow}")),
			`AdmissionPolicy 'own' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Unserved': the kind is not served`,
		},
		{
			"a kind that is not served, and a binding about something else", documents(policies(`paramKind: {apiVersion: example.com/v1, kind: Unserved}, validations: [{expression: "false"}]`), binding("validationActions: [Warn], matchResources: {objectSelector: {matchLabels: {a: b}}}")),
			`AdmissionPolicy 'own' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Unserved': the kind is not served`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := message(decide(t, compile(t, tc.documents), review(t, configMap))); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestIndexByLabels holds that looking policies up by the labels of a namespace or
// an object leaves none out.
func TestIndexByLabels(t *testing.T) {
	t.Parallel()
	selectors := []string{
		"{}", "{matchLabels: {env: prod}}", "{matchLabels: {env: test}}", "{matchLabels: {kubernetes.io/metadata.name: shop}}",
		"{matchLabels: {kubernetes.io/metadata.name: lab, env: prod}}", "{matchExpressions: [{key: env, operator: In, values: [prod, test]}]}",
		"{matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}", "{matchExpressions: [{key: env, operator: Exists}]}",
		"{matchExpressions: [{key: team, operator: DoesNotExist}, {key: env, operator: In, values: [prod]}]}",
	}
	objectSelectors := []string{"{matchLabels: {team: ops}}", "{matchLabels: {team: dev}}", "{matchExpressions: [{key: team, operator: In, values: [ops, dev]}]}", "{matchExpressions: [{key: team, operator: NotIn, values: [ops]}]}"}
	objects := []string{
		configMap, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: lab}}`, labelled, `{apiVersion: v1, kind: Node, metadata: {name: n1}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: unknown}}`,
	}
	context := documents(`{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod, kubernetes.io/metadata.name: shop}}}`, `{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {env: test, team: x, kubernetes.io/metadata.name: lab}}}`)
	var together []string
	var alone []*policy.Set
	for i, selector := range objectSelectors {
		for _, text := range []string{
			denyAll(fmt.Sprintf("o%da", i), "matchConstraints: {objectSelector: "+selector+`, resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}`, ""),
			denyAll(fmt.Sprintf("o%db", i), "", "matchResources: {objectSelector: "+selector+", namespaceSelector: "+selectors[i]+"}"),
		} {
			together = append(together, text)
			alone = append(alone, compile(t, documents(text, context)))
		}
	}
	for i, selector := range selectors {
		name := fmt.Sprintf("p%d", i)
		for _, text := range []string{
			denyAll(name+"a", "matchConstraints: {namespaceSelector: "+selector+`, resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}`, ""),
			denyAll(name+"b", "", "matchResources: {namespaceSelector: "+selector+"}"),
		} {
			together = append(together, text)
			alone = append(alone, compile(t, documents(text, context)))
		}
	}
	all := compile(t, documents(append(together, context)...))
	var requests []admission.Request
	for _, object := range objects {
		requests = append(requests, review(t, object))
	}
	requests = append(requests, review(t, configMap, updating(t, strings.Replace(configMap, "ops", "dev", 1))), review(t, configMap, deleting),
		review(t, `{apiVersion: v1, kind: PodExecOptions, metadata: {labels: {team: ops}}}`, func(r *admission.Request) { r.Operation, r.Namespace = "CONNECT", "shop" }))
	for _, req := range requests {
		want := 0
		for _, set := range alone {
			if !decide(t, set, req).Allowed {
				want++
			}
		}
		got := len(all.Decide(t.Context(), policy.Input{Request: req, Violations: true}).Violations)
		if got != want || want == 0 {
			t.Errorf("%s %s: %d policies refuse it together, %d alone", req.Operation, req.Object.Raw, got, want)
		}
	}
}

// TestWarningsArePrintable holds that no warning is lost on the way to the client
// for its control characters. How many fit is the codec's.
func TestWarningsArePrintable(t *testing.T) {
	t.Parallel()
	set := compile(t, denyAll("p00", `validations: [{expression: "false", messageExpression: "string(object.data.text)"}]`, "validationActions: [Warn]"))
	hostile := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {text: "a\u001b[31m\u0000\u202eb\tc"}}`)
	if got := decide(t, set, hostile).Warnings[0]; got != "Validation failed for ValidatingAdmissionPolicy 'p00' with binding 'p00': a [31m  b c" {
		t.Errorf("got %q", got)
	}
}
