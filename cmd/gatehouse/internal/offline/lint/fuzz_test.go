package lint_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// FuzzExpressions lints policies with any expression, as a rule and as a variable
// that the rule uses. What is found is the same each time.
func FuzzExpressions(f *testing.F) {
	f.Add("object.metadata.labels['a'] == 'b' && has(object.spec.nodeName)", "pods")
	f.Add("object.spec.template.spec.containers.all(c, c.image.matches(c.name)) || true", "deployments")
	f.Add("oldObject.?spec.orValue({}) == variables.v && [1, 2].first().hasValue()", "pods/exec")
	f.Add("object.spec.replicas.orValue(1) > 2 ? {'a': [?object.?b]}.a[0] : dyn(\"\u00e9\n\")", "*")
	f.Add("!(request.namespace in ['a']) && authorizer.requestResource.check('x').allowed()", "Pods")
	f.Add("{1: 2}.all(k, v, k < v) && object == null && lists.range(5).sum() == cel.bind(x, 1, x)", "")
	f.Add("optional.of(1)"+strings.Repeat(".optMap(x, x)", 40)+".hasValue()", "pods")
	f.Add("object.spec.containers"+strings.Repeat(".map(a, {a: a})", 40)+" == []", "pods")
	f.Add("{'a': object.metadata, 'b': object.metadata}"+strings.Repeat(".transformMap(k, v, {v: v})", 40)+" == {}", "pods")
	f.Add("'a'"+strings.Repeat(".matches('^a{1,900}b') && 'a'", 40)+" == 'a'", "pods")
	f.Fuzz(func(t *testing.T, expression, resource string) {
		spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
				{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE", "DELETE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"", "apps"}, APIVersions: []string{"v1"}, Resources: []string{resource}},
				}},
			}},
			MatchConditions:  []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}},
			Variables:        []admissionregistrationv1.Variable{{Name: "v", Expression: expression}},
			Validations:      []admissionregistrationv1.Validation{{Expression: expression}, {Expression: "variables.v == (" + expression + ")"}},
			AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: expression}},
		}
		in := lint.Input{Now: now(), Policy: policy.Spec{Policies: []policy.Policy{
			{ValidatingAdmissionPolicy: admissionregistrationv1.ValidatingAdmissionPolicy{Spec: spec}},
		}}}
		first, err := lint.Lint(in)
		must(t, err)
		second, err := lint.Lint(in)
		if err != nil || !slices.Equal(first, second) {
			t.Errorf("%v\nand\n%v, %v", first, second, err)
		}
	})
}
