package typecheck

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// mostMixed bounds how often an expression is checked again.
const mostMixed = 10

// checkMixed checks an expression in which lists of different structures may be added to each other, or be alternatives: as in
// containers + ephemeralContainers, which are maps for the API server. Elements of the result have the fields of both. CEL has no such
// types, so the operator is checked as a function that is declared for the two.
func (s *Scope) checkMixed(parsed *cel.Ast) (*ast.AST, []*common.Error) {
	functions := map[int64]string{} // in place of operators, by their ids
	for {
		copied := ast.Copy(parsed.NativeRep())
		written := rename(copied, functions)
		typed, issues := checker.Check(copied, parsed.Source(), s.env)
		rename(typed, written)
		found := len(functions)
		for _, issue := range issues.GetErrors() {
			if name, ok := s.mixed(typed, issue.ExprID); ok && functions[issue.ExprID] == "" {
				functions[issue.ExprID] = name
			}
		}
		if len(functions) == found || found >= mostMixed {
			return typed, issues.GetErrors()
		}
	}
}

// rename changes the functions of calls, and returns what they were.
func rename(in *ast.AST, names map[int64]string) map[int64]string {
	before := map[int64]string{}
	if len(names) == 0 {
		return before
	}
	ast.PostOrderVisit(in.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, ok := names[e.ID()]; ok && e.Kind() == ast.CallKind {
			before[e.ID()] = e.AsCall().FunctionName()
			e.SetKindCase(ast.NewExprFactory().NewCall(e.ID(), name, e.AsCall().Args()...))
		}
	}))
	return before
}

// mixed returns the function for a call that mixes lists of structures, which it declares.
func (s *Scope) mixed(typed *ast.AST, id int64) (string, bool) {
	var call ast.CallExpr
	ast.PreOrderVisit(typed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id && e.Kind() == ast.CallKind {
			call = e.AsCall()
		}
	}))
	if call == nil || call.FunctionName() != operators.Add && call.FunctionName() != operators.Conditional {
		return "", false
	}
	const two = 2
	args := call.Args()[len(call.Args())-two:]
	left, right := s.element(typed.GetType(args[0].ID())), s.element(typed.GetType(args[1].ID()))
	if left == nil || right == nil || left == right {
		return "", false
	}
	name := "gatehouse.mixed(" + call.FunctionName() + left.Name + ", " + right.Name + ")"
	if !s.declared[name] {
		sum := either(left, right)
		s.sums[sum.Name], s.declared[name] = sum, true
		params := []*types.Type{types.NewListType(left.cel()), types.NewListType(right.cel())}
		if call.FunctionName() == operators.Conditional {
			params = append([]*types.Type{types.BoolType}, params...)
		}
		f, err := decls.NewFunction(name, decls.Overload(name, params, types.NewListType(sum.cel())))
		if err != nil || s.env.AddFunctions(f) != nil {
			return "", false
		}
	}
	return name, true
}

// element returns the structure that the elements of a list are, nil for none.
func (s *Scope) element(list *types.Type) *Type {
	if list == nil || list.Kind() != types.ListKind || list.Parameters()[0].Kind() != types.StructKind {
		return nil
	}
	return s.provider().structure(list.Parameters()[0].TypeName())
}

// provider knows the structures of the scope.
func (s *Scope) provider() provider {
	return provider{Provider: s.checker.Env.CELTypeProvider(), structures: s.checker.schemas.goTypes.structures, sums: s.sums, variables: s.variables}
}

// either returns the structure of what is one of two: with the fields of both, of any type where the two differ.
func either(left, right *Type) *Type {
	const or = " or "
	names := append(strings.Split(left.Name, or), strings.Split(right.Name, or)...)
	slices.Sort(names)
	out := &Type{Name: strings.Join(slices.Compact(names), or), Fields: map[string]Field{}}
	for _, of := range []*Type{left, right} {
		for name, f := range of.Fields {
			if known, ok := out.Fields[name]; ok && !known.Type.cel().IsExactType(f.Type.cel()) {
				f.Type = plain(types.DynType)
			}
			out.Fields[name] = f
		}
	}
	return out
}
