package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
)

// CompatibilityVersion is the Kubernetes version that the CEL environment is
// built for. It is written down, and not taken from the library, so that a new
// library cannot change what an expression means without this line changing.
// It equals the library's environment.DefaultCompatibilityVersion.
const CompatibilityVersion = "1.36"

// expressions compiles the expressions of policies, in the environment in which
// the API server compiles those of stored policies.
type expressions struct {
	environment *environment.EnvSet
	// plain is shared by all expressions that are outside the reach of variables:
	// an environment of its own for each policy would cost about 100 KiB each.
	plain plugincel.Compiler
}

func newExpressions() *expressions {
	base := environment.MustBaseEnvSet(version.MustParseMajorMinor(CompatibilityVersion))
	return &expressions{environment: base, plain: plugincel.NewCompiler(base)}
}

// program is what the expressions of one policy compile to.
type program struct {
	// conditions is nil for a policy without match conditions.
	conditions matchconditions.Matcher
	// validator has the validations and audit annotations, and the conditions
	// too unless they are evaluated apart. It is nil for a policy with neither.
	validator validating.Validator
	// looksAtObject, and looksAtNamespace, are false if no expression can see the
	// object or the old object, or the namespace.
	looksAtObject, looksAtNamespace bool
	// looksAtManagedFields is false if no expression can see the managed fields
	// of the object or the old object.
	looksAtManagedFields bool
}

// compile reports every expression that does not compile. apart keeps the match
// conditions out of the validator.
func (e *expressions) compile(d document, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, apart bool) *program {
	path := field.NewPath("spec")
	// No authorizer is declared: there is none to ask.
	given := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil}
	s := scope{document: d, compiler: e.plain, given: given}
	for _, v := range spec.Variables {
		s.variables = append(s.variables, v.Name)
	}

	// As in the API server's validation, match conditions have no variables.
	accessors := make([]plugincel.ExpressionAccessor, len(spec.MatchConditions))
	for i := range spec.MatchConditions {
		accessors[i] = (*matchconditions.MatchCondition)(&spec.MatchConditions[i])
	}
	out := new(program)
	if conditions := s.condition(path.Child("matchConditions"), "expression", accessors); len(accessors) > 0 {
		out.conditions = matchconditions.NewMatcher(conditions, spec.FailurePolicy, "policy", "validate", name)
	}

	if len(spec.Variables) > 0 {
		if !s.declare(e.environment, spec.Variables, path.Child("variables")) {
			return out
		}
	}
	validations := make([]plugincel.ExpressionAccessor, len(spec.Validations))
	messages := make([]plugincel.ExpressionAccessor, len(spec.Validations))
	for i, rule := range spec.Validations {
		validations[i] = &validating.ValidationCondition{Expression: rule.Expression, Message: rule.Message, Reason: rule.Reason}
		if strings.TrimSpace(rule.MessageExpression) != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: rule.MessageExpression}
		}
	}
	annotations := make([]plugincel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i, a := range spec.AuditAnnotations {
		annotations[i] = &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
	}
	rules := s.condition(path.Child("validations"), "expression", validations)
	texts := s.condition(path.Child("validations"), "messageExpression", messages)
	notes := s.condition(path.Child("auditAnnotations"), "valueExpression", annotations)

	if len(validations) > 0 || len(annotations) > 0 {
		within := out.conditions
		if apart {
			within = nil
		}
		out.validator = validating.NewValidator(rules, within, notes, texts, spec.FailurePolicy, nil)
	}
	out.looksAtObject = s.mentions("object") || s.mentions("oldObject")
	out.looksAtNamespace = s.mentions("namespaceObject")
	out.looksAtManagedFields = readsManagedFields(e.environment.StoredExpressionsEnv(), s.texts)
	return out
}

// scope is what the expressions of one policy may name.
type scope struct {
	document
	given     plugincel.OptionalVariableDeclarations
	variables []string
	// composed is nil until variables are declared.
	composed *plugincel.CompositedCompiler
	compiler plugincel.Compiler
	texts    []string
}

// declare compiles the policy's variables, for the expressions that are compiled
// from now on.
func (s *scope) declare(base *environment.EnvSet, variables []admissionregistrationv1.Variable, path *field.Path) bool {
	composed, err := plugincel.NewCompositedCompiler(base)
	if err != nil {
		s.errorf(path, "", "cannot be declared: %v", err)
		return false
	}
	for i, v := range variables {
		if strings.TrimSpace(v.Expression) == "" {
			continue
		}
		s.texts = append(s.texts, v.Expression)
		result := composed.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, s.given, environment.StoredExpressions)
		s.refuse(path.Index(i).Child("expression"), v.Expression, result.Error)
	}
	s.composed, s.compiler = composed, composed
	return true
}

