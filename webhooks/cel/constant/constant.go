// Package constant finds conditions that are the same whatever they are asked about.
package constant

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
)

// maxCost bounds what the evaluation of a part may cost, so that nobody makes work by writing policies.
const maxCost = 10_000

// Language is what an expression is written in.
type Language struct {
	// IsVariable reports whether a name is one of a variable, whose value is not known.
	IsVariable func(name string) bool
	// Evaluate evaluates a checked expression without variables. Its result is nil if that fails.
	Evaluate func(*ast.AST) ref.Val
}

// IsFalse reports whether a checked expression is certainly false. As in constant folding, parts without variables are evaluated, and
// the others may be anything.
func (l Language) IsFalse(checked *ast.AST) bool {
	value, known := l.valueOf(checked, checked.Expr())
	return known && !value
}

// valueOf returns the value of a boolean part of an expression, if it is known.
func (l Language) valueOf(checked *ast.AST, e ast.Expr) (value, known bool) {
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalNot:
			value, known = l.valueOf(checked, call.Args()[0])
			return !value, known
		case operators.LogicalAnd, operators.LogicalOr:
			// The one decides whatever the other is, even an error.
			decides, all := call.FunctionName() == operators.LogicalOr, true
			for _, arg := range call.Args() {
				value, known = l.valueOf(checked, arg)
				if known && value == decides {
					return value, true
				}
				all = all && known
			}
			return !decides, all
		}
	}
	if !l.isConstant(e) {
		return false, false
	}
	part := ast.NewCheckedAST(ast.NewAST(e, checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
	cost, _ := celcost.Of(part, func(string) (celcost.Value, bool) { return celcost.Value{}, false })
	if !cost.IsFinite() || cost.At(&celcost.Sizes{}) > maxCost {
		return false, false
	}
	result, known := l.Evaluate(part).(types.Bool)
	return bool(result), known
}

// isConstant reports whether an expression names no variable.
func (l Language) isConstant(e ast.Expr) bool {
	constant := true
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		constant = constant && (e.Kind() != ast.IdentKind || !l.IsVariable(e.AsIdent()))
	}))
	return constant
}
