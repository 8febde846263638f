package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// forTemplate rewrites expressions about a pod for objects that hold its template: object.spec becomes object.spec.template.spec. What only a
// pod has that exists, such as its name, has no translation. The pod is being created, whatever happens to the workload.
type forTemplate struct {
	path   []string
	parser *parser.Parser
	new    ast.ExprFactory
	// untranslated are the variables that have no translation, with the reasons.
	untranslated map[string]string
	// problem is why the expression has no translation, "" for none.
	problem string
}

// newForTemplate returns the rewriting for templates at a path.
func newForTemplate(path []string) (*forTemplate, error) {
	// Without macros, a loop is a call, which is printed as it was written.
	p, err := parser.NewParser(parser.Macros(), parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
	if err != nil {
		return nil, fmt.Errorf("parse expressions: %w", err)
	}
	return &forTemplate{path: path, parser: p, new: ast.NewExprFactory(), untranslated: map[string]string{}}, nil
}

// rewrite returns the expression for templates, or why there is none.
func (t *forTemplate) rewrite(text string) (out, problem string) {
	parsed, errs := t.parser.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return "", "it cannot be parsed"
	}
	t.problem = ""
	t.expr(parsed.Expr())
	if t.problem != "" {
		return "", t.problem
	}
	out, err := parser.Unparse(parsed.Expr(), parsed.SourceInfo())
	if err != nil {
		return "", "it cannot be printed: " + err.Error()
	}
	return out, ""
}

func (t *forTemplate) refuse(format string, args ...any) {
	if t.problem == "" {
		t.problem = fmt.Sprintf(format, args...)
	}
}

// access returns a member that an expression reads, and of what: a.b, a.?b, a["b"] or a[?"b"]. It is nil for anything else.
func access(e ast.Expr) (of ast.Expr, name string) {
	switch e.Kind() { //nolint:exhaustive // the others are no access
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		c := e.AsCall()
		switch c.FunctionName() {
		case operators.OptSelect, operators.Index, operators.OptIndex:
			if name := c.Args()[1]; name.Kind() == ast.LiteralKind {
				if text, ok := name.AsLiteral().(types.String); ok {
					return c.Args()[0], string(text)
				}
			}
		}
	}
	return nil, ""
}

// isOptional reports whether an access is a.?b or a[?"b"].
func isOptional(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() != operators.Index
}

func isIdent(e ast.Expr, name string) bool {
	return e != nil && e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == name
}

func (t *forTemplate) literal(text string) ast.Expr { return t.new.NewLiteral(0, types.String(text)) }

// become replaces an expression. If it was optional, what replaces it is there.
func (t *forTemplate) become(e, by ast.Expr) {
	if isOptional(e) {
		by = t.new.NewMemberCall(0, "of", t.new.NewIdent(0, "optional"), by)
	}
	e.SetKindCase(by)
}

// template returns the template.
func (t *forTemplate) template() ast.Expr {
	e := t.new.NewIdent(0, "object")
	for _, name := range t.path {
		e = t.new.NewSelect(0, e, name)
	}
	return e
}

// metadata returns the metadata of the template, which may have none.
func (t *forTemplate) metadata() ast.Expr {
	found := t.new.NewCall(0, operators.OptSelect, t.template(), t.literal("metadata"))
	return t.new.NewMemberCall(0, "orValue", found, t.new.NewMap(0, nil))
}

// names are those that no loop may give another meaning.
func isSpecial(name string) bool {
	return slices.Contains([]string{"object", "oldObject", "request", "variables", "authorizer", "optional", "dyn"}, name)
}

