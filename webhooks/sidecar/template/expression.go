package template

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celconstant "github.com/gatehouse-dev/gatehouse/webhooks/cel/constant"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// maxExpressionLength is the largest number of bytes of an expression. What
// decides more belongs into a program.
const maxExpressionLength = 10 << 10

type expression struct {
	// text is as it was written.
	text string
	// program is nil for an expression that is nothing but a parameter.
	program cel.Program
	// parameter is the index of the parameter that the expression is.
	parameter int
	kind      v1alpha1.ParameterType // of the parameter
	output    *cel.Type
	// loops is true if evaluation can take long enough to be interrupted.
	loops bool
	// quantities is true if it makes quantities of strings.
	quantities bool
	// isNever is true for a condition that is always false.
	isNever bool
	// names are the variables that the expression names.
	names []string
}

func (e *expression) uses(variable string) bool { return slices.Contains(e.names, variable) }

// use is what an expression is for.
type use byte

const (
	forPlaceholder use = iota
	forCondition
	uses // how many uses there are
)

// compile compiles an expression whose text is at path.
func (s *Scope) compile(path, text string, use use) (*expression, diagnostic.List) {
	var r report
	switch {
	case len(text) > maxExpressionLength:
		r.errorf(path, "", "the expression is longer than %d bytes", maxExpressionLength)
		return nil, r.found
	case strings.TrimSpace(text) == "":
		r.errorf(path, "", "the expression is empty")
		return nil, r.found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := source{text, use}
	if e, ok := s.compiled[key]; ok {
		return e, nil
	}
	var e *expression
	if use == forPlaceholder {
		e = s.plain(text)
	}
	if e == nil {
		if e = s.program(&r, path, text, use); e == nil {
			return nil, r.found
		}
	}
	s.compiled[key] = e
	return e, nil
}

// plain returns the expression of a text that is nothing but a parameter, which takes
// no CEL to evaluate.
func (s *Scope) plain(text string) *expression {
	name, ok := strings.CutPrefix(strings.TrimSpace(text), "params.")
	if !ok {
		return nil
	}
	i, ok := s.index[name]
	if !ok || !namePattern.MatchString(name) || isReserved(name) {
		return nil
	}
	return &expression{text: text, parameter: i, kind: s.parameters[i].kind, output: celType(s.parameters[i].kind), names: []string{"params"}}
}

func (s *Scope) program(r *report, path, text string, use use) *expression {
	if err := s.budget.Add(text); err != nil {
		r.errorf(path, celbound.DocumentHint, "%q: %v", excerpt(text), err)
		return nil
	}
	renamed, ok := rename(text)
	if !ok {
		r.errorf(path, `write "namespace"`, "%q: %q is not declared", excerpt(text), NamespaceVariable)
		return nil
	}
	env, err := s.env(use)
	if err != nil {
		r.errorf(path, "", "cannot be compiled: %v", err)
		return nil
	}
	// No field has a larger type than those of Kubernetes' own objects.
	parsed, issues, err := s.environment.bounds.ParseWithin(s.budget, env, renamed, nil)
	if err != nil {
		r.errorf(path, boundHint(err), "%q: %v", excerpt(text), err)
		return nil
	}
	var checked *cel.Ast
	if issues.Err() == nil {
		checked, issues = env.Check(parsed)
	}
	if issues.Err() != nil {
		s.issues(r, path, text, issues.Errors(), use)
		return nil
	}
	e := &expression{text: text, output: checked.OutputType(), quantities: callsQuantity(checked.NativeRep().Expr())}
	if !e.collectNames(r, path, checked.NativeRep().Expr()) {
		return nil
	}
	cost, err := env.EstimateCost(checked, &library.CostEstimator{SizeEstimator: sizes{}})
	switch {
	case err != nil:
		r.errorf(path, "", "%q: its cost cannot be estimated: %v", excerpt(text), err)
		return nil
	case cost.Min > celconfig.PerCallLimit:
		r.errorf(path, "", "%q costs at least %d: at most %d is allowed", excerpt(text), cost.Min, celconfig.PerCallLimit)
		return nil
	}
	options := []cel.ProgramOption{cel.InterruptCheckFrequency(celconfig.CheckFrequency), cel.CostLimit(celconfig.PerCallLimit)}
	if s.environment.option != nil {
		options = append(options, s.environment.option(env))
	}
	e.program, err = env.Program(checked, options...)
	if err != nil {
		r.errorf(path, "", "%q: %v", excerpt(text), err)
		return nil
	}
	e.isNever = use == forCondition && checked.OutputType().IsExactType(cel.BoolType) && languageOf(env, options).IsFalse(checked.NativeRep())
	return e
}

// languageOf returns the language of conditions, for which those are found that are never true.
func languageOf(env *cel.Env, options []cel.ProgramOption) celconstant.Language {
	return celconstant.Language{
		IsVariable: isVariable,
		Evaluate: func(part *ast.AST) ref.Val {
			program, err := env.PlanProgram(part, options...)
			if err != nil {
				return nil
			}
			result, _, err := program.Eval(cel.NoVars())
			if err != nil {
				return nil
			}
			return result
		},
	}
}

// isVariable reports whether a name in a compiled expression is one of those that expressions are given.
func isVariable(name string) bool {
	switch originalName(name) {
	case "pod", "namespace", "params", "presets":
		return true
	default:
		return false
	}
}

// boundHint returns a hint for an expression or pattern that is too large to compile.
func boundHint(err error) string {
	if errors.Is(err, celbound.ErrDocument) {
		return celbound.DocumentHint
	}
	return celbound.Hint
}

// env returns what expressions for the use are compiled in. Conditions do not know
// params: they are looked at before parameters are, because whom a profile is
// about does not depend on what a pod wants of it.
func (s *Scope) env(use use) (*cel.Env, error) {
	if env := s.envs[use]; env != nil {
		return env, nil
	}
	options := []cel.EnvOption{cel.CustomTypeProvider(s.provider), cel.Variable("presets", cel.ObjectType(presetsType))}
	if use == forPlaceholder {
		options = append(options, cel.Variable("params", cel.ObjectType(paramsType)))
	}
	env, err := s.environment.cel.Extend(options...)
	if err != nil {
		return nil, err
	}
	s.envs[use] = env
	return env, nil
}

// issues reports what CEL has to say about the text.
func (s *Scope) issues(r *report, path, text string, issues []*cel.Error, use use) {
	for _, issue := range issues {
		message, _, _ := strings.Cut(issue.Message, " (in container")
		// Without a place, it is about the whole.
		in := diagnostic.Place{Text: text, Line: max(issue.Location.Line(), 1), Column: max(issue.Location.Column(), 0) + 1}
		message, hint := s.explain(strings.TrimSpace(message), in, use)
		syntax := strings.Contains(issue.Message, "Syntax error")
		if use == forPlaceholder && (syntax || undeclared.MatchString(issue.Message)) {
			hint = shellHint(text, hint)
		}
		switch {
		case syntax && strings.HasPrefix(strings.TrimSpace(text), "{"):
			hint = "write ${…} with one brace: it holds a CEL expression"
		case hint == "" && undeclared.MatchString(issue.Message):
			hint = declaredHere(use)
		}
		r.found = append(r.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: in.Message("%s", message), In: in, Hint: hint})
		if syntax {
			break // what follows is about the same mistake
		}
	}
}

