package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// subject is the policy that is being linted.
type subject struct {
	document
	linter *linter
	spec   *admissionregistrationv1.ValidatingAdmissionPolicySpec
	// kinds are the known kinds that the policy matches. allKinds reports whether there are no others.
	kinds    []typecheck.Kind
	allKinds bool
	// expressions are those that compile, in the order of the document but
	// conditions first and variables next.
	expressions []*expression
	// unknown are the variables that do not compile, which may be of any type.
	unknown []string
}

// role is what an expression is for.
type role int

const (
	condition role = iota
	variable
	validation
	message
	annotation
)

// expression is one expression of a policy.
type expression struct {
	role role
	// name is that of a condition or variable.
	name   string
	path   *field.Path
	text   string
	parsed *cel.Ast
	// plain is the expression checked with objects of any type, as the API server does, and kinds that for each kind.
	plain typecheck.Checked
	kinds []typecheck.Checked
}

// read parses and checks all expressions.
func (s *subject) read() {
	if s.spec.MatchConstraints != nil {
		s.kinds, s.allKinds = s.linter.schemas.Match(reviewedRules(s.spec.MatchConstraints.ResourceRules))
	}
	path := field.NewPath("spec")
	s.parseConditions(path.Child("matchConditions"))
	for i, v := range s.spec.Variables {
		s.parse(&expression{role: variable, name: v.Name, path: path.Child("variables").Index(i).Child("expression"), text: v.Expression})
	}
	for i := range s.spec.Validations {
		v, at := &s.spec.Validations[i], path.Child("validations").Index(i)
		s.parse(&expression{role: validation, path: at.Child("expression"), text: v.Expression})
		s.parse(&expression{role: message, path: at.Child("messageExpression"), text: v.MessageExpression})
	}
	for i, a := range s.spec.AuditAnnotations {
		s.parse(&expression{role: annotation, path: path.Child("auditAnnotations").Index(i).Child("valueExpression"), text: a.ValueExpression})
	}
	s.compile()
	s.checkKinds()
}

// parseConditions parses the match conditions at the path.
func (s *subject) parseConditions(at *field.Path) {
	for i := range s.spec.MatchConditions {
		c := &s.spec.MatchConditions[i]
		s.parse(&expression{role: condition, name: c.Name, path: at.Index(i).Child("expression"), text: c.Expression})
	}
}

// compile leaves out the expressions that do not compile.
func (s *subject) compile() {
	s.check(nil, nil, func(e *expression, c typecheck.Checked) { e.plain = c })
	s.expressions = slices.DeleteFunc(s.expressions, func(e *expression) bool {
		if len(e.plain.Issues) == 0 {
			return false
		}
		s.doesNotCompile(e)
		return true
	})
}

func (s *subject) parse(e *expression) {
	if strings.TrimSpace(e.text) == "" {
		return
	}
	parsed, err := s.linter.checker.Parse(e.text)
	if err != nil {
		s.doesNotCompile(e)
		return
	}
	e.parsed = parsed
	s.expressions = append(s.expressions, e)
}

// checkKinds checks all expressions with the types of each kind.
func (s *subject) checkKinds() {
	params := s.params()
	for i := range s.kinds {
		s.check(s.kinds[i].Type, params, func(e *expression, c typecheck.Checked) { e.kinds = append(e.kinds, c) })
	}
}

// doesNotCompile notes a variable whose expression Compile reports.
func (s *subject) doesNotCompile(e *expression) {
	if e.role == variable {
		s.unknown = append(s.unknown, e.name)
	}
}

// check checks all expressions with objects and params of the types.
func (s *subject) check(object, params *typecheck.Type, done func(*expression, typecheck.Checked)) {
	scope := s.linter.checker.Scope(object, params)
	for _, name := range s.unknown {
		scope.DeclareAny(name)
	}
	for _, e := range s.expressions {
		c := scope.Check(e.parsed)
		if e.role == variable {
			scope.Declare(e.name, c)
		}
		done(e, c)
	}
}

// params returns the type of the params, or nil.
func (s *subject) params() *typecheck.Type {
	if s.spec.ParamKind == nil {
		return nil
	}
	kind, known := s.linter.schemas.Kind(schema.FromAPIVersionAndKind(s.spec.ParamKind.APIVersion, s.spec.ParamKind.Kind))
	if !known {
		return nil
	}
	return kind.Type
}

// typed returns the expression checked with the type of the first kind, if there is
// one that it fits.
func (e *expression) typed() typecheck.Checked {
	for _, c := range e.kinds {
		if len(c.Issues) == 0 {
			return c
		}
	}
	return e.plain
}