// expr rewrites an expression in place.
func (t *forTemplate) expr(e ast.Expr) {
	of, name := access(e)
	inner, outer := ast.Expr(nil), ""
	if of != nil {
		inner, outer = access(of)
	}
	switch {
	case isIdent(of, "object"):
		t.field(e, name)
		return
	case isIdent(inner, "object") && outer == "metadata":
		t.metadataField(e, of, name)
		return
	case isIdent(of, "request"):
		t.requestField(e, name)
		return
	case isIdent(inner, "request"):
		t.requestKind(e, outer, name)
		return
	case isIdent(of, "authorizer") && name == "requestResource":
		t.refuse("it asks for the rights on the pod, which does not exist yet")
		return
	case isIdent(of, "variables"):
		if why := t.untranslated[name]; why != "" {
			t.refuse("variable %s: %s", name, why)
		}
		return
	}
	switch e.Kind() {
	case ast.IdentKind:
		switch name := strings.TrimPrefix(e.AsIdent(), "."); name {
		case "object", "request":
			t.refuse("it reads all of %s", name)
		case "oldObject":
			e.SetKindCase(t.new.NewCall(0, "dyn", t.new.NewLiteral(0, types.NullValue)))
		}
	case ast.SelectKind:
		t.expr(e.AsSelect().Operand())
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			t.expr(c.Target())
		}
		for i, arg := range c.Args() {
			if c.IsMemberFunction() && i < 2 && isLoop(c.FunctionName()) && arg.Kind() == ast.IdentKind && isSpecial(arg.AsIdent()) {
				t.refuse("a loop names its elements %s", arg.AsIdent())
			}
			t.expr(arg)
		}
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			t.expr(item)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			t.expr(entry.AsMapEntry().Key())
			t.expr(entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			t.expr(entry.AsStructField().Value())
		}
	case ast.ComprehensionKind, ast.LiteralKind, ast.UnspecifiedExprKind: // without macros, there is no comprehension
	}
}

func isLoop(function string) bool {
	return slices.Contains([]string{
		"all", "exists", "exists_one", "existsOne", "filter", "map", "optFlatMap", "optMap", "transformList", "transformMap", "transformMapEntry",
	}, function)
}

// field rewrites a member of the pod.
func (t *forTemplate) field(e ast.Expr, name string) {
	switch name {
	case "spec":
		if isOptional(e) {
			e.SetKindCase(t.new.NewCall(0, operators.OptSelect, t.template(), t.literal("spec")))
		} else {
			e.SetKindCase(t.new.NewSelect(0, t.template(), "spec"))
		}
	case "kind":
		t.become(e, t.literal("Pod"))
	case "apiVersion":
		t.become(e, t.literal("v1"))
	case "metadata":
		t.refuse("it reads all of the pod's metadata")
	default:
		t.refuse("it reads %s, which a pod template lacks", name)
	}
}

// metadataField rewrites a member of the pod's metadata.
func (t *forTemplate) metadataField(e, metadata ast.Expr, name string) {
	switch name {
	case "labels", "annotations", "finalizers":
		t.become(metadata, t.metadata())
	case "namespace":
		e.SetKindCase(t.new.NewSelect(0, t.new.NewIdent(0, "request"), "namespace"))
		if isOptional(e) {
			t.refuse("it reads metadata.?namespace")
		}
	default:
		t.refuse("it reads metadata.%s, which a pod template lacks", name)
	}
}

// requestField rewrites a member of the request by which the pod is created.
func (t *forTemplate) requestField(e ast.Expr, name string) {
	switch name {
	case "namespace", "userInfo", "dryRun":
	case "operation":
		t.become(e, t.literal("CREATE"))
	case "subResource", "requestSubResource":
		t.become(e, t.literal(""))
	default:
		t.refuse("it reads request.%s of the pod, which does not exist yet", name)
	}
}

// requestKind rewrites a member of the kind or resource of the request, or of its user.
func (t *forTemplate) requestKind(e ast.Expr, outer, name string) {
	value := map[string]string{"group": "", "version": "v1"}
	switch outer {
	case "userInfo":
		return
	case "kind", "requestKind":
		value["kind"] = "Pod"
	case "resource", "requestResource":
		value["resource"] = "pods"
	default:
		inner, _ := access(e)
		t.expr(inner)
		return
	}
	text, known := value[name]
	if !known {
		t.refuse("it reads request.%s.%s", outer, name)
		return
	}
	t.become(e, t.literal(text))
}
