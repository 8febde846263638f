package lint_test

import (
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

func TestExpired(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"2026-11-20T12:00:00Z":      "PolicyException/ns/e: spec.expiresAt: the exception expired at 2026-11-20T12:00:00Z and does nothing (hint: remove the exception) [expired]",
		"2026-11-20T13:00:01+01:00": "",
	} {
		found := lintText(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: e, namespace: ns}\nspec: {expiresAt: \""+at+"\", policies: [{name: p}]}\n")
		if found != want {
			t.Errorf("%s: got %s, want %s", at, found, want)
		}
	}
}

func TestBaselineEnds(t *testing.T) {
	t.Parallel()
	const entry = "shop/Deployment/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for name, c := range map[string]struct{ at, entries, want string }{
		"expired":                {"2026-11-20T12:00:00Z", entry, "the baseline expired at 2026-11-20T12:00:00Z and does nothing (hint: remove the baseline) [expired]"},
		"soon":                   {"2026-12-04T11:59:59Z", entry, "the baseline expires at 2026-12-04T11:59:59Z with 1 violation left in it (hint: gatehouse audit --baseline FILE reports what is left to mend) [expires-soon]"},
		"in more than two weeks": {"2026-12-04T12:00:00Z", entry, ""},
		"nothing is left":        {"2026-11-21T12:00:00Z", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lintText(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: b, namespace: ns}\nspec: {reason: r, expiresAt: \""+c.at+"\", rules: [{kind: AdmissionPolicy, policy: p, rule: r, entries: ["+c.entries+"]}]}\n")
			if got := strings.TrimPrefix(found, "PolicyBaseline/ns/b: spec.expiresAt: "); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", found, c.want)
			}
		})
	}
}

// TestExceptionConditions checks the match conditions of an exception against the
// kinds of the policies that it names.
func TestExceptionConditions(t *testing.T) {
	t.Parallel()
	policies := with("", validations("request.name != ''")) + "---\n" +
		"apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: apps}\nspec:\n  matchConstraints: {resourceRules: [" +
		"{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}\n  " +
		strings.ReplaceAll(validations("request.name != ''"), "\n", "\n  ") + "\n---\n"
	const labels = `1:16 in "object.metadata.labls.x == 'y'": for `
	for name, c := range map[string]struct{ policies, condition, want string }{
		"a field that there is not":         {"{name: p}", "object.metadata.labls.x == 'y'", labels + "v1 Pod: "},
		"for two kinds":                     {"{name: p}, {name: apps}", "object.metadata.labls.x == 'y'", labels + "v1 Pod, apps/v1 Deployment: "},
		"of a policy of another kind":       {"{name: p, kind: AdmissionPolicy}", "object.metadata.labls.x == 'y'", ""},
		"of a policy that is not known":     {"{name: q}", "object.metadata.labls.x == 'y'", ""},
		"a field that one of the kinds has": {"{name: p}, {name: apps}", "object.kind == 'Pod' && object.spec.hostNetwork", ""},
		"one that does not compile":         {"{name: p}", "objct.metadata.labls", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lintText(t, policies+"apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: e, namespace: ns}\nspec: {policies: ["+c.policies+
				"], match: {matchConditions: [{name: c, expression: \""+c.condition+"\"}]}}\n")
			got, about := strings.CutPrefix(found, "PolicyException/ns/e: spec.match.matchConditions[0].expression: ")
			if about != (c.want != "") || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("got\n%s\nwant\n%s", found, c.want)
			}
		})
	}
}

// TestIgnored leaves diagnostics out by their codes.
func TestIgnored(t *testing.T) {
	t.Parallel()
	const spec = "\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods, pod]}]}\n  validations: [{expression: object.spec.hostIPC}]\n"
	for annotation, want := range map[string]string{
		"":                                   "unknown-resource optional-field",
		"optional-field, other":              "unknown-resource",
		"optional-field , unknown-resource,": "",
	} {
		found, err := lint.Lint(read(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata:\n  name: p\n  annotations:\n    "+
			v1alpha1.LintIgnoreAnnotation+": '"+annotation+"'"+spec))
		must(t, err)
		var codes []string
		for _, f := range found {
			codes = append(codes, f.Code)
			if f.Source != "a.yaml" || f.Object != "AdmissionPolicy/p" {
				t.Errorf("a diagnostic about %s: %s", f.Source, f.Object)
			}
		}
		if got := strings.Join(codes, " "); got != want {
			t.Errorf("%q: got %s, want %s", annotation, got, want)
		}
	}
}

