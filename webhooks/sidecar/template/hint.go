package template

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	celhint "github.com/gatehouse-dev/gatehouse/webhooks/cel/hint"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// shellHint returns the hint for a placeholder that is no expression: the one given, or how to write a variable of a shell, unless it
// begins with one of ours.
func shellHint(text, hint string) string {
	name, _, isField := strings.Cut(strings.TrimSpace(text), ".")
	if hint != "" || isField && slices.Contains(declaredNames(forPlaceholder), name) {
		return hint
	}
	return "for a shell variable write $${" + excerpt(text) + "}"
}

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
			return newSelection(originalName(x.AsIdent()), steps, end)
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

// newSelection returns the chain behind the variable: what every pod, namespace and
// set of presets has as it was, and the rest as optional.
func newSelection(variable string, steps []step, end string) (selection, bool) {
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

var (
	undeclared = regexp.MustCompile(`undeclared reference to '([^']*)'`)
	noField    = regexp.MustCompile(`undefined field '([^']*)'`)
)

const noParameters = "match conditions cannot read parameters"

// explain turns some of CEL's own messages into what the author of a profile has
// to know.
func (s *Scope) explain(message string, at diagnostic.Place, use use) (text, hint string) {
	message = originalName(message)
	if match := undeclared.FindStringSubmatch(message); match != nil {
		if use == forCondition && match[1] == "params" {
			return noParameters, "read a field of the pod or its namespace, such as a label"
		}
		text = fmt.Sprintf("%q is not declared", match[1])
		if celhint.IsCall(at) {
			return text, celhint.Function(match[1])
		}
		return text, s.declared(match[1], use)
	}
	if match := noField.FindStringSubmatch(message); match != nil {
		owner, fields := s.provider.owner(match[1])
		hint := diagnostic.DidYouMean(match[1], fields...)
		switch owner {
		case paramsType:
			if hint == "" {
				hint = s.declaration("parameters", s.ParameterNames())
			}
			return fmt.Sprintf("there is no parameter %q", match[1]), hint
		case presetsType:
			if hint == "" {
				hint = s.declaration("presets", s.presets)
			}
			return fmt.Sprintf("there is no preset %q", match[1]), hint
		case "":
			return fmt.Sprintf("there is no field %q", match[1]), hint
		default:
			if hint == "" {
				hint = "the fields are " + joined(fields)
			}
			return fmt.Sprintf("%q is not a field of %s", match[1], owner), hint
		}
	}
	if word := celhint.Reserved(message); word != "" {
		return fmt.Sprintf("%q is a reserved word of CEL", word), ""
	}
	if strings.Contains(message, "Syntax error") && strings.Contains(message, "<EOF>") {
		return "the expression is incomplete", ""
	}
	message, _, _ = strings.Cut(message, " expecting {") // all that CEL has
	return message, ""
}

// declared returns a hint for a name that is not.
func (s *Scope) declared(name string, use use) string {
	switch name {
	case "object", "oldObject", "request":
		return `did you mean "pod"?`
	case "namespaceObject":
		return `did you mean "namespace"?`
	case "authorizer":
		return "only policies have an authorizer"
	}
	if slices.Contains(s.presets, name) {
		return fmt.Sprintf("did you mean %q?", "presets."+name)
	}
	switch {
	case use == forCondition && s.HasParameter(name):
		return noParameters
	case use == forCondition:
		return nearest(name, use)
	case s.HasParameter(name):
		return fmt.Sprintf("did you mean %q?", "params."+name)
	}
	return nearest(name, use)
}

// nearest returns a hint for a name that is nearly that of a variable, or "".
func nearest(name string, use use) string {
	hint := diagnostic.DidYouMean(name, declaredNames(use)...)
	if hint == "" {
		return ""
	}
	return hint + " " + declaredHere(use)
}

// declaredHere returns a hint that lists the variables.
func declaredHere(use use) string {
	return "the names here are " + strings.Join(declaredNames(use), ", ")
}

// declaredNames returns the variables that expressions for the use may name.
func declaredNames(use use) []string {
	if use == forCondition {
		return []string{"pod", "namespace", "presets"}
	}
	return []string{"pod", "namespace", "params", "presets"}
}

// joined lists names, but not all of many.
func joined(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
