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

// anyTemplate stands for the path of the template in what is rewritten for all paths.
const anyTemplate = "object.any_template_"

// forTemplates rewrites expressions about a pod for objects that hold its template: object.spec becomes object.spec.template.spec. What only a
// pod has that exists, such as its name, has no translation. The pod is being created, whatever happens to the workload.
type forTemplates struct {
	parser *parser.Parser
	new    ast.ExprFactory
	// untranslated are the variables of the policy that have no translation, with the reasons.
	untranslated map[string]string
	// aliases are the variables of the policy that are the pod.
	aliases map[string]bool
	// problem is why the expression has no translation, "" for none.
	problem string
	// known are the results for expressions that name no variable without a translation.
	known map[string][2]string
}

// newForTemplates returns the rewriting.
func newForTemplates() (*forTemplates, error) {
	// Without macros, a loop is a call, which is printed as it was written.
	p, err := parser.NewParser(parser.Macros(), parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
	if err != nil {
		return nil, fmt.Errorf("parse expressions: %w", err)
	}
	return &forTemplates{parser: p, new: ast.NewExprFactory(), untranslated: map[string]string{}, aliases: map[string]bool{}, known: map[string][2]string{}}, nil
}

// translate returns the expressions of a policy for templates at any path.
func (t *forTemplates) translate(of *texts) (out texts) {
	clear(t.untranslated)
	clear(t.aliases)
	for _, condition := range of.conditions {
		var problem string
		if condition.Expression, problem = t.rewrite(condition.Expression); problem != "" {
			out.problem = "match condition " + condition.Name + ": " + problem
		}
		out.conditions = append(out.conditions, condition)
	}
	for _, v := range of.variables {
		var problem string
		t.aliases[v.Name] = t.isAlias(v.Expression)
		if v.Expression, problem = t.rewrite(v.Expression); problem != "" {
			t.untranslated[v.Name] = problem
			continue
		}
		out.variables = append(out.variables, v)
	}
	all := func(texts []text) (out []text) {
		for _, one := range texts {
			if one.problem == "" {
				one.expression, one.problem = t.rewrite(one.expression)
			}
			if one.message != "" {
				one.message, one.messageProblem = t.rewrite(one.message)
			}
			out = append(out, one)
		}
		return out
	}
	out.rules, out.annotations = all(of.rules), all(of.annotations)
	return out
}

// at returns the expressions for templates at a path.
func (t *texts) at(path []string) *texts {
	out := texts{problem: t.problem, conditions: slices.Clone(t.conditions), variables: slices.Clone(t.variables), rules: slices.Clone(t.rules), annotations: slices.Clone(t.annotations)}
	put := func(text *string) { *text = strings.ReplaceAll(*text, anyTemplate, "object."+strings.Join(path, ".")) }
	for i := range out.conditions {
		put(&out.conditions[i].Expression)
	}
	for i := range out.variables {
		put(&out.variables[i].Expression)
	}
	for _, all := range [][]text{out.rules, out.annotations} {
		for i := range all {
			put(&all[i].expression)
			put(&all[i].message)
		}
	}
	return &out
}

// rewrite returns the expression for templates at any path, or why there is none.
func (t *forTemplates) rewrite(text string) (out, problem string) {
	if len(t.untranslated) == 0 {
		if known, ok := t.known[text]; ok {
			return known[0], known[1]
		}
		defer func() { t.known[text] = [2]string{out, problem} }()
	}
	parsed, errs := t.parser.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return "", "it cannot be parsed"
	}
	if t.problem = ""; strings.Contains(text, anyTemplate) {
		t.refuse("it has the words %s", anyTemplate)
	}
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(fold))
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

// isAlias reports whether an expression is the pod itself.
func (t *forTemplates) isAlias(text string) bool {
	parsed, errs := t.parser.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return false
	}
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(fold))
	return t.isPod(parsed.Expr())
}

// isPod reports whether an expression is the pod: object, or a variable that is.
func (t *forTemplates) isPod(e ast.Expr) bool {
	if e == nil || isIdent(e, "object") {
		return e != nil
	}
	of, name := access(e)
	return isIdent(of, "variables") && t.aliases[name] && !isOptional(e)
}

// fold replaces a choice that depends on the operation, or on whether there is an object, by what is chosen: the pod is created.
func fold(e ast.Expr) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Conditional {
		return
	}
	args := e.AsCall().Args()
	if holds, known := isCreation(args[0]); known {
		chosen := args[2]
		if holds {
			chosen = args[1]
		}
		e.SetKindCase(chosen)
	}
}

// isCreation returns what a comparison of the operation, or of the objects with null, is for a pod that is created, and false for others.
func isCreation(e ast.Expr) (holds, known bool) {
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return false, false
	}
	c := e.AsCall()
	left, right := c.Args()[0], c.Args()[1]
	equals := c.FunctionName() == operators.Equals
	switch of, name := access(left); {
	case right.Kind() != ast.LiteralKind || !equals && c.FunctionName() != operators.NotEquals:
		return false, false
	case isIdent(of, "request") && name == "operation" && !isOptional(left):
		return (right.AsLiteral() == types.String("CREATE")) == equals, true
	case isIdent(left, "object") && right.AsLiteral() == types.NullValue:
		return !equals, true
	case isIdent(left, "oldObject") && right.AsLiteral() == types.NullValue:
		return equals, true
	}
	return false, false
}

func (t *forTemplates) refuse(format string, args ...any) {
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

func (t *forTemplates) literal(text string) ast.Expr { return t.new.NewLiteral(0, types.String(text)) }

// become replaces an expression. If it was optional, what replaces it is there.
func (t *forTemplates) become(e, by ast.Expr) {
	if isOptional(e) {
		by = t.new.NewMemberCall(0, "of", t.new.NewIdent(0, "optional"), by)
	}
	e.SetKindCase(by)
}

// template returns the template.
func (t *forTemplates) template() ast.Expr {
	return t.new.NewSelect(0, t.new.NewIdent(0, "object"), strings.TrimPrefix(anyTemplate, "object."))
}

// metadata returns the metadata of the template, which may have none.
func (t *forTemplates) metadata() ast.Expr {
	found := t.new.NewCall(0, operators.OptSelect, t.template(), t.literal("metadata"))
	return t.new.NewMemberCall(0, "orValue", found, t.new.NewMap(0, nil))
}

// isSpecial reports whether no loop may give a name another meaning.
func isSpecial(name string) bool {
	return slices.Contains([]string{"object", "oldObject", "request", "variables", "authorizer", "optional", "dyn"}, name)
}

// expr rewrites an expression in place.
func (t *forTemplates) expr(e ast.Expr) {
	of, name := access(e)
	inner, outer := ast.Expr(nil), ""
	if of != nil {
		inner, outer = access(of)
	}
	switch {
	case t.isPod(of):
		t.field(e, name)
		return
	case t.isPod(inner) && outer == "metadata":
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
		case "object", "request", "variables":
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
			if c.IsMemberFunction() && i < 2 && arg.Kind() == ast.IdentKind && isSpecial(arg.AsIdent()) {
				t.refuse("a loop may name its elements %s", arg.AsIdent())
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

// field rewrites a member of the pod.
func (t *forTemplates) field(e ast.Expr, name string) {
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
func (t *forTemplates) metadataField(e, metadata ast.Expr, name string) {
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
func (t *forTemplates) requestField(e ast.Expr, name string) {
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
func (t *forTemplates) requestKind(e ast.Expr, outer, name string) {
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
