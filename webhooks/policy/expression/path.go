package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
)

// path is a variable and the names of members in it, as object.spec.containers, or whether the last of them is there, as
// has(c.image). In values of webhooks/cel/value it finds the member itself, at a third of the time that cel-go takes. Everything
// else, errors included, is left to cel-go.
type path struct {
	interpreter.InterpretableAttribute
	variable string
	members  []string
	// presence is true if the value is whether the last member is there.
	presence bool
}

// Exec returns the value.
func (p *path) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value, ok := frame.ResolveName(p.variable)
	for i, name := range p.members {
		if !ok {
			break
		}
		var isObject bool
		value, ok, isObject = celvalue.Member(value, name)
		if isObject && p.presence && i == len(p.members)-1 {
			return types.Bool(ok)
		}
	}
	if of, isValue := value.(ref.Val); ok && isValue {
		return of
	}
	return p.InterpretableAttribute.Exec(frame)
}

// pathsOf returns the paths in an expression, without their attributes, by the id of their last member.
func pathsOf(checked *ast.AST) map[int64]path {
	paths := map[int64]path{}
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		reference := checked.ReferenceMap()[e.ID()]
		switch e.Kind() {
		case ast.IdentKind:
			// A leading dot is for a variable that another one of the same name hides.
			if name := e.AsIdent(); reference != nil && reference.Value == nil && reference.Name == name && !strings.HasPrefix(name, ".") {
				paths[e.ID()] = path{variable: name}
			}
		case ast.SelectKind:
			s := e.AsSelect()
			of, ok := paths[s.Operand().ID()]
			delete(paths, s.Operand().ID()) // this one goes further
			kind := checked.GetType(s.Operand().ID()).Kind()
			if ok && reference == nil && !of.presence && (kind == types.DynKind || kind == types.MapKind) {
				paths[e.ID()] = path{variable: of.variable, members: append(slices.Clip(of.members), s.FieldName()), presence: s.IsTestOnly()}
			}
		case ast.CallKind:
			switch c := e.AsCall(); c.FunctionName() {
			case operators.Index, operators.OptIndex, operators.OptSelect:
				delete(paths, c.Args()[0].ID()) // cel-go adds what follows to the attribute
			}
		case ast.ComprehensionKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		}
	}))
	maps.DeleteFunc(paths, func(_ int64, p path) bool { return len(p.members) == 0 })
	return paths
}

// findPaths has the paths of an expression found by path. Nothing may observe the plan.
func findPaths(checked *ast.AST) func(interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	paths := pathsOf(checked)
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		p, found := paths[i.ID()]
		attribute, ok := i.(interpreter.InterpretableAttribute)
		if !found || !ok {
			return i, nil
		}
		p.InterpretableAttribute = attribute
		return &p, nil
	}
}
