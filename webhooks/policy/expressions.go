package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// scope is what the expressions of one policy may name.
type scope struct {
	validation.Reporter
	compiler     *expression.Compiler
	declarations expression.Declarations
	// variables are the names of the policy's variables, declared or not.
	variables []string
	// uses are the names that the expressions mention.
	uses expression.Uses
	// tooLarge is true once the expressions are too large together.
	tooLarge bool
}

// compile compiles an expression, and returns nil if there is none, or if it does
// not compile, which it reports.
func (s *scope) compile(path *field.Path, text string, results ...*cel.Type) *expression.Program {
	return s.compiled(path, text, func(text string, d expression.Declarations) (*expression.Program, *apiservercel.Error) {
		return s.compiler.Compile(text, d, results...)
	})
}

// compiled is compile by a method of the compiler.
func (s *scope) compiled(path *field.Path, text string, by func(string, expression.Declarations) (*expression.Program, *apiservercel.Error)) *expression.Program {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	compiled, err := by(text, s.declarations)
	if err != nil {
		s.refuse(path, text, err)
		return nil
	}
	s.uses |= compiled.Uses()
	return compiled
}

// refuse reports why an expression does not compile, each cause with its place.
func (s *scope) refuse(path *field.Path, expression string, err *apiservercel.Error) {
	if err == nil {
		return
	}
	if errors.Is(err.Cause, celbound.ErrDocument) {
		if s.tooLarge {
			return // said of the first expression that is too much
		}
		s.tooLarge = true
	}
	var compilation *apiservercel.CompilationError
	if !errors.As(err.Cause, &compilation) {
		hint := ""
		switch {
		case errors.Is(err.Cause, celbound.ErrTooLarge):
			hint = celbound.Hint
		case errors.Is(err.Cause, celbound.ErrDocument):
			hint = celbound.DocumentHint
		case strings.HasSuffix(err.Detail, "to string but got dyn"), strings.Contains(err.Detail, "[string null_type]") && strings.HasSuffix(err.Detail, "got dyn"):
			hint = "its type is not known before the request: write string(…) around it"
		case strings.HasSuffix(err.Detail, "got dyn"):
			hint = `its type is not known before the request: compare it, as in "… == true"`
		}
		s.Errorf(path, hint, "%q %s", excerpt(expression, 1), err.Detail)
		return
	}
	for _, issue := range compilation.Issues.Errors() {
		line, column := issue.Location.Line(), issue.Location.Column()+1
		message, _, _ := strings.Cut(issue.Message, " (in container")
		message, hint := s.explain(strings.TrimSpace(message))
		s.Errorf(path, hint, "%d:%d in %q: %s", line, column, excerpt(expression, line), message)
	}
}

// explain turns some of CEL's own messages into what a writer of policies has to
// know.
func (s *scope) explain(message string) (text, hint string) {
	if name, found := quotedIn(message, "undeclared reference to"); found {
		switch {
		case name == plugincel.AuthorizerVarName || strings.HasPrefix(name, plugincel.AuthorizerVarName+"."):
			return `"authorizer" cannot be used in messages`, "ask it in a variable, or in the rule"
		case name == plugincel.ParamsVarName:
			return `"params" is not declared`, "set spec.paramKind, and paramRef in the binding"
		case name == plugincel.VariableVarName && len(s.variables) > 0:
			return `"variables" cannot be used in match conditions`, "repeat the variable's expression"
		case name == plugincel.VariableVarName:
			return `"variables" is not declared`, "declare them in spec.variables"
		}
		known := []string{plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.RequestVarName, plugincel.NamespaceVarName}
		if s.declarations.Authorizer {
			known = append(known, plugincel.AuthorizerVarName)
		}
		if s.declarations.Params {
			known = append(known, plugincel.ParamsVarName)
		}
		if len(s.variables) > 0 {
			known = append(known, plugincel.VariableVarName)
		}
		hint := diagnostic.DidYouMean(name, known...)
		if slices.Contains(s.variables, name) {
			hint = fmt.Sprintf("did you mean %q?", plugincel.VariableVarName+"."+name)
		}
		if hint == "" {
			hint = diagnostic.DidYouMean(name, usualFunctions()...)
		}
		return fmt.Sprintf("%q is not declared", name), hint
	}
	if name, found := quotedIn(message, "undefined field"); found {
		switch {
		case slices.Contains(s.variables, name):
			return fmt.Sprintf("there is no field %q", name), "a variable can name only those that are declared above it"
		case slices.Contains([]string{"username", "uid", "groups", "extra"}, name):
			return fmt.Sprintf("there is no field %q", name), fmt.Sprintf("did you mean %q?", "request.userInfo."+name)
		}
		return fmt.Sprintf("there is no field %q", name), diagnostic.DidYouMean(name, slices.Concat(s.variables, requestFields())...)
	}
	if strings.Contains(message, "token recognition error at: '= '") {
		return message, "equality is written =="
	}
	return message, ""
}

// usualFunctions returns those that are misspelt most.
func usualFunctions() []string {
	return []string{
		"startsWith", "endsWith", "contains", "matches", "size", "string", "int", "double", "quantity", "duration", "timestamp", "lowerAscii", "upperAscii",
		"split", "join", "replace", "substring", "trim", "format", "isSorted", "indexOf", "find", "findAll", "orValue", "hasValue", "filter", "map", "all",
		"exists", "exists_one", "has", "isQuantity", "isGreaterThan", "isLessThan", "compareTo", "url", "getHost", "ip", "cidr", "semver",
	}
}

// requestFields returns the fields of the request and of what it holds.
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

// excerpt returns one line of an expression, cut to a length that a diagnostic can hold.
func excerpt(expression string, line int) string {
	const most = 80 // characters: half a line of a wide terminal
	lines := strings.Split(expression, "\n")
	text := []rune(strings.TrimSpace(lines[min(max(line, 1), len(lines))-1]))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}
