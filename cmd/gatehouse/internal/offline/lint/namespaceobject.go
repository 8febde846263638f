package lint

import (
	"github.com/google/cel-go/common/ast"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// lintNamespaceObjects reports match conditions that read namespaceObject, which is
// null in all of them. It compiles, and documents show it in match conditions.
func (s *subject) lintNamespaceObjects() {
	for _, e := range s.expressions {
		if e.role != condition {
			continue
		}
		if read := e.find(func(part ast.Expr) bool { return isIdent(part, plugincel.NamespaceVarName) }); read != nil {
			s.reportAt(NamespaceObject, e, read.ID(), "write a namespaceSelector, or ask in the validations",
				"namespaceObject is always null in match conditions, also that of a request in a namespace")
		}
	}
}

// find returns a part of the expression, the first that is found, or nil.
func (e *expression) find(is func(ast.Expr) bool) ast.Expr {
	var out ast.Expr
	walk(e.plain.AST.Expr(), func(part ast.Expr) {
		if out == nil && is(part) {
			out = part
		}
	})
	return out
}
