package expression

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Uses are the names that an expression mentions.
type Uses uint16

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
	// UsesUserInfo and those below are what UsesUser stands for, by the fields of the request.
	// UsesAllOfRequest is an expression that uses the request itself.
	UsesUserInfo
	UsesOperation
	UsesOptions
	UsesDryRun
	UsesAllOfRequest
	// UsesName is set with UsesRequest if the expression reads request.name.
	UsesName
)

// Has reports whether one of the names is mentioned.
func (u Uses) Has(names Uses) bool { return u&names != 0 }

// OfRequest returns, in a fixed order, what of the names depends on how and by whom a request is
// made, and is not known of an object that exists: as "request.userInfo", "oldObject" and
// "authorizer".
func (u Uses) OfRequest() []string {
	var out []string
	for _, one := range [...]struct {
		uses Uses
		name string
	}{
		{UsesUserInfo, "request.userInfo"},
		{UsesOperation, "request.operation"},
		{UsesOptions, "request.options"},
		{UsesDryRun, "request.dryRun"},
		{UsesAllOfRequest, "request"},
		{UsesOldObject, plugincel.OldObjectVarName},
		{UsesAuthorizer, plugincel.AuthorizerVarName},
	} {
		if u.Has(one.uses) {
			out = append(out, one.name)
		}
	}
	return out
}

// analyze returns the names that an expression mentions, the names of the variables, and
// whether a part of it may be evaluated more than once. A name that a comprehension declares
// hides none of those here, but is taken for one, which errs on the safe side.
func analyze(root ast.Expr) (uses Uses, asked askedVariables, loops bool) {
	requests, fields, variables := 0, 0, 0
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			of := usesOf(e.AsIdent())
			uses |= of
			switch of { //nolint:exhaustive // of the others no fields are told apart
			case UsesRequest:
				requests++
			case UsesVariables:
				variables++
			}
		case ast.ComprehensionKind:
			loops = true
		case ast.SelectKind:
			selected := e.AsSelect()
			switch of, field := usesOfName(selected.Operand()), selected.FieldName(); {
			case of == UsesVariables:
				asked.names = append(asked.names, field)
			case of == UsesRequest && isSubject(field):
				fields++
				if field == "name" {
					uses |= UsesName
				}
			case of == UsesRequest && usesOfField(field) != 0:
				fields++
				uses |= UsesUser | usesOfField(field)
			}
		case ast.CallKind, ast.LiteralKind, ast.ListKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		}
	}))
	if requests > fields {
		uses |= UsesUser | UsesAllOfRequest
	}
	asked.all = variables > len(asked.names)
	return uses, asked, loops || uses.Has(UsesVariables)
}

// askedVariables are the variables that an expression may ask for.
type askedVariables struct {
	names []string
	all   bool
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

// usesOfName returns the flag of an expression that is a name.
func usesOfName(e ast.Expr) Uses {
	if e.Kind() != ast.IdentKind {
		return 0
	}
	return usesOf(e.AsIdent())
}

// usesOfField returns the flag of a field of the request that does not identify the object.
func usesOfField(field string) Uses {
	switch field {
	case "userInfo":
		return UsesUserInfo
	case "operation":
		return UsesOperation
	case "options":
		return UsesOptions
	case "dryRun":
		return UsesDryRun
	default:
		return 0
	}
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
