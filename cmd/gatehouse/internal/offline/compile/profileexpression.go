package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// result is what is known of what an expression results in.
type result uint8

const (
	anyResult result = iota
	stringResult
	optionalResult
)

// literal returns a value of the profile as CEL. What is left out if it has no value is optional.
func (t *translation) literal(path string, value any) (string, result) {
	switch value := value.(type) {
	case string:
		return t.text(path, value)
	case []any:
		return "[" + t.together(path, make([]string, len(value)), value) + "]", anyResult
	case map[string]any:
		keys, members := sortedKeys(value), make([]any, len(value))
		for i, key := range keys {
			members[i], keys[i] = value[key], quote(key)+": "
		}
		return "{" + t.together(path, keys, members) + "}", anyResult
	default:
		return fmt.Sprint(value), anyResult
	}
}

// together returns elements, or members with their keys. If they are not all strings, they are dyn: CEL has no literals of several types.
func (t *translation) together(path string, keys []string, values []any) string {
	out, kinds := make([]string, len(values)), make([]result, len(values))
	for i, value := range values {
		out[i], kinds[i] = t.literal(path, value)
	}
	for i, kind := range kinds {
		switch {
		case kind == optionalResult:
			out[i] = "?" + keys[i] + "(" + out[i] + ").optMap(v, dyn(v))"
		case slices.ContainsFunc(kinds, func(k result) bool { return k != stringResult }):
			out[i] = keys[i] + "dyn(" + out[i] + ")"
		default:
			out[i] = keys[i] + out[i]
		}
	}
	return strings.Join(out, ", ")
}

// text returns a text with placeholders as CEL.
func (t *translation) text(path, text string) (string, result) {
	parts, err := template.Parts(text)
	if err != nil {
		t.item.stay(path + ": " + err.Error())
	}
	if len(parts) == 1 && parts[0].IsExpression {
		return t.expression(path, parts[0].Text)
	}
	var out []string
	for _, p := range parts {
		part := quote(p.Text)
		if p.IsExpression {
			value, kind := t.expression(path, p.Text)
			if part = "(" + value + ")"; kind != stringResult {
				part = "string" + part
			}
		}
		out = append(out, part)
	}
	if len(out) == 0 {
		return `""`, stringResult
	}
	return strings.Join(out, " + "), stringResult
}

// readsOwn is the difference of a profile whose values may be others once it is applied.
const readsOwn = "expressions read of the pod what the profile changes: they may see it changed, and if Gatehouse is sent the pod too, it may refuse it"

// expression returns an expression of a profile as one of a policy.
func (t *translation) expression(path, text string) (string, result) {
	parsed, errs := t.rewriting.parser.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		t.item.stay(path + ": an expression cannot be parsed")
		return "null", anyResult
	}
	become, pods, metadata := t.rewriting.new, 0, 0
	variable := func(name string) ast.Expr { return become.NewSelect(0, become.NewIdent(0, "variables"), name) }
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		of, name := access(e)
		switch {
		case isIdent(e, "pod"):
			e.SetKindCase(become.NewIdent(0, "object"))
			if pods++; t.overlaps {
				t.item.differ("expressions about the pod may see what other profiles have added to it")
			}
		case isIdent(of, "object") && name == "metadata":
			metadata++
		case isIdent(e, template.NamespaceVariable):
			e.SetKindCase(variable("podNamespace"))
		case isIdent(of, "params") && e.Kind() == ast.SelectKind:
			e.SetKindCase(variable("param_" + name))
		case isIdent(of, "presets") && e.Kind() == ast.SelectKind:
			e.SetKindCase(variable("preset"))
		}
	}))
	adds := len(t.spec.Template.Metadata.Labels)+len(t.spec.Template.Metadata.Annotations) > 0
	if !strings.HasPrefix(path, "spec.match") && (pods > metadata || pods > 0 && adds) {
		t.item.differ(readsOwn)
	}
	out, err := parser.Unparse(parsed.Expr(), parsed.SourceInfo())
	if err != nil {
		t.item.stay(path + ": an expression cannot be printed")
		return "null", anyResult
	}
	checked, issues := t.env.Compile(out)
	switch {
	case issues.Err() != nil:
		t.item.stay(path + ": an expression has no translation")
		return "null", anyResult
	case checked.OutputType().TypeName() == types.OptionalType.TypeName():
		return out, optionalResult
	case checked.OutputType().IsExactType(cel.StringType):
		return out, stringResult
	default:
		return out, anyResult
	}
}
