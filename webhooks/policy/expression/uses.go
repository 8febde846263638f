package expression

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Uses are the names that an expression mentions.
type Uses uint8

// The names. UsesAuthorizer stands for authorizer.requestResource too.
const (
	UsesObject Uses = 1 << iota
	UsesOldObject
	UsesRequest
	UsesNamespace
	UsesParams
	UsesAuthorizer
	UsesVariables
	// UsesUser is set with UsesRequest if of the request more may be looked at
	// than what it is about: its kind, resource and subresource, those that it was
	// made for, and the namespace and name. What else there is, such as the
	// operation, the user and the options, is of who asks and how.
	UsesUser
)

// Has reports whether one of the names is mentioned.
func (u Uses) Has(names Uses) bool { return u&names != 0 }

// costBounds bound what an expression can cost.
type costBounds struct {
	// nodes is how many parts the expression has.
	nodes int
	// bounded is true if no part is evaluated twice and each costs at most one
	// and a tenth of the length of its arguments.
	bounded bool
	// loops is true if a part may be evaluated more than once.
	loops bool
	// limited is true if it calls a function that has a limit.
	limited bool
}

// analyze returns the names that an expression mentions, and what bounds its cost. A name that a comprehension declares hides
// none of those here, but is taken for one, which errs on the safe side.
func analyze(root ast.Expr) (uses Uses, s costBounds) {
	s.bounded = true
	requests, subjects := 0, 0
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		s.nodes++
		switch e.Kind() {
		case ast.IdentKind:
			of := usesOf(e.AsIdent())
			if uses |= of; of == UsesRequest {
				requests++
			}
		case ast.ComprehensionKind:
			s.bounded, s.loops = false, true
		case ast.CallKind:
			function := e.AsCall().FunctionName()
			s.limited = s.limited || isLimited(e.AsCall())
			s.bounded = s.bounded && isBounded(function)
		case ast.SelectKind:
			if selected := e.AsSelect(); isRequest(selected.Operand()) && isSubject(selected.FieldName()) {
				subjects++
			}
		case ast.LiteralKind, ast.ListKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		}
	}))
	if requests > subjects {
		uses |= UsesUser
	}
	if uses.Has(UsesVariables) {
		// What they cost is counted with what asks for them.
		s.bounded, s.loops = false, true
	}
	return uses, s
}

// usesOf returns what a name stands for. A leading dot makes a name absolute.
func usesOf(name string) Uses {
	name = strings.TrimPrefix(name, ".")
	switch name {
	case plugincel.ObjectVarName:
		return UsesObject
	case plugincel.OldObjectVarName:
		return UsesOldObject
	case plugincel.RequestVarName:
		return UsesRequest
	case plugincel.NamespaceVarName:
		return UsesNamespace
	case plugincel.ParamsVarName:
		return UsesParams
	case plugincel.VariableVarName:
		return UsesVariables
	case plugincel.AuthorizerVarName, plugincel.RequestResourceAuthorizerVarName:
		return UsesAuthorizer
	default:
		return 0
	}
}

func isRequest(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && usesOf(e.AsIdent()) == UsesRequest
}

// isSubject reports whether a field of the request says what it is about.
func isSubject(field string) bool {
	switch field {
	case "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "namespace", "name":
		return true
	default:
		return false
	}
}

// isBounded reports whether a function costs at most one and a tenth of the length
// of its arguments, as most of cel-go's own do.
func isBounded(function string) bool {
	switch function {
	case operators.Add, operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot,
		operators.Equals, operators.NotEquals, operators.Index, operators.OptIndex, operators.OptSelect,
		"string", "int", "startsWith", "endsWith", "orValue", "hasValue", "size":
		return true
	default:
		return false
	}
}
