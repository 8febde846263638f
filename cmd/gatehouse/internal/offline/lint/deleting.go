package lint

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// lintBeingDeleted reports match conditions and validations that exempt objects that are being deleted: a finalizer keeps such an
// object, and it can be changed. In a condition that is a test for deletionTimestamp under an odd number of negations, in a validation
// under an even one. An expression that compares object with oldObject, or reads finalizers, is taken to exempt only updates without
// other changes.
func (s *subject) lintBeingDeleted() {
	for _, e := range s.expressions {
		root := e.plain.AST.Expr()
		if e.role != condition && e.role != validation || s.reaches(root, readsField("finalizers")) || s.reaches(root, s.comparesObjects) {
			continue
		}
		if !s.exempts(root, e.role == condition, nil) {
			continue
		}
		what := "what is being deleted is not checked"
		if e.role == validation {
			what = "what is being deleted may violate it"
		}
		s.reportAt(BeingDeleted, e, root.ID(),
			"drop the test; where finalizers must be removed, spare only updates that leave spec, labels and annotations as in oldObject",
			"%s: with a finalizer of one's own an object that is being deleted stays, and can be changed", what)
	}
}

// exempts reports whether a part of a boolean expression tests for the presence of deletionTimestamp under an even number of
// negations, or an odd one. Seen are the variables that the part is in.
func (s *subject) exempts(e ast.Expr, odd bool, seen []string) bool {
	if name := variableOf(e); name != "" && !slices.Contains(seen, name) {
		v := s.variable(name)
		return v != nil && s.exempts(v.plain.AST.Expr(), odd, append(seen, name))
	}
	if isCall(e, operators.LogicalNot) {
		return s.exempts(e.AsCall().Args()[0], !odd, seen)
	}
	if isCall(e, operators.LogicalAnd) || isCall(e, operators.LogicalOr) {
		return slices.ContainsFunc(e.AsCall().Args(), func(arg ast.Expr) bool { return s.exempts(arg, odd, seen) })
	}
	if isCall(e, operators.Conditional) {
		args := e.AsCall().Args()
		if is, ok := presence(args[0]); ok && s.reaches(args[0], readsField("deletionTimestamp")) {
			chosen := args[2]
			if is {
				chosen = args[1]
			}
			return chosen.Kind() != ast.LiteralKind || chosen.AsLiteral() != types.Bool(odd) // that is no exemption
		}
		return slices.ContainsFunc(args[1:], func(arg ast.Expr) bool { return s.exempts(arg, odd, seen) })
	}
	is, ok := presence(e)
	return ok && is != odd && s.reaches(e, readsField("deletionTimestamp"))
}

// comparesObjects recognises a comparison of a part of object with one of oldObject.
func (s *subject) comparesObjects(e ast.Expr) bool {
	if !isCall(e, operators.Equals) && !isCall(e, operators.NotEquals) {
		return false
	}
	names := func(e ast.Expr, name string) bool {
		return s.reaches(e, func(part ast.Expr) bool { return isIdent(part, name) })
	}
	args := e.AsCall().Args()
	return names(args[0], plugincel.ObjectVarName) && names(args[1], plugincel.OldObjectVarName) ||
		names(args[1], plugincel.ObjectVarName) && names(args[0], plugincel.OldObjectVarName)
}

// variable returns the expression of a variable, or nil.
func (s *subject) variable(name string) *expression {
	for _, e := range s.expressions {
		if e.role == variable && e.name == name {
			return e
		}
	}
	return nil
}

// reaches reports whether an expression, or a variable that it reads, has a part that the function recognises.
func (s *subject) reaches(e ast.Expr, recognise func(ast.Expr) bool) bool {
	var seen []string
	var reach func(part ast.Expr) bool
	reach = func(part ast.Expr) bool {
		name := variableOf(part)
		if recognise(part) || name == "" || slices.Contains(seen, name) {
			return recognise(part)
		}
		seen = append(seen, name)
		v := s.variable(name)
		return v != nil && contains(v.plain.AST.Expr(), reach)
	}
	return contains(e, reach)
}

// readsField recognises a field by its name, however it is written.
func readsField(field string) func(ast.Expr) bool {
	return func(e ast.Expr) bool {
		name, isText := literal(e)
		return isText && name == field || e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == field
	}
}

// presence reports whether a part of an expression tests for the presence of something, and its value if that is present.
func presence(e ast.Expr) (is, ok bool) {
	switch {
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly(), isCall(e, "hasValue"):
		return true, true
	case isCall(e, operators.In):
		_, isText := literal(e.AsCall().Args()[0])
		return true, isText
	case isCall(e, operators.Equals), isCall(e, operators.NotEquals):
		for _, arg := range e.AsCall().Args() {
			if isNull(arg) || isCall(arg, "optional.none") {
				return isCall(e, operators.NotEquals), true
			}
		}
	}
	return false, false
}
