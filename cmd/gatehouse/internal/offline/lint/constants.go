package lint

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// lintConstants reports conditions and validations that do not depend on the request.
// A validation that is always false is not among them: it is how a policy refuses
// everything that it matches.
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

// fold returns the value of a part of an expression that has the same one for every
// request. What has no names in it is evaluated, once and within the API server's
// cost limit; of logical operators one side may be enough.
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

// hasHugeExponent reports whether a literal has an exponent of three digits or more.
// The parser of quantities computes what such a number is, for minutes.
func hasHugeExponent(e ast.Expr) bool {
	found := false
	walk(e, func(part ast.Expr) {
		value, isText := literal(part)
		found = found || isText && hugeExponent.MatchString(value)
	})
	return found
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
	found := false
	walk(e, func(part ast.Expr) {
		found = found || part.Kind() == ast.IdentKind && !local[strings.TrimPrefix(part.AsIdent(), ".")]
	})
	return found
}