// reportAt reports a diagnostic about a part of an expression.
func (s *subject) reportAt(code Code, e *expression, part int64, hint, format string, args ...any) {
	location := e.parsed.NativeRep().SourceInfo().GetStartLocation(part)
	in := diagnostic.Place{Text: e.text, Line: max(location.Line(), 1), Column: max(location.Column(), 0) + 1}
	s.add(diagnostic.Diagnostic{Field: e.path.String(), Message: in.Message(format, args...), In: in, Hint: hint, Code: string(code)})
}

// report reports a diagnostic about all of an expression.
func (s *subject) report(code Code, e *expression, hint, format string, args ...any) {
	s.warn(code, e.path, hint, "%s "+format, append([]any{quoted(strings.Join(strings.Fields(e.text), " "))}, args...)...)
}

// walk visits all parts of an expression, outer ones first.
func walk(e ast.Expr, visit func(ast.Expr)) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(visit))
}

// contains reports whether an expression has a part that the function recognises.
func contains(e ast.Expr, recognise func(ast.Expr) bool) bool { return first(e, recognise) != nil }

// first returns the first part of an expression that the function recognises, outer ones first, or nil.
func first(e ast.Expr, recognise func(ast.Expr) bool) ast.Expr {
	var out ast.Expr
	walk(e, func(part ast.Expr) {
		if out == nil && recognise(part) {
			out = part
		}
	})
	return out
}

// unparse returns a part of an expression as it may be written.
func unparse(c typecheck.Checked, e ast.Expr) string {
	out, err := parser.Unparse(e, c.AST.SourceInfo())
	if err != nil {
		return ""
	}
	return out
}

// root returns the variable that a chain of fields and elements begins with, and ""
// if it begins with something else.
func root(e ast.Expr) string {
	for {
		switch {
		case e.Kind() == ast.SelectKind:
			e = e.AsSelect().Operand()
		case isCall(e, operators.Index), isCall(e, operators.OptIndex), isCall(e, operators.OptSelect):
			e = e.AsCall().Args()[0]
		default:
			return ident(e)
		}
	}
}

// ident returns the name of a variable, and "" for anything else.
func ident(e ast.Expr) string {
	if e.Kind() != ast.IdentKind {
		return ""
	}
	return strings.TrimPrefix(e.AsIdent(), ".")
}

func isIdent(e ast.Expr, name string) bool { return ident(e) == name }

func isCall(e ast.Expr, function string) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function
}

// selection returns the operand and the field of a part of an expression that reads a field, optional says with ?.
func selection(e ast.Expr) (operand ast.Expr, name string, optional, ok bool) {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), false, true
	case isCall(e, operators.OptSelect):
		name, _ = literal(e.AsCall().Args()[1])
		return e.AsCall().Args()[0], name, true, true
	default:
		return nil, "", false, false
	}
}

// literal returns the text of a literal string.
func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	v, ok := e.AsLiteral().(types.String)
	return string(v), ok
}

// path returns a chain of fields from a variable, "request.kind.kind", and "" for
// anything else.
func path(e ast.Expr) string {
	if e.Kind() != ast.SelectKind {
		return ident(e)
	}
	before := path(e.AsSelect().Operand())
	if before == "" || e.AsSelect().IsTestOnly() {
		return ""
	}
	return before + "." + e.AsSelect().FieldName()
}

// operations returns those that the policy is about.
func (s *subject) operations() []operation {
	if s.spec.MatchConstraints == nil {
		return nil
	}
	var out []operation
	for i := range s.spec.MatchConstraints.ResourceRules {
		for _, o := range s.spec.MatchConstraints.ResourceRules[i].Operations {
			if o == admissionregistrationv1.OperationAll {
				return []operation{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect}
			}
			if !slices.Contains(out, o) {
				out = append(out, o)
			}
		}
	}
	return out
}

// isPrerequisite reports whether others of the policy depend on the expression:
// a condition, or a variable.
func (e *expression) isPrerequisite() bool { return e.role == condition || e.role == variable }

// mentions reports whether an expression, a condition or a variable has a part
// that the function recognises.
func (s *subject) mentions(e *expression, recognise func(ast.Expr) bool) bool {
	return slices.ContainsFunc(s.expressions, func(other *expression) bool {
		return (other == e || other.isPrerequisite()) && contains(other.plain.AST.Expr(), recognise)
	})
}

// variableOf returns the name of a variable of the policy that a part of an expression
// is, and "".
func variableOf(e ast.Expr) string {
	if e.Kind() != ast.SelectKind || !isIdent(e.AsSelect().Operand(), plugincel.VariableVarName) {
		return ""
	}
	return e.AsSelect().FieldName()
}
