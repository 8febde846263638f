package lint

import (
	"slices"

	"github.com/google/cel-go/common/ast"
)

// lintLiterals reports functions that fail for the literals they are given, such as
// quantity("1 GB"): they fail for every request that comes to them.
func (s *subject) lintLiterals() {
	for _, e := range s.expressions {
		walk(e.plain.AST.Expr(), func(part ast.Expr) {
			if part.Kind() != ast.CallKind || !hasOnlyLiterals(part.AsCall()) || hasHugeExponent(part) {
				return
			}
			if _, err := evaluate(s.linter.checker.Env, e.plain, part); err != nil {
				s.reportAt(InvalidLiteral, e, part.ID(), "", "%s fails whenever it is evaluated: %s", unparse(e.plain, part), err)
			}
		})
	}
}

// hasOnlyLiterals reports whether a function has arguments, and all are literals. Of
// those whose literals Compile looks at it is false.
func hasOnlyLiterals(call ast.CallExpr) bool {
	if slices.Contains([]string{"duration", "timestamp", "matches"}, call.FunctionName()) {
		return false
	}
	args := call.Args()
	if call.IsMemberFunction() {
		args = append(slices.Clone(args), call.Target())
	}
	return len(args) > 0 && !slices.ContainsFunc(args, func(arg ast.Expr) bool { return arg.Kind() != ast.LiteralKind })
}
