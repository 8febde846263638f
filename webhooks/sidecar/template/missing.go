package template

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// selection is a chain of fields and indexes in an expression, such as
// pod.metadata.labels['app'].
type selection struct {
	// keys are those that may be missing.
	keys []string
	// optional is the chain written so that it needs none of the keys.
	optional string
}

// maxSelection is how long a selection may be to be worth a hint.
const maxSelection = 120

// selections returns the chains of an expression, each as far as it goes.
func selections(checked *ast.AST) []selection {
	var found []selection
	inner := map[int64]bool{}
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if inner[x.ID()] {
			return
		}
		if s, ok := selectionOf(x, checked.GetType(x.ID()), inner); ok {
			found = append(found, s)
		}
	}))
	return found
}

// step is one step of a selection, from the last to the first.
type step struct{ key, plain, optional string }

// selectionOf reads the chain that ends with x, and notes what is inside of it.
func selectionOf(x ast.Expr, t *cel.Type, inner map[int64]bool) (selection, bool) {
	end := fallback(t)
	if x.Kind() == ast.SelectKind && x.AsSelect().IsTestOnly() {
		end = ".hasValue()"
	}
	var steps []step
	for {
		var (
			s     step
			below ast.Expr
			ok    bool
		)
		switch x.Kind() { //nolint:exhaustive // nothing else is part of a chain
		case ast.SelectKind:
			name := x.AsSelect().FieldName()
			s, below, ok = step{name, "." + name, ".?" + name}, x.AsSelect().Operand(), true
		case ast.CallKind:
			s, below, ok = indexStep(x.AsCall())
		case ast.IdentKind:
			return written(spelled(x.AsIdent()), steps, end)
		}
		if !ok {
			return selection{}, false
		}
		steps, x = append(steps, s), below
		inner[x.ID()] = true
	}
}

// indexStep returns an index that is a constant.
func indexStep(call ast.CallExpr) (s step, below ast.Expr, ok bool) {
	if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
		return step{}, nil, false
	}
	var text string
	switch key := call.Args()[1].AsLiteral().(type) {
	case types.String:
		s.key, text = string(key), strconv.Quote(string(key))
		if !strings.ContainsAny(text[1:len(text)-1], `'\`) {
			text = "'" + s.key + "'"
		}
	case types.Int:
		s.key = strconv.FormatInt(int64(key), 10)
		text = s.key
	default:
		return step{}, nil, false
	}
	s.plain, s.optional = "["+text+"]", "[?"+text+"]"
	return s, call.Args()[0], true
}

// written writes the chain behind the variable: what every pod, namespace and
// set of presets has as it was, and the rest as optional.
func written(variable string, steps []step, end string) (selection, bool) {
	if len(steps) == 0 || end == "" || strings.HasPrefix(variable, "@") {
		return selection{}, false
	}
	sure := map[string]int{"pod": 1, "namespace": 2, "presets": 1}[variable]
	s := selection{optional: variable}
	for _, step := range slices.Backward(steps) {
		if sure > 0 {
			s.optional += step.plain
			sure--
			continue
		}
		s.keys = append(s.keys, step.key)
		s.optional += step.optional
	}
	s.optional += end
	return s, len(s.optional) <= maxSelection
}

// fallback returns what makes a value of the type of an optional one, or nothing for
// a type that has none to write down.
func fallback(t *cel.Type) string {
	switch t.Kind() { //nolint:exhaustive // all others have none
	case types.StringKind, types.DynKind:
		return `.orValue("…")`
	case types.IntKind:
		return ".orValue(0)"
	case types.DoubleKind:
		return ".orValue(0.0)"
	case types.BoolKind:
		return ".orValue(false)"
	case types.ListKind:
		return ".orValue([])"
	case types.MapKind:
		return ".orValue({})"
	default:
		return ""
	}
}

// withoutKey returns a hint for an expression that failed because the pod lacks a
// key, and empty if the error is another one.
func (e *expression) withoutKey(err error) string {
	key, ok := strings.CutPrefix(err.Error(), "no such key: ")
	if !ok {
		return ""
	}
	for _, s := range e.selections {
		if slices.Contains(s.keys, key) {
			return "write " + s.optional
		}
	}
	return ""
}
