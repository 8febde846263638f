package policy_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/request"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// named is a policy whose second and third rule have names, and which every ConfigMap of TestRuleNames violates.
func named() string {
	return own(`validations: [{expression: "object.data.a == 'x'", message: a}, {name: b-is-x, expression: "object.data.b == 'x'", message: b},
  {name: c-is-x, expression: "object.data.c == 'x'", message: c}]`)
}

// TestRuleNames has exceptions that name rules by name and by index, and where answers name the rules.
func TestRuleNames(t *testing.T) {
	t.Parallel()
	const object = `{apiVersion: v1, kind: ConfigMap, metadata: {name: legacy, namespace: shop}, data: {a: w, b: w, c: w}}`
	except := func(rules string) string {
		return exceptionOf("gatehouse-system", `policies: [{name: own, rules: [`+rules+`]}], match: {namespaces: [shop]}`)
	}
	const by = " by gatehouse-system/x; "
	for name, c := range map[string]struct{ documents, outcomes, audit, causes string }{
		"no exception": {
			named(), "Violated validations[0]; Violated validations[b-is-x]; Violated validations[c-is-x]",
			"", "validations[0] validations[b-is-x] validations[c-is-x]",
		},
		"by name": {
			documents(named(), except(`"validations[b-is-x]"`)), "Violated validations[0]; Excepted validations[b-is-x]" + by + "Violated validations[c-is-x]",
			"gatehouse-system/x:own/validations[b-is-x]", "validations[0] validations[c-is-x]",
		},
		"by index of a rule with a name": {
			documents(named(), except(`"validations[1]"`)), "Violated validations[0]; Excepted validations[b-is-x]" + by + "Violated validations[c-is-x]",
			"gatehouse-system/x:own/validations[b-is-x]", "validations[0] validations[c-is-x]",
		},
		"by index and name": {
			documents(named(), except(`"validations[0]", "validations[c-is-x]"`)),
			"Excepted validations[0]" + by + "Violated validations[b-is-x]; Excepted validations[c-is-x] by gatehouse-system/x",
			"gatehouse-system/x:own/validations[0], gatehouse-system/x:own/validations[c-is-x]", "validations[b-is-x]",
		},
		"a rule inserted before it": {
			documents(strings.Replace(named(), "validations: [", `validations: [{expression: "object.data.z != 'x'", message: z}, `, 1), except(`"validations[b-is-x]"`)),
			"Failed validations[0]; Violated validations[1]; Excepted validations[b-is-x]" + by + "Violated validations[c-is-x]",
			"gatehouse-system/x:own/validations[b-is-x]", "validations[0] validations[1] validations[c-is-x]",
		},
		"of a ValidatingAdmissionPolicy of the same name": {
			documents(named(), denyAll("own", "", ""), except(`"validations[b-is-x]"`)),
			"Violated validations[0]; Violated validations[0]; Excepted validations[b-is-x]" + by + "Violated validations[c-is-x]",
			"gatehouse-system/x:own/validations[b-is-x]", "validations[0] validations[0] validations[c-is-x]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, req := compile(t, c.documents), review(t, object)
			if got := outcomes(set.Decide(t.Context(), policy.Input{Request: req, Violations: true})); got != c.outcomes {
				t.Errorf("got %q, want %q", got, c.outcomes)
			}
			response := decide(t, set, req)
			if got := response.AuditAnnotations[policy.ExceptedByKey]; got != c.audit {
				t.Errorf("audit %q, want %q", got, c.audit)
			}
			var causes []string
			for _, cause := range response.Result.Details.Causes {
				if string(cause.Type) != cause.Field {
					t.Errorf("cause %+v", cause)
				}
				causes = append(causes, cause.Field)
			}
			if got := strings.Join(causes, " "); got != c.causes {
				t.Errorf("causes %q, want %q", got, c.causes)
			}
			response.UID = req.UID
			reviewed := &admissionv1.AdmissionReview{Response: &response.AdmissionResponse}
			reviewed.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
			if _, err := request.VerifyAdmissionResponse(req.UID, false, reviewed); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRuleIsNamedAnew gives a rule another name, and nothing else, between two configurations.
func TestRuleIsNamedAnew(t *testing.T) {
	t.Parallel()
	before := compile(t, named())
	spec := specOf(t, strings.ReplaceAll(named(), "b-is-x", "other"))
	spec.Previous = before
	after, err := policy.Compile(spec)
	must(t, err)
	req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: x, b: w, c: x}}`)
	for want, set := range map[string]*policy.Set{"Violated validations[b-is-x]": before, "Violated validations[other]": after} {
		if got := outcomes(set.Decide(t.Context(), policy.Input{Request: req, Violations: true})); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestHasRule has which names a violation answers to.
func TestHasRule(t *testing.T) {
	t.Parallel()
	req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: w, b: w, c: x}}`)
	found := compile(t, named()).Decide(t.Context(), policy.Input{Request: req, Violations: true}).Violations
	for i, want := range [][]string{{"validations[0]"}, {"validations[1]", "validations[b-is-x]"}} {
		var got []string
		for _, rule := range []string{"", "validations[0]", "validations[1]", "validations[b-is-x]", "b-is-x"} {
			if found[i].HasRule(rule) {
				got = append(got, rule)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("violation %d has rules %v, want %v", i, got, want)
		}
	}
}

func TestRuleNameDiagnostics(t *testing.T) {
	t.Parallel()
	const x = "test.yaml#2: PolicyException/gatehouse-system/x: spec.policies[0].rules[0]: the policy has no rule "
	const list = ` (hint: there are validations[0], validations[b-is-x], validations[c-is-x])`
	const checks = `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: own}, spec: {podSecurity: {level: baseline}, validationActions: [Deny],
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}}}`
	for name, c := range map[string]struct{ policy, rule, want string }{
		"a typing error":      {named(), "validations[b-is-y]", `error: ` + x + `"validations[b-is-y]" (hint: did you mean "validations[b-is-x]"?)`},
		"only the name":       {named(), "b-is-x", ""},
		"only a wrong name":   {named(), "b-is-y", `error: ` + x + `"b-is-y" (hint: did you mean "validations[b-is-x]"?)`},
		"something else":      {named(), "validations[memory-limit]", `error: ` + x + `"validations[memory-limit]"` + list},
		"only an index":       {named(), "0", `error: ` + x + `"0"` + list},
		"an index, still":     {named(), "validations[2]", ""},
		"an index too many":   {named(), "validations[3]", `warning: ` + x + `"validations[3]"` + list},
		"leading zeros":       {named(), "validations[00]", `error: ` + x + `"validations[00]"` + list},
		"a bare check":        {checks, "hostPorts", `error: ` + x + `"hostPorts" (hint: did you mean "podSecurity.hostPorts"?)`},
		"a later check":       {checks, "podSecurity.somethingElse", `warning: ` + x + `"podSecurity.somethingElse"`},
		"a part of a policy":  {named(), "matchConditions", `error: ` + x + `"matchConditions"` + list},
		"of an upstream rule": {denyAll("own", "", ""), "validations[a]", `error: ` + x + `"validations[a]" (hint: there are validations[0])`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exception := exceptionOf("gatehouse-system", `policies: [{name: own, rules: ["`+c.rule+`"]}], match: {namespaces: [shop]}`)
			if c.policy == denyAll("own", "", "") {
				c.want = strings.Replace(c.want, "#2", "#3", 1) // there is a binding
			}
			if got := strings.Join(lines(diagnosticsOf(t, documents(c.policy, exception))), "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestExceptionByBareName holds that the name of a rule alone means the rule.
func TestExceptionByBareName(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{"validations[b-is-x]": "Excepted validations[b-is-x] by gatehouse-system/x", "b-is-x": "Excepted validations[b-is-x] by gatehouse-system/x", "c-is-x": "Violated validations[b-is-x]"} {
		set := compile(t, documents(named(), exceptionOf("gatehouse-system", `policies: [{name: own, rules: ["`+rule+`"]}], match: {namespaces: [shop]}`)))
		req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: x, b: w, c: x}}`)
		if got := outcomes(set.Decide(t.Context(), policy.Input{Request: req, Violations: true})); got != want {
			t.Errorf("%s: got %q, want %q", rule, got, want)
		}
	}
}

// TestExceptionWithUnknownNameExemptsNothing holds that such an exception has no effect where the rest is kept, as in a cluster.
func TestExceptionWithUnknownNameExemptsNothing(t *testing.T) {
	t.Parallel()
	spec := specOf(t, documents(named(), exceptionOf("gatehouse-system", `policies: [{name: own, rules: ["validations[0]", "validations[gone]"]}], match: {namespaces: [shop]}`)))
	spec.KeepBroken = true
	set, err := policy.Compile(spec)
	must(t, err)
	if set.Warnings().Err() == nil {
		t.Error("no error")
	}
	req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: w, b: x, c: x}}`)
	if got := outcomes(set.Decide(t.Context(), policy.Input{Request: req, Violations: true})); got != "Violated validations[0]" {
		t.Errorf("got %q", got)
	}
}
