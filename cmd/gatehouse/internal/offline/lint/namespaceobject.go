package lint

import (
	"github.com/google/cel-go/common/ast"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// lintNamespaceObjects reports match conditions that read namespaceObject, which is null in all of them.
func (s *subject) lintNamespaceObjects() {
	for _, e := range s.expressions {
		if e.role != condition {
			continue
		}
		if read := first(e.plain.AST.Expr(), func(part ast.Expr) bool { return isIdent(part, plugincel.NamespaceVarName) }); read != nil {
			s.reportAt(NamespaceObject, e, read.ID(), "write a namespaceSelector, or ask in the validations",
				"namespaceObject is always null in match conditions, also that of a request in a namespace")
		}
	}
}
