package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// podChange is a subresource by which fields of a pod change that no request for pods changes.
type podChange struct {
	subresource, effect string
	// fields are those of a container that it sets.
	fields []string
}

// podChanges returns those that a policy on pods can overlook.
func podChanges() []podChange {
	return []podChange{
		{"pods/resize", "an update of pods never changes resources; a running pod can be resized", []string{"resources"}},
		{"pods/ephemeralcontainers", "a running pod can get ephemeral containers", []string{"image", "privileged", "capabilities", "allowPrivilegeEscalation"}},
	}
}

// lintSubresources reports validations about containers of pods that do not see the subresources by which containers change.
func (s *subject) lintSubresources() {
	pods := slices.IndexFunc(s.kinds, func(k typecheck.Kind) bool { return k.Group == "" && k.Kind == "Pod" })
	at := s.podsRule()
	if pods < 0 || at == nil {
		return
	}
	for _, change := range podChanges() {
		if s.linter.matches(change.subresource) {
			continue
		}
		i := slices.IndexFunc(s.expressions, func(e *expression) bool {
			return (e.role == validation || e.role == variable) && contains(e.kinds[pods].AST.Expr(), func(part ast.Expr) bool {
				return change.isRead(e.kinds[pods], part)
			})
		})
		if i >= 0 {
			s.warn(Subresource, at, "write a rule with operations: [UPDATE] and resources: ["+change.subresource+"]",
				"%s is matched without %s: %s, which %s does not see", quoted("pods"), quoted(change.subresource), change.effect, s.expressions[i].path)
		}
	}
}

// podsRule returns the path of the first rule that matches pods that are created or updated, or nil.
func (s *subject) podsRule() *field.Path {
	if s.spec.MatchConstraints == nil {
		return nil
	}
	for i := range s.spec.MatchConstraints.ResourceRules {
		rule := &s.spec.MatchConstraints.ResourceRules[i]
		if k := slices.Index(rule.Resources, "pods"); k >= 0 && slices.ContainsFunc(rule.Operations, func(o operation) bool {
			return o == admissionregistrationv1.Create || o == admissionregistrationv1.Update || o == admissionregistrationv1.OperationAll
		}) {
			return field.NewPath("spec", "matchConstraints", "resourceRules").Index(i).Child("resources").Index(k)
		}
	}
	return nil
}

// matches reports whether a policy matches updates of a subresource.
func (l *linter) matches(subresource string) bool {
	_, name, _ := strings.Cut(subresource, "/")
	all := []string{subresource, "pods/*", "*/*", "*/" + name}
	matched := func(m *admissionregistrationv1.MatchResources) bool {
		return m != nil && slices.ContainsFunc(m.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.ContainsFunc(rule.Resources, func(r string) bool { return slices.Contains(all, r) }) &&
				slices.ContainsFunc(rule.Operations, func(o operation) bool {
					return o == admissionregistrationv1.Update || o == admissionregistrationv1.OperationAll
				})
		})
	}
	for i := range l.in.Policy.Policies {
		if matched(l.in.Policy.Policies[i].Spec.MatchConstraints) {
			return true
		}
	}
	for i := range l.in.Policy.AdmissionPolicies {
		if matched(l.in.Policy.AdmissionPolicies[i].Spec.MatchConstraints) {
			return true
		}
	}
	return false
}

// isRead reports whether a part of an expression reads one of the fields of a container, or of its security context.
func (c podChange) isRead(checked typecheck.Checked, part ast.Expr) bool {
	var operand ast.Expr
	var name string
	switch {
	case part.Kind() == ast.SelectKind:
		operand, name = part.AsSelect().Operand(), part.AsSelect().FieldName()
	case isCall(part, operators.OptSelect):
		operand = part.AsCall().Args()[0]
		name, _ = literal(part.AsCall().Args()[1])
	default:
		return false
	}
	t := checked.Structure(operand)
	return t != nil && slices.Contains(c.fields, name) &&
		(t.Name == "core/v1.Container" || t.Name == "core/v1.EphemeralContainer" || t.Name == "core/v1.SecurityContext")
}
