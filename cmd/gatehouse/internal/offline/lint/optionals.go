package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// lintOptionals reports functions of optional values that are called on others. Until cel-go 0.27 (Kubernetes 1.36) orValue and or
// returned such a value. Since then they fail when the policy is evaluated, but not when it is compiled.
func (s *subject) lintOptionals() {
	for _, e := range s.expressions {
		walk(e.plain.AST.Expr(), func(part ast.Expr) {
			if !isCallOnPlainValue(e.plain, part) {
				return
			}
			call := part.AsCall()
			target := unparse(e.plain, call.Target())
			before := "in every version of Kubernetes"
			if name := call.FunctionName(); name == "orValue" || name == "or" {
				before = "here and from Kubernetes 1.37 on, where versions before gave the value itself"
			}
			s.reportAt(OrValue, e, part.ID(), optionalHint(call.Target(), target), "%s is no optional value, so %s is an error %s",
				quoted(target), call.FunctionName(), before)
		})
	}
}

// optionalHint returns how the target of a call is written as an optional value.
func optionalHint(target ast.Expr, written string) string {
	if target.Kind() != ast.SelectKind || written == "" {
		return "write optional.of(…), or drop the call"
	}
	dot := strings.LastIndexByte(written, '.')
	if dot < 0 {
		return "write .? before the field that may be absent"
	}
	return "write " + written[:dot] + ".?" + written[dot+1:]
}

// isCallOnPlainValue reports whether a part of an expression calls a function of optional values on a value that cannot be one.
func isCallOnPlainValue(c typecheck.Checked, part ast.Expr) bool {
	if part.Kind() != ast.CallKind || !part.AsCall().IsMemberFunction() {
		return false
	}
	call := part.AsCall()
	if !slices.Contains([]string{"orValue", "or", "hasValue", "value"}, call.FunctionName()) {
		return false
	}
	target := call.Target()
	t := c.AST.GetType(target.ID())
	return t != nil && t.Kind() == types.DynKind && root(target) != "" && variableOf(target) == "" && !isOptionalChain(target)
}

// isOptionalChain reports whether a chain of fields and elements has an optional one, which makes all of it optional.
func isOptionalChain(e ast.Expr) bool {
	for {
		switch {
		case e.Kind() == ast.SelectKind:
			e = e.AsSelect().Operand()
		case isCall(e, operators.Index):
			e = e.AsCall().Args()[0]
		default:
			return isCall(e, operators.OptIndex) || isCall(e, operators.OptSelect)
		}
	}
}

// isOnPlainValue reports whether lintOptionals reports a part of an expression.
func isOnPlainValue(e *expression, id int64) bool {
	return contains(e.plain.AST.Expr(), func(part ast.Expr) bool { return part.ID() == id && isCallOnPlainValue(e.plain, part) })
}