// TestCustomResources checks expressions against a CustomResourceDefinition among
// the documents.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/widgets.yaml")
	must(t, err)
	definition := string(text)
	const rule = "{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}"
	for expression, want := range map[string]string{
		"object.spec.size > 3 && object.metadata.name != '' && object.kind == 'Widget'": "",
		"object.spec.parts.all(p, p.name != '') && object.spec.labels.x == 'y'":         "",
		"object.spec.port == 80 || object.spec.port == 'http'":                          "",
		"object.spec.ratio > 1 && object.spec.since != ''":                              "",
		"object.spec.anything.b.c == 1":                                                 "",
		"object.spec.pod.metadata.name != '' && object.spec.pod.spec.a == 'b'":          "",
		"object.spec.sise > 3":                  `1:12 in "object.spec.sise > 3": for example.com/v1 Widget: there is no field "sise" in example.com/v1.Widget.spec (hint: did you mean "size"?) [type]`,
		"object.spec.size == 'big'":             `1:18 in "object.spec.size == 'big'": for example.com/v1 Widget: found no matching overload for "_==_" applied to "(int, string)" [type]`,
		"object.spec.parts.all(p, p.nam != '')": `1:27 in "object.spec.parts.all(p, p.nam != '')": for example.com/v1 Widget: there is no field "nam" in example.com/v1.Widget.spec.parts.items (hint: did you mean "name"?) [type]`,
		"object.metadata.label == {}":           `1:16 in "object.metadata.label == {}": for example.com/v1 Widget: there is no field "label" in meta/v1.ObjectMeta (hint: did you mean "labels"?) [type]`,
		"object.spec.pod.spec.b == 'b'":         `1:21 in "object.spec.pod.spec.b == 'b'": for example.com/v1 Widget: there is no field "b" in example.com/v1.Widget.spec.pod.spec (hint: did you mean "a"?) [type]`,
	} {
		if got := strings.TrimSuffix(bare(lintText(t, definition+with(rule, validations(expression)))), "\n"); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", expression, got, want)
		}
	}
	got := bare(lintText(t, definition+with("{apiGroups: [example.com], apiVersions: [v2], operations: [CREATE], resources: [widget]}", validations("request.name != ''"))))
	const want = `API group "example.com" has no version "v2" (hint: did you mean "v1"?) [unknown-resource]
API group "example.com" has no resource "widget", so this never matches (hint: did you mean "widgets"?) [unknown-resource]
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestBroken lints what Compile refuses, and says nothing of that again.
func TestBroken(t *testing.T) {
	t.Parallel()
	in := lint.Input{Now: now(), Policy: policy.Spec{
		Policies: []policy.Policy{{}, {ValidatingAdmissionPolicy: admissionregistrationv1.ValidatingAdmissionPolicy{
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				ParamKind:        &admissionregistrationv1.ParamKind{},
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: make([]admissionregistrationv1.NamedRuleWithOperations, 1), ExcludeResourceRules: make([]admissionregistrationv1.NamedRuleWithOperations, 1)},
				MatchConditions:  []admissionregistrationv1.MatchCondition{{}, {Expression: "object."}, {Expression: "unknown == 1"}},
				Variables:        []admissionregistrationv1.Variable{{}, {Name: "v", Expression: "1 +"}, {Name: "w", Expression: "variables.x"}},
				Validations:      []admissionregistrationv1.Validation{{}, {Expression: "  "}, {Expression: "variables.v && nothing", Message: "m"}},
				AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{}},
			},
		}}},
		Bindings:                []policy.Binding{{}},
		AdmissionPolicies:       []policy.AdmissionPolicy{{}},
		AdmissionPolicyBindings: []policy.AdmissionPolicyBinding{{}},
		Exceptions:              []policy.Exception{{}},
	}}
	found, err := lint.Lint(in)
	if err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestHostileExpressions has expressions that would cost much if they were
// evaluated.
func TestHostileExpressions(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"lists.range(1000000000).size() > 0",
		"quantity('1e2000000000').isGreaterThan(quantity('1e-2000000000'))",
		"'" + strings.Repeat("a", 5000) + "'.find('(a+)+b') == '' && quantity('" + strings.Repeat("9", 5000) + "').isInteger()",
		"lists.range(100000).all(i, lists.range(100000).all(j, i != j))",
		"[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, [1,2,3,4,5,6,7,8,9].all(h, a+b+c+d+e+f+g+h > 0))))))))",
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200),
		strings.Repeat("!", 200) + "object.metadata.name",
		"object" + strings.Repeat(".a", 5000) + " == 1",
		strings.Repeat("object.metadata.name == 'a' || ", 1000) + "false",
	} {
		lintText(t, with("", validations(expression)))
	}
}

// TestOperations expects for each resource the operations that there are for it,
// by the paths of the OpenAPI documents of Kubernetes 1.37.
func TestOperations(t *testing.T) {
	t.Parallel()
	const core, authorization, certificates = "", "authorization.k8s.io", "certificates.k8s.io"
	for _, c := range []struct{ group, resource, operations string }{
		{core, "pods", "CREATE UPDATE DELETE"},
		{core, "pods/attach", "CONNECT"},
		{core, "pods/binding", "CREATE"},
		{core, "pods/ephemeralcontainers", "UPDATE"},
		{core, "pods/eviction", "CREATE"},
		{core, "pods/exec", "CONNECT"},
		{core, "pods/log", ""},
		{core, "pods/portforward", "CONNECT"},
		{core, "pods/proxy", "CONNECT"},
		{core, "pods/resize", "UPDATE"},
		{core, "pods/status", "UPDATE"},
		{core, "bindings", "CREATE"},
		{core, "componentstatuses", ""},
		{core, "namespaces/finalize", "UPDATE"},
		{core, "nodes/proxy", "CONNECT"},
		{core, "replicationcontrollers/scale", "UPDATE"},
		{core, "serviceaccounts/token", "CREATE"},
		{core, "services/proxy", "CONNECT"},
		{authorization, "localsubjectaccessreviews", "CREATE"},
		{authorization, "subjectaccessreviews", "CREATE"},
		{certificates, "certificatesigningrequests/approval", "UPDATE"},
	} {
		for _, operation := range []string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
			found := lintText(t, with("{apiGroups: ['"+c.group+"'], apiVersions: [v1], operations: ["+operation+"], resources: ["+c.resource+"]}", validations("request.name != ''")))
			never := strings.Contains(found, "so this never matches "+operation)
			if has := strings.Contains(c.operations, operation); has == never {
				t.Errorf("%s %s: got %q", operation, c.resource, found)
			}
		}
	}
}
