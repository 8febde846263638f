package lint

import (
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// lintConstants reports conditions and validations that do not depend on the request, but for validations that are always false:
// they refuse everything that the policy matches.
func (s *subject) lintConstants() {
	for _, e := range s.expressions {
		if e.role != condition && e.role != validation {
			continue
		}
		value, constant := fold(s.linter.checker.Env, e.plain, e.plain.AST.Expr())
		switch {
		case !constant:
		case e.role == condition && value:
			s.report(Constant, e, "drop the condition", "is always true")
		case e.role == condition:
			s.report(Constant, e, "drop the policy, or the condition", "is always false, so the policy is never evaluated")
		case value:
			s.report(Constant, e, "", "is always true, so nothing violates it")
		}
	}
}

// fold returns the value of a part of an expression that is the same for every request. What has no names in it is evaluated,
// within the API server's cost limit.
func fold(env *cel.Env, c typecheck.Checked, e ast.Expr) (value, constant bool) {
	switch {
	case isCall(e, operators.LogicalOr), isCall(e, operators.LogicalAnd):
		decisive, all := isCall(e, operators.LogicalOr), true
		for _, side := range e.AsCall().Args() {
			v, known := fold(env, c, side)
			if known && v == decisive {
				return decisive, true
			}
			all = all && known
		}
		return !decisive, all
	case isCall(e, operators.LogicalNot):
		v, known := fold(env, c, e.AsCall().Args()[0])
		return !v, known
	case e.Kind() == ast.LiteralKind:
		v, isBool := e.AsLiteral().(types.Bool)
		return bool(v), isBool
	case dependsOnRequest(e), hasHugeExponent(e):
		return false, false
	}
	out, err := evaluate(env, c, e)
	if err != nil {
		return false, false
	}
	v, isBool := out.(types.Bool)
	return bool(v), isBool
}

// evaluate returns the value of a part of an expression that names nothing.
func evaluate(env *cel.Env, c typecheck.Checked, e ast.Expr) (ref.Val, error) {
	program, err := env.PlanProgram(ast.NewCheckedAST(ast.NewAST(e, c.AST.SourceInfo()), c.AST.TypeMap(), c.AST.ReferenceMap()))
	if err != nil {
		return nil, err
	}
	out, _, err := program.Eval(cel.NoVars())
	return out, err
}

// hasHugeExponent reports whether a literal has an exponent of three digits or more. The parser of quantities would compute it
// for minutes.
func hasHugeExponent(e ast.Expr) bool {
	return contains(e, func(part ast.Expr) bool {
		value, isText := literal(part)
		return isText && hugeExponent.MatchString(value)
	})
}

var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3,}`)

// dependsOnRequest reports whether an expression names anything but the elements of
// its own loops.
func dependsOnRequest(e ast.Expr) bool {
	local := map[string]bool{}
	walk(e, func(part ast.Expr) {
		if part.Kind() == ast.ComprehensionKind {
			c := part.AsComprehension()
			local[c.IterVar()], local[c.IterVar2()], local[c.AccuVar()] = true, true, true
		}
	})
	return contains(e, func(part ast.Expr) bool { return part.Kind() == ast.IdentKind && !local[root(part)] })
}
