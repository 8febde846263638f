package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// A ValidatingAdmissionPolicy or binding that the API server refuses to store is one that Gatehouse refuses to use, and
// the other way round: who moves a document from the one to the other must not be surprised.
func TestUpstreamDocuments(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	type (
		policy  = admissionregistrationv1.ValidatingAdmissionPolicy
		binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
		rules   = []admissionregistrationv1.NamedRuleWithOperations
	)
	first := func(p *policy) *admissionregistrationv1.Validation { return &p.Spec.Validations[0] }
	rule := func(p *policy) *admissionregistrationv1.NamedRuleWithOperations {
		return &p.Spec.MatchConstraints.ResourceRules[0]
	}
	condition := func(name, expression string) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition{Name: name, Expression: expression}
	}
	for _, test := range []struct {
		name string
		edit func(*policy, *binding)
	}{
		{"good", func(*policy, *binding) {}},
		{"name", func(p *policy, _ *binding) { p.Name = "Not_A_Name" }},
		{"no validations", func(p *policy, _ *binding) { p.Spec.Validations = nil }},
		{"no expression", func(p *policy, _ *binding) { first(p).Expression = " " }},
		{"syntax", func(p *policy, _ *binding) { first(p).Expression = "object.spec.(" }},
		{"no boolean", func(p *policy, _ *binding) { first(p).Expression = "'text'" }},
		{"unknown name", func(p *policy, _ *binding) { first(p).Expression = "objekt.spec.x == 1" }},
		{"unknown field of the object", func(p *policy, _ *binding) { first(p).Expression = "object.spec.nonsense == 1" }},
		{"unknown field of the request", func(p *policy, _ *binding) { first(p).Expression = "request.nonsense == 1" }},
		{"unknown function", func(p *policy, _ *binding) { first(p).Expression = "isNonsense(object.metadata.name)" }},
		{"quantities", func(p *policy, _ *binding) {
			first(p).Expression = "quantity('1Gi').isGreaterThan(quantity('1Mi')) && isURL('https://x') && ip('::1').family() == 6 && isSemver('1.2.3')"
		}},
		{"params without a kind", func(p *policy, _ *binding) { first(p).Expression = "params.x == 1" }},
		{"kind of params without a kind", func(p *policy, _ *binding) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1"}
		}},
		{"message of two lines", func(p *policy, _ *binding) { first(p).Message = "one\ntwo" }},
		{"blank message", func(p *policy, _ *binding) { first(p).Message = " " }},
		{"expression of a message, no text", func(p *policy, _ *binding) { first(p).MessageExpression = "1 + 1" }},
		{"expression of a message, syntax", func(p *policy, _ *binding) { first(p).MessageExpression = "'a" }},
		{"reason Forbidden", func(p *policy, _ *binding) { first(p).Reason = new(metav1.StatusReasonForbidden) }},
		{"reason RequestEntityTooLarge", func(p *policy, _ *binding) { first(p).Reason = new(metav1.StatusReasonRequestEntityTooLarge) }},
		{"reason Unauthorized", func(p *policy, _ *binding) { first(p).Reason = new(metav1.StatusReasonUnauthorized) }},
		{"reason NotFound", func(p *policy, _ *binding) { first(p).Reason = new(metav1.StatusReasonNotFound) }},
		{"failure policy", func(p *policy, _ *binding) {
			p.Spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("Maybe"))
		}},
		{"match condition", func(p *policy, _ *binding) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a.example/b", "object != null")}
		}},
		{"match condition, name", func(p *policy, _ *binding) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a b", "true")}
		}},
		{"match condition, name twice", func(p *policy, _ *binding) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "true"), condition("a", "true")}
		}},
		{"match condition, syntax", func(p *policy, _ *binding) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "object ==")}
		}},
		{"match condition with a variable", func(p *policy, _ *binding) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: "true"}}
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "variables.a")}
		}},
		{"variables", func(p *policy, _ *binding) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: "1"}, {Name: "b", Expression: "variables.a + 1"}}
			first(p).Expression = "variables.b == 2"
		}},
		{"variable, name", func(p *policy, _ *binding) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "a-b", Expression: "1"}}
		}},
		{"variable, twice", func(p *policy, _ *binding) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: "1"}, {Name: "a", Expression: "2"}}
		}},
		{"variable of a variable behind it", func(p *policy, _ *binding) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "b", Expression: "variables.a + 1"}, {Name: "a", Expression: "1"}}
		}},
		{"variable that is not there", func(p *policy, _ *binding) { first(p).Expression = "variables.a == 1" }},
		{"variable of another type", func(p *policy, _ *binding) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: "'text'"}}
			first(p).Expression = "variables.a > 1"
		}},
		{"audit annotation", func(p *policy, _ *binding) {
			p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'text'"}}
		}},
		{"audit annotation alone", func(p *policy, _ *binding) {
			p.Spec.Validations, p.Spec.AuditAnnotations = nil, []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'text'"}}
		}},
		{"audit annotation, key", func(p *policy, _ *binding) {
			p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "a/b", ValueExpression: "'text'"}}
		}},
		{"audit annotation, key twice", func(p *policy, _ *binding) {
			p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'text'"}, {Key: "a", ValueExpression: "'text'"}}
		}},
		{"audit annotation, number", func(p *policy, _ *binding) {
			p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "1"}}
		}},
		{"no constraints", func(p *policy, _ *binding) { p.Spec.MatchConstraints = nil }},
		{"no rules", func(p *policy, _ *binding) { p.Spec.MatchConstraints.ResourceRules = nil }},
		{"no groups", func(p *policy, _ *binding) { rule(p).APIGroups = nil }},
		{"no operations", func(p *policy, _ *binding) { rule(p).Operations = nil }},
		{"operation", func(p *policy, _ *binding) {
			rule(p).Operations = []admissionregistrationv1.OperationType{"PATCH"}
		}},
		{"all operations and one", func(p *policy, _ *binding) {
			rule(p).Operations = []admissionregistrationv1.OperationType{"*", "CREATE"}
		}},
		{"all groups and one", func(p *policy, _ *binding) { rule(p).APIGroups = []string{"*", "apps"} }},
		{"resources overlap", func(p *policy, _ *binding) { rule(p).Resources = []string{"pods", "pods/*", "*/status"} }},
		{"all resources and one", func(p *policy, _ *binding) { rule(p).Resources = []string{"*", "pods"} }},
		{"scope", func(p *policy, _ *binding) { rule(p).Scope = new(admissionregistrationv1.ScopeType("Node")) }},
		{"resource names", func(p *policy, _ *binding) { rule(p).ResourceNames = []string{"a", "b"} }},
		{"resource names twice", func(p *policy, _ *binding) { rule(p).ResourceNames = []string{"a", "a"} }},
		{"exclude rule", func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.ExcludeResourceRules = rules{{RuleWithOperations: rule(p).RuleWithOperations}}
		}},
		{"match policy", func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.MatchPolicy = new(admissionregistrationv1.MatchPolicyType("Similar"))
		}},
		{"selector", func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
		}},
		{"selector without values", func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}}
		}},

		{"binding, name", func(_ *policy, b *binding) { b.Name = "Not_A_Name" }},
		{"binding, no policy", func(_ *policy, b *binding) { b.Spec.PolicyName = "" }},
		{"binding, no actions", func(_ *policy, b *binding) { b.Spec.ValidationActions = nil }},
		{"binding, action", func(_ *policy, b *binding) {
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{"Log"}
		}},
		{"binding, actions twice", func(_ *policy, b *binding) {
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{"Deny", "Deny"}
		}},
		{"binding, actions that exclude each other", func(_ *policy, b *binding) {
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{"Deny", "Warn"}
		}},
		{"binding, params by name and selector", func(_ *policy, b *binding) {
			b.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "a", Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
		}},
		{"binding, params by nothing", func(_ *policy, b *binding) {
			b.Spec.ParamRef = &admissionregistrationv1.ParamRef{ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
		}},
		{"binding, params and nothing to do without", func(_ *policy, b *binding) {
			b.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "a"}
		}},
		{"binding, selector with a wrong value", func(_ *policy, b *binding) {
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := policy{
				TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
				ObjectMeta: metav1.ObjectMeta{Name: "documents"},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
					MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
					}}}},
					Validations: []admissionregistrationv1.Validation{{Expression: "object != null"}},
				},
			}
			b := binding{
				TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: "documents"},
				Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "documents", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
			}
			test.edit(&p, &b)

			_, policyErr := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &p, dryRun)
			_, bindingErr := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &b, dryRun)
			native := errors.Join(policyErr, bindingErr)
			findings, err := lint(t, &p, &b)
			if (native != nil) != (err != nil) {
				t.Errorf("the API server says: %v\ngatehouse lint says: %v\n%s", native, err, findings)
			}
		})
	}
}

// lint runs 'gatehouse lint' on documents. Its error says that there are errors in them.
func lint(t *testing.T, documents ...any) (string, error) {
	t.Helper()
	dir := t.TempDir()
	texts := make([]string, 0, len(documents))
	for _, document := range documents {
		text, err := yaml.Marshal(document)
		must(t, err)
		texts = append(texts, string(text))
	}
	must(t, os.WriteFile(filepath.Join(dir, "documents.yaml"), []byte(strings.Join(texts, "---\n")), 0o600))
	findings, err := gatehouse.Run(t.Context(), "lint", "--config", dir)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	return findings, err
}
