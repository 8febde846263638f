package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// podChange is a subresource by which fields of a pod change that no request for pods changes.
type podChange struct {
	subresource, effect string
	// fields are those of a container that it sets.
	fields []string
	// function is one that reads values of the fields, or "": a resize can change quantities, and not remove them.
	function string
}

// podChanges returns those that a policy on pods can overlook.
func podChanges() []podChange {
	return []podChange{
		{"pods/resize", "an update of pods never changes resources; a running pod can be resized", []string{"resources"}, "quantity"},
		{"pods/ephemeralcontainers", "a running pod can get ephemeral containers", []string{"image", "privileged", "capabilities", "allowPrivilegeEscalation"}, ""},
	}
}

// lintSubresources reports policies on containers of pods that do not see the subresources by which containers change.
func (s *subject) lintSubresources() {
	pods := slices.IndexFunc(s.kinds, func(k typecheck.Kind) bool { return k.Group == "" && k.Kind == "Pod" })
	at := ruleFor(s.spec.MatchConstraints, "pods")
	if pods < 0 || at == nil {
		return
	}
	for _, change := range podChanges() {
		i := slices.IndexFunc(s.expressions, func(e *expression) bool {
			checked := e.kinds[pods]
			return (e.role == validation || e.role == variable) &&
				contains(checked.AST.Expr(), func(part ast.Expr) bool { return change.isRead(checked, part) }) &&
				(change.function == "" || contains(checked.AST.Expr(), func(part ast.Expr) bool { return isCall(part, change.function) }))
		})
		if i >= 0 && !s.linter.matches(change.subresource) {
			s.warn(Subresource, at, "write a rule with operations: [UPDATE] and resources: ["+change.subresource+"]",
				"%s is matched without %s: %s, which %s does not see", quoted("pods"), quoted(change.subresource), change.effect, s.expressions[i].path)
		}
	}
}

// matches reports whether any policy matches a subresource of pods.
func (l *linter) matches(subresource string) bool {
	all := []string{subresource, "pods/*", "*/*", strings.Replace(subresource, "pods", "*", 1)}
	return slices.ContainsFunc(l.policies, func(p policy.Any) bool { return ruleFor(p.Spec.MatchConstraints, all...) != nil })
}

// ruleFor returns the path of the first one of some resources in a rule that matches their creation or updates, or nil.
func ruleFor(m *admissionregistrationv1.MatchResources, resources ...string) *field.Path {
	if m == nil {
		return nil
	}
	for i := range m.ResourceRules {
		k := slices.IndexFunc(m.ResourceRules[i].Resources, func(r string) bool { return slices.Contains(resources, r) })
		if k >= 0 && slices.ContainsFunc(m.ResourceRules[i].Operations, func(o operation) bool {
			return o == admissionregistrationv1.Create || o == admissionregistrationv1.Update || o == admissionregistrationv1.OperationAll
		}) {
			return field.NewPath("spec", "matchConstraints", "resourceRules").Index(i).Child("resources").Index(k)
		}
	}
	return nil
}

// isRead reports whether a part of an expression reads one of the fields of a container, or of its security context.
func (c podChange) isRead(checked typecheck.Checked, part ast.Expr) bool {
	operand, name, _, ok := selection(part)
	if !ok {
		return false
	}
	t := checked.Structure(operand)
	return t != nil && slices.Contains(c.fields, name) &&
		(t.Name == "core/v1.Container" || t.Name == "core/v1.EphemeralContainer" || t.Name == "core/v1.SecurityContext")
}
