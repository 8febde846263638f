package lint

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// lintNullObjects reports fields of object, which is null on DELETE, and of oldObject, which is null on CREATE and CONNECT, if the
// policy matches such requests and does not test for null.
func (s *subject) lintNullObjects() {
	for _, v := range []struct {
		name, other string
		null        []operation
	}{
		{plugincel.ObjectVarName, plugincel.OldObjectVarName, []operation{admissionregistrationv1.Delete}},
		{
			plugincel.OldObjectVarName, plugincel.ObjectVarName,
			[]operation{admissionregistrationv1.Create, admissionregistrationv1.Connect},
		},
	} {
		all := s.operations()
		null := slices.DeleteFunc(slices.Clone(all), func(o operation) bool { return !slices.Contains(v.null, o) })
		if len(null) == 0 {
			continue
		}
		hint := "write " + v.name + " == null || …, or request.operation == …"
		if len(null) == len(all) {
			hint = "use " + v.other
		}
		var first *expression
		others := 0
		for _, e := range s.expressions {
			if e.member(v.name) == nil || e.role == message || s.testsNull(e, v.name) {
				continue
			}
			if first == nil {
				first = e
			} else {
				others++
			}
		}
		if first == nil {
			continue
		}
		also := ""
		if others > 0 {
			also = fmt.Sprintf("; the same holds for %s", diagnostic.Count(others, "other expression"))
		}
		s.reportAt(NullObject, first, first.member(v.name).ID(), hint, "%s is null on %s, so the expression fails, and %s%s",
			v.name, operationList(null), s.consequence(), also)
	}
}

// consequence returns what becomes of a request when an expression fails.
func (s *subject) consequence() string {
	if *s.spec.FailurePolicy == admissionregistrationv1.Ignore {
		return "what it checks is not checked"
	}
	return "the request is refused"
}

// member returns the first field of a variable that the expression reads, or nil. A test for a field of null is false, and no
// error.
func (e *expression) member(name string) ast.Expr {
	return first(e.plain.AST.Expr(), func(part ast.Expr) bool {
		return part.Kind() == ast.SelectKind && !part.AsSelect().IsTestOnly() && isIdent(part.AsSelect().Operand(), name) ||
			isCall(part, operators.Index) && isIdent(part.AsCall().Args()[0], name)
	})
}

// testsNull reports whether the policy tests the operation, or the variable for null or a field, before or in the expression. A
// variable may be used only where that was tested.
func (s *subject) testsNull(e *expression, name string) bool {
	recognise := func(part ast.Expr) bool {
		if path(part) == "request.operation" ||
			part.Kind() == ast.SelectKind && part.AsSelect().IsTestOnly() && isIdent(part.AsSelect().Operand(), name) {
			return true
		}
		if !isCall(part, operators.Equals) && !isCall(part, operators.NotEquals) {
			return false
		}
		args := part.AsCall().Args()
		return isIdent(args[0], name) && isNull(args[1]) || isIdent(args[1], name) && isNull(args[0])
	}
	if e.role != variable {
		return s.mentions(e, recognise)
	}
	return slices.ContainsFunc(s.expressions, func(other *expression) bool { return s.mentions(other, recognise) })
}

func isNull(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.NullValue
}

// lintNamespaceObjects reports match conditions that read namespaceObject, which is null in all of them.
func (s *subject) lintNamespaceObjects() {
	for _, e := range s.expressions {
		if e.role != condition {
			continue
		}
		if read := first(e.plain.AST.Expr(), func(part ast.Expr) bool { return isIdent(part, plugincel.NamespaceVarName) }); read != nil {
			s.reportAt(NamespaceObject, e, read.ID(), "write a namespaceSelector, or ask in the validations",
				"namespaceObject is always null in match conditions, also that of a request in a namespace")
		}
	}
}

// lintMessages reports messages of ValidatingAdmissionPolicies with control characters: for these the API server drops the whole warning.
func (s *subject) lintMessages() {
	if !strings.HasPrefix(s.object, "ValidatingAdmissionPolicy/") {
		return
	}
	report := func(at *field.Path) {
		s.warn(DroppedWarning, at, "write spaces", "the message has a control character, for which the API server drops the whole warning")
	}
	for i := range s.spec.Validations {
		if strings.ContainsFunc(s.spec.Validations[i].Message, unicode.IsControl) {
			report(field.NewPath("spec", "validations").Index(i).Child("message"))
		}
	}
	for _, e := range s.expressions {
		if e.role == message && contains(e.parsed.NativeRep().Expr(), func(part ast.Expr) bool {
			if part.Kind() != ast.LiteralKind {
				return false
			}
			text, isText := part.AsLiteral().Value().(string)
			return isText && strings.ContainsFunc(text, unicode.IsControl)
		}) {
			report(e.path)
		}
	}
}
