package expression

import (
	"strings"

	"github.com/google/cel-go/common/ast"
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
	// UsesUser is set with UsesRequest if the expression may read more of the request
	// than its kind, resource and subresource, those that were requested, and the namespace
	// and name: such as the operation, the user or the options.
	UsesUser
)

// Has reports whether one of the names is mentioned.
func (u Uses) Has(names Uses) bool { return u&names != 0 }

// analyze returns the names that an expression mentions, and whether a part of it may be
// evaluated more than once. A name that a comprehension declares hides none of those here,
// but is taken for one, which errs on the safe side.
func analyze(root ast.Expr) (uses Uses, loops bool) {
	requests, subjects := 0, 0
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			of := usesOf(e.AsIdent())
			if uses |= of; of == UsesRequest {
				requests++
			}
		case ast.ComprehensionKind:
			loops = true
		case ast.SelectKind:
			if selected := e.AsSelect(); isRequest(selected.Operand()) && isSubject(selected.FieldName()) {
				subjects++
			}
		case ast.CallKind, ast.LiteralKind, ast.ListKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		}
	}))
	if requests > subjects {
		uses |= UsesUser
	}
	return uses, loops || uses.Has(UsesVariables)
}

// usesOf returns the flag of a name. A leading dot makes a name absolute.
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

// isSubject reports whether a field of the request identifies the object.
func isSubject(field string) bool {
	switch field {
	case "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "namespace", "name":
		return true
	default:
		return false
	}
}
