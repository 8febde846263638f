package lint_test

import (
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

func TestSelectors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		selector string
		finds    bool
	}{
		"two values of one label":             {"{matchLabels: {a: x}, matchExpressions: [{key: a, operator: In, values: [y, z]}]}", true},
		"one value in common":                 {"{matchLabels: {a: x}, matchExpressions: [{key: a, operator: In, values: [x, z]}]}", false},
		"every value excluded":                {"{matchExpressions: [{key: a, operator: In, values: [x, y]}, {key: a, operator: NotIn, values: [x]}, {key: a, operator: NotIn, values: [y]}]}", true},
		"a value left":                        {"{matchExpressions: [{key: a, operator: In, values: [x, y]}, {key: a, operator: NotIn, values: [x, z]}]}", false},
		"there and not there":                 {"{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}", true},
		"a value and not there":               {"{matchLabels: {a: x}, matchExpressions: [{key: a, operator: DoesNotExist}]}", true},
		"not a value and not there":           {"{matchExpressions: [{key: a, operator: NotIn, values: [x]}, {key: a, operator: DoesNotExist}]}", false},
		"what contradicts is of other labels": {"{matchLabels: {a: x, b: y}, matchExpressions: [{key: c, operator: DoesNotExist}]}", false},
		"everything":                          {"{}", false},
		"one that Compile refuses":            {"{matchLabels: {a: x}, matchExpressions: [{key: a, operator: in, values: [x]}, {key: a, operator: In, values: []}]}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, field := range []string{"objectSelector", "namespaceSelector"} {
				found := lintText(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: b}\nspec:\n  policyName: p\n"+
					"  validationActions: [Deny]\n  matchResources:\n    "+field+": "+c.selector+"\n")
				want := ""
				if c.finds {
					want = "AdmissionPolicyBinding/b: spec.matchResources." + field +
						`: selects nothing: what it requires of label "a" contradicts itself (hint: drop one of the requirements) [selector]`
				}
				if found != want {
					t.Errorf("got\n%s\nwant\n%s", found, want)
				}
			}
		})
	}
}