// collectNames notes the variables that the expression names.
func (e *expression) collectNames(r *report, path string, root ast.Expr) bool {
	good := true
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() { //nolint:exhaustive // the others hold no names
		case ast.IdentKind:
			if name := originalName(x.AsIdent()); isVariable(x.AsIdent()) && !e.uses(name) {
				e.names = append(e.names, name)
			}
		case ast.ComprehensionKind:
			e.loops = true
		case ast.StructKind:
			good = false
			r.errorf(path, "", "%q: an expression cannot construct an object", excerpt(e.text))
		}
	}))
	return good
}

// originalName returns a text with the name of the variable as authors write it.
func originalName(text string) string {
	return strings.ReplaceAll(text, NamespaceVariable, "namespace")
}

// sizes knows nothing about the sizes of variables: only the least cost is of
// interest.
type sizes struct{}

func (sizes) EstimateSize(checker.AstNode) *checker.SizeEstimate { return nil }

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// excerpt returns the first line of an expression, cut to a length that a message can hold.
func excerpt(expression string) string { return diagnostic.Excerpt(expression, 1, 1) }

// Condition is a match condition. It is immutable and safe for concurrent use.
type Condition struct {
	path string
	*expression
}

// Condition compiles a match condition, whose text is at path. It must be a
// boolean, and cannot read parameters: an Input needs no Params for it. With
// findings there is no condition.
func (s *Scope) Condition(path, expression string) (*Condition, diagnostic.List) {
	var r report
	e, found := s.compile(path, expression, forCondition)
	if len(found) > 0 {
		if strings.HasPrefix(strings.TrimSpace(expression), "${") {
			r.errorf(path, "remove ${ and }", "%q is a placeholder, expected an expression", excerpt(expression))
			return nil, r.found
		}
		return nil, found
	}
	kind, known, ok := staticKind(e.output)
	if known && ok && kind == types.BoolKind && !isOptional(e.output) {
		return &Condition{path, e}, nil
	}
	if !known {
		r.errorf(path, `compare it, as in "… == true"`, "the type of %q depends on the pod, expected a boolean", excerpt(expression))
		return nil, r.found
	}
	r.errorf(path, "", "%q is of type %s, expected a boolean", excerpt(expression), typeName(e.output.String()))
	return nil, r.found
}

// IsNever reports whether the condition is certainly never true, as "1 == 2".
func (c *Condition) IsNever() bool { return c.isNever }

// Eval reports whether the condition is true for the input. The error is an
// *EvaluationError, or ErrCannotDecide.
func (c *Condition) Eval(in *Input) (bool, error) {
	result, err := c.eval(c.path, in)
	if err != nil {
		return false, err
	}
	is, ok := result.(types.Bool)
	if !ok {
		return false, c.failed(c.path, "is "+strconv.Quote(string(appendText(nil, result)))+", expected a boolean")
	}
	return bool(is), nil
}
