package lint

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// lintBeingDeleted reports match conditions and validations that exempt objects that are being deleted: a finalizer keeps such an
// object, and it can be changed.
//
// An expression is a formula of atoms, the parts that "and", "or", "not" and ?: join. It is reported if there are values of its atoms
// by which a request is refused while the object has no deletionTimestamp, and allowed once it has one. Object and oldObject are
// taken to differ, so that a condition that exempts only updates without a change is not reported.
func (s *subject) lintBeingDeleted() {
	for _, e := range s.expressions {
		if e.role != condition && e.role != validation || !s.reaches(e.plain.AST.Expr(), readsField("deletionTimestamp")) ||
			s.reaches(e.plain.AST.Expr(), readsField("finalizers")) {
			continue
		}
		f := &formulas{policy: s}
		if !f.isSpared(f.of(e, e.plain.AST.Expr()), e.role == condition) {
			continue
		}
		what := "what is being deleted is not checked"
		if e.role == validation {
			what = "what is being deleted may violate it"
		}
		s.reportAt(BeingDeleted, e, e.plain.AST.Expr().ID(),
			"drop the test; where finalizers must be removed, spare only updates that leave spec, labels and annotations as in oldObject",
			"%s: with a finalizer of one's own an object that is being deleted stays, and can be changed", what)
	}
}

const (
	// mostAtoms bounds the combinations of values that are tried, and mostParts the size of a formula. Larger ones are not reported.
	mostAtoms = 10
	mostParts = 1000
)

// formula is a boolean function of the values of atoms, which are bits, and of whether the object has a deletionTimestamp.
type formula func(atoms int, deleted bool) bool

// formulas makes formulas of the expressions of a policy.
type formulas struct {
	policy *subject
	// atoms are the texts of those whose values are tried. deleting reports which of them read the deletionTimestamp.
	atoms    []string
	deleting []bool
	parts    int
}

// of returns the formula of a part of an expression.
func (f *formulas) of(in *expression, e ast.Expr) formula {
	fixed := func(value bool) formula { return func(int, bool) bool { return value } }
	if f.parts++; f.parts > mostParts {
		return fixed(false)
	}
	if v := f.policy.variable(variableOf(e)); v != nil {
		return f.of(v, v.plain.AST.Expr())
	}
	if isCall(e, operators.LogicalAnd) || isCall(e, operators.LogicalOr) || isCall(e, operators.LogicalNot) || isCall(e, operators.Conditional) {
		var args []formula
		for _, arg := range e.AsCall().Args() {
			args = append(args, f.of(in, arg))
		}
		function := e.AsCall().FunctionName()
		return func(atoms int, deleted bool) bool {
			first := args[0](atoms, deleted)
			switch {
			case function == operators.LogicalNot:
				return !first
			case function == operators.LogicalAnd && !first, function == operators.LogicalOr && first:
				return first
			case function == operators.Conditional && !first:
				return args[2](atoms, deleted)
			default:
				return args[1](atoms, deleted)
			}
		}
	}
	if value, ok := f.fixedValue(e); ok {
		return fixed(value)
	}
	deleting := f.policy.reaches(e, readsField("deletionTimestamp"))
	if is, ok := presence(e); ok && deleting {
		return func(_ int, deleted bool) bool { return is == deleted }
	}
	written := unparse(in.plain, e)
	at := slices.Index(f.atoms, written)
	if at < 0 || written == "" {
		at = len(f.atoms)
		f.atoms, f.deleting = append(f.atoms, written), append(f.deleting, deleting)
	}
	return func(atoms int, _ bool) bool { return atoms>>at&1 == 1 }
}

// variable returns the expression of a variable, or nil.
func (s *subject) variable(name string) *expression {
	for _, e := range s.expressions {
		if e.role == variable && e.name == name && name != "" {
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

// fixedValue returns the value of an atom that is the same in each update that changes something.
func (f *formulas) fixedValue(e ast.Expr) (value, ok bool) {
	if e.Kind() == ast.LiteralKind && (e.AsLiteral() == types.True || e.AsLiteral() == types.False) {
		return e.AsLiteral() == types.True, true
	}
	equal := isCall(e, operators.Equals)
	if !equal && !isCall(e, operators.NotEquals) {
		return false, false
	}
	names := func(e ast.Expr, name string) bool {
		return f.policy.reaches(e, func(part ast.Expr) bool { return isIdent(part, name) })
	}
	args := e.AsCall().Args()
	for i, arg := range args {
		other := args[1-i]
		if isNull(other) && (isIdent(arg, plugincel.ObjectVarName) || isIdent(arg, plugincel.OldObjectVarName)) {
			return !equal, true
		}
		if operation, isText := literal(other); isText && path(arg) == plugincel.RequestVarName+".operation" {
			return (operation == "UPDATE") == equal, true
		}
		if names(arg, plugincel.ObjectVarName) && names(other, plugincel.OldObjectVarName) {
			return !equal, true
		}
	}
	return false, false
}

// presence reports whether an atom tests for the presence of something, and its value if that is present.
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

// isSpared reports whether there are values by which a request is refused only if the object has no deletionTimestamp: by a
// condition that is true then, or a validation that is false.
func (f *formulas) isSpared(root formula, isCondition bool) bool {
	if f.parts > mostParts || len(f.atoms) > mostAtoms {
		return false
	}
	for atoms := range 1 << len(f.atoms) {
		turned := atoms
		for i, deleting := range f.deleting {
			if deleting {
				turned ^= 1 << i
			}
		}
		if root(atoms, false) == isCondition && root(turned, true) != isCondition {
			return true
		}
	}
	return false
}