// condition compiles a list of expressions, in which nil stands for none.
func (s *scope) condition(path *field.Path, name string, accessors []plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
	results := make([]plugincel.CompilationResult, len(accessors))
	for i, accessor := range accessors {
		if accessor == nil || strings.TrimSpace(accessor.GetExpression()) == "" {
			continue
		}
		s.texts = append(s.texts, accessor.GetExpression())
		results[i] = s.compiler.CompileCELExpression(accessor, s.given, environment.StoredExpressions)
		s.refuse(path.Index(i).Child(name), accessor.GetExpression(), results[i].Error)
	}
	evaluator := plugincel.NewCondition(results)
	if s.composed == nil {
		return evaluator
	}
	// The compiler adds the variables to whatever its own part compiles.
	s.composed.ConditionCompiler = compiled{evaluator}
	return s.composed.CompileCondition(nil, s.given, environment.StoredExpressions)
}

// compiled is the part of a CompositedCompiler whose work is done already.
type compiled struct{ plugincel.ConditionEvaluator }

func (c compiled) CompileCondition([]plugincel.ExpressionAccessor, plugincel.OptionalVariableDeclarations, environment.Type) plugincel.ConditionEvaluator {
	return c.ConditionEvaluator
}

// mentions is false if no expression can refer to the name: CEL has no way to
// write an identifier but literally.
func (s *scope) mentions(name string) bool {
	return slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(text, name) })
}

// refuse reports why an expression does not compile, each cause with its place.
func (s *scope) refuse(path *field.Path, expression string, err *apiservercel.Error) {
	if err == nil {
		return
	}
	var compilation *apiservercel.CompilationError
	if !errors.As(err.Cause, &compilation) {
		hint := ""
		switch {
		case strings.HasSuffix(err.Detail, "to string but got dyn"):
			hint = "its type is not known before the request: write string(…) around it"
		case strings.HasSuffix(err.Detail, "got dyn"):
			hint = `its type is not known before the request: compare it, as in "… == true"`
		}
		s.errorf(path, hint, "%q %s", excerpt(expression, 1), err.Detail)
		return
	}
	for _, issue := range compilation.Issues.Errors() {
		line, column := issue.Location.Line(), issue.Location.Column()+1
		message, _, _ := strings.Cut(issue.Message, " (in container")
		message, hint := s.explain(strings.TrimSpace(message))
		s.errorf(path, hint, "%d:%d in %q: %s", line, column, excerpt(expression, line), message)
	}
}

// explain turns some of CEL's own messages into what a writer of policies has to
// know.
func (s *scope) explain(message string) (text, hint string) {
	if name, found := quotedIn(message, "undeclared reference to"); found {
		switch {
		case name == plugincel.AuthorizerVarName || strings.HasPrefix(name, plugincel.AuthorizerVarName+"."):
			return `"authorizer" is not available`, "decide by request.userInfo, or leave this policy to the API server"
		case name == plugincel.ParamsVarName:
			return `"params" is not declared`, "set spec.paramKind, and paramRef in the binding"
		case name == plugincel.VariableVarName && len(s.variables) > 0:
			return `"variables" cannot be used in match conditions`, "repeat the variable's expression"
		case name == plugincel.VariableVarName:
			return `"variables" is not declared`, "declare them in spec.variables"
		}
		known := []string{plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.RequestVarName, plugincel.NamespaceVarName}
		if s.given.HasParams {
			known = append(known, plugincel.ParamsVarName)
		}
		if len(s.variables) > 0 {
			known = append(known, plugincel.VariableVarName)
		}
		hint := finding.DidYouMean(name, known...)
		if slices.Contains(s.variables, name) {
			hint = fmt.Sprintf("did you mean %q?", plugincel.VariableVarName+"."+name)
		}
		return fmt.Sprintf("%q is not declared", name), hint
	}
	if name, found := quotedIn(message, "undefined field"); found {
		return fmt.Sprintf("there is no field %q", name), finding.DidYouMean(name, slices.Concat(s.variables, requestFields())...)
	}
	if strings.Contains(message, "token recognition error at: '= '") {
		return message, "equality is written =="
	}
	return message, ""
}

// requestFields are the fields of the request and of what it holds.
func requestFields() []string {
	return []string{
		"kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace",
		"operation", "userInfo", "dryRun", "options", "group", "version", "username", "uid", "groups", "extra",
	}
}

func quotedIn(message, behind string) (string, bool) {
	match := regexp.MustCompile(regexp.QuoteMeta(behind) + ` '([^']*)'`).FindStringSubmatch(message)
	if match == nil {
		return "", false
	}
	return match[1], true
}

// excerpt is one line of an expression, cut to a length that a finding can hold.
func excerpt(expression string, line int) string {
	const most = 80 // characters: half a line of a wide terminal
	lines := strings.Split(expression, "\n")
	text := []rune(strings.TrimSpace(lines[min(max(line, 1), len(lines))-1]))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}
