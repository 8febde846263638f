package policy

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

func managedFieldsPath() []string { return []string{"metadata", "managedFields"} }

// readsManagedFields is false if no expression can see metadata.managedFields of
// the object or the old object: each names a member of these, and of their
// metadata another one. Whatever is passed on, compared or walked through whole
// may show it.
//
// It matters because managed fields are a third of a usual object's text and
// half of the memory that decoding it takes.
func readsManagedFields(env *cel.Env, expressions []string) bool {
	for _, text := range expressions {
		parsed, issues := env.Parse(text)
		if issues.Err() != nil {
			return true // It is reported elsewhere; here it is not understood.
		}
		if seesManagedFields(parsed.NativeRep().Expr(), nil) {
			return true
		}
	}
	return false
}

// seesManagedFields looks at an expression of whose value only the members on
// the path are used; a nil path stands for all of it.
func seesManagedFields(e ast.Expr, path []string) bool {
	switch e.Kind() {
	case ast.IdentKind:
		// A leading dot makes a name absolute and changes nothing else here.
		if name := strings.TrimPrefix(e.AsIdent(), "."); name != plugincel.ObjectVarName && name != plugincel.OldObjectVarName {
			return false
		}
		return len(path) == 0 || path[0] == "metadata" && (len(path) == 1 || path[1] == "managedFields")
	case ast.SelectKind:
		selected := e.AsSelect()
		return seesManagedFields(selected.Operand(), prepend(selected.FieldName(), path))
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if name, ok := constant(args[1]); ok {
				return seesManagedFields(args[0], prepend(name, path))
			}
		}
		if call.IsMemberFunction() && seesManagedFields(call.Target(), nil) {
			return true
		}
		return anySeesManagedFields(args)
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return anySeesManagedFields([]ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()})
	case ast.ListKind:
		return anySeesManagedFields(e.AsList().Elements())
	case ast.LiteralKind:
		return false
	case ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		return true // Rare in a policy, and then read in full.
	default:
		return true
	}
}

func anySeesManagedFields(expressions []ast.Expr) bool {
	for _, e := range expressions {
		if seesManagedFields(e, nil) {
			return true
		}
	}
	return false
}

func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	name, ok := e.AsLiteral().Value().(string)
	return name, ok
}

func prepend(name string, path []string) []string {
	return append([]string{name}, path...)
}