func TestNamespaceSelectors(t *testing.T) {
	t.Parallel()
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: prod}}\n---\n"
	for name, c := range map[string]struct{ namespaces, selector, want string }{
		"by label":              {namespace, "{matchLabels: {env: prod}}", ""},
		"by name":               {namespace, "{matchLabels: {kubernetes.io/metadata.name: shop}}", ""},
		"all but some":          {namespace, "{matchExpressions: [{key: env, operator: NotIn, values: [dev]}]}", ""},
		"everything":            {namespace, "{}", ""},
		"no namespace is known": {"", "{matchLabels: {env: dev}}", ""},
		"a name that is not known": {
			namespace, "{matchLabels: {kubernetes.io/metadata.name: shp}}",
			`selects none of the namespaces here (hint: did you mean "kubernetes.io/metadata.name=shop"?) [namespace-selector]`,
		},
		"nothing near": {namespace, "{matchExpressions: [{key: tier, operator: Exists}]}", `selects none of the namespaces here [namespace-selector]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lintText(t, c.namespaces+"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n"+
				"spec: {validations: [{expression: 'false', message: m}], matchConstraints: {namespaceSelector: "+c.selector+", resourceRules: ["+podRule+"]}}\n")
			if c.want != "" {
				c.want = "ValidatingAdmissionPolicy/p: spec.matchConstraints.namespaceSelector: " + c.want
			}
			if found != c.want {
				t.Errorf("got\n%s\nwant\n%s", found, c.want)
			}
		})
	}
}

func TestExclusion(t *testing.T) {
	t.Parallel()
	const rule = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/status], scope: Namespaced}"
	for exclusion, want := range map[string]bool{
		rule: true,
		"{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}":                               true,
		"{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ['*', '*/status']}":            true,
		"{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}":                       false,
		"{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: ['*/*']}":                              false,
		"{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: ['*/*']}":                               false,
		"{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: ['*/*'], scope: Cluster}":                 false,
		"{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: ['*/*'], resourceNames: [a]}":             false,
		"{apiGroups: [''], apiVersions: [v1beta1], operations: ['*'], resources: ['*/*']}":                            false,
		"{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, '*/status', pods/log]}": true,
	} {
		found := lintText(t, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n"+
			"spec: {validations: [{expression: 'false', message: m}], matchConstraints: {resourceRules: ["+rule+"], excludeResourceRules: ["+exclusion+"]}}\n")
		found = strings.Join(strings.FieldsFunc(found, func(r rune) bool { return r == '\n' }), "\n")
		if got := strings.Contains(found, "[excluded]"); got != want {
			t.Errorf("%s: got %v, want %v: %s", exclusion, got, want, found)
		}
	}
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n"
	for name, c := range map[string]struct{ spec, want string }{
		"just expired": {`expiresAt: "2026-11-20T12:00:00Z"`, "spec.expiresAt: the exception expired at 2026-11-20T12:00:00Z and does nothing"},
		"in an hour":   {`expiresAt: "2026-11-20T14:30:00+01:00"`, "spec.expiresAt: the exception expires at 2026-11-20T13:30:00Z, in 1 hour"},
		"in a day":     {`expiresAt: "2026-11-22T11:00:00Z"`, "spec.expiresAt: the exception expires at 2026-11-22T11:00:00Z, in 1 day"},
		"in two weeks": {`expiresAt: "2026-12-04T12:00:00Z"`, "spec.expiresAt: the exception expires at 2026-12-04T12:00:00Z, in 14 days"},
		"later":        {`expiresAt: "2026-12-04T12:00:01Z"`, ""},
		"never":        {"reason: r", ""},
		"selectors": {
			"match: {objectSelector: {matchLabels: {a: x}, matchExpressions: [{key: a, operator: DoesNotExist}]}, namespaceSelector: {matchLabels: {env: dev}}}",
			`spec.match.namespaceSelector: selects none of the namespaces here [namespace-selector]
spec.match.objectSelector: selects nothing: what it requires of label "a" contradicts itself`,
		},
		"namespaces": {
			"match: {namespaces: [shop, 'sh*p', Shop, my_shop]}",
			`spec.match.namespaces[1]: no namespace can be named "sh*p", so this never matches
spec.match.namespaces[2]: no namespace can be named "Shop", so this never matches
spec.match.namespaces[3]: no namespace can be named "my_shop", so this never matches`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lintText(t, namespace+"apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: e, namespace: ns}\nspec: {"+c.spec+", policies: [{name: p}]}\n")
			lines := strings.Split(found, "\n")
			for i, line := range lines {
				lines[i], _, _ = strings.Cut(strings.TrimPrefix(line, "PolicyException/ns/e: "), " (hint: ")
			}
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
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
		"a literal":                         {"{name: q}", "quantity('x').isLessThan(quantity('1'))", `1:9 in "quantity('x').isLessThan(quantity('1'))": quantity("x") fails`},
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

// TestIgnored leaves diagnostics out by their codes, and reports codes that there
// are not.
func TestIgnored(t *testing.T) {
	t.Parallel()
	const spec = "\nspec:\n  matchConstraints: {resourceRules: [" + podRule + "]}\n  validations: [{expression: object.spec.hostIPC}]\n"
	for annotation, want := range map[string]string{
		"missing-message":                   "optional-field",
		"optional-field , missing-message,": "",
		"optional-field,mising-message":     "unknown-code missing-message",
		"*":                                 "unknown-code optional-field missing-message",
	} {
		found, err := lint.Lint(read(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata:\n  name: p\n  annotations:\n    "+
			v1alpha1.LintIgnoreAnnotation+": '"+annotation+"'"+spec))
		must(t, err)
		codes := make(map[string]bool)
		for _, f := range found {
			codes[f.Code] = true
			if f.Source != "a.yaml" || f.Object != "AdmissionPolicy/p" {
				t.Errorf("a diagnostic about %s: %s", f.Source, f.Object)
			}
		}
		if len(codes) != len(strings.Fields(want)) {
			t.Errorf("%q: got %v, want %s", annotation, codes, want)
		}
		for code := range strings.FieldsSeq(want) {
			if !codes[code] {
				t.Errorf("%q: got %v, want %s", annotation, codes, want)
			}
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
	in.Policy.Bindings[0].Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
	}}
	found, err := lint.Lint(in)
	if err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestHostileExpressions has expressions that would cost much if they were
// evaluated: were one evaluated, the test would not end before its timeout.
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
