package validation

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Names are the names that an expression may use besides object, oldObject, request and
// namespaceObject.
type Names struct {
	Params, Authorizer bool
	// Variables are the names of the policy's variables, declared or not.
	Variables []string
}

// ExpressionError reports why an expression does not compile, each cause with its place.
func (r Reporter) ExpressionError(path *field.Path, expression string, err *apiservercel.Error, names Names) {
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
		r.Errorf(path, hint, "%q %s", diagnostic.Excerpt(expression, 1, 1), err.Detail)
		return
	}
	for _, issue := range compilation.Issues.Errors() {
		line, column := issue.Location.Line(), issue.Location.Column()+1
		message, _, _ := strings.Cut(issue.Message, " (in container")
		message, hint := names.explain(strings.TrimSpace(message))
		syntax := strings.Contains(message, "Syntax error")
		if syntax {
			hint = cmp.Or(bracesHint(expression), hint)
		}
		r.ErrorIn(path, diagnostic.Place{Text: expression, Line: line, Column: column}, hint, message)
		if syntax && hint != "" {
			break // what follows is about the same mistake
		}
	}
}

// bracesHint returns a hint for an expression that is written like a placeholder of a template.
func bracesHint(expression string) string {
	switch begin := strings.TrimSpace(expression); {
	case strings.HasPrefix(begin, "{{"):
		return "write the CEL expression without {{ and }}"
	case strings.HasPrefix(begin, "${"):
		return "write the CEL expression without ${ and }"
	default:
		return ""
	}
}

// explain returns some of CEL's own messages in terms of policies, with a hint.
func (n Names) explain(message string) (text, hint string) {
	if name, found := quotedIn(message, "undeclared reference to"); found {
		switch {
		case name == plugincel.AuthorizerVarName || strings.HasPrefix(name, plugincel.AuthorizerVarName+"."):
			return `"authorizer" cannot be used in messages`, "ask it in a variable, or in the rule"
		case name == plugincel.ParamsVarName:
			return `"params" is not declared`, "set spec.paramKind, and paramRef in the binding"
		case name == plugincel.VariableVarName && len(n.Variables) > 0:
			return `"variables" cannot be used in match conditions`, "repeat the variable's expression"
		case name == plugincel.VariableVarName:
			return `"variables" is not declared`, "declare them in spec.variables"
		}
		known := []string{plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.RequestVarName, plugincel.NamespaceVarName}
		if n.Authorizer {
			known = append(known, plugincel.AuthorizerVarName)
		}
		if n.Params {
			known = append(known, plugincel.ParamsVarName)
		}
		if len(n.Variables) > 0 {
			known = append(known, plugincel.VariableVarName)
		}
		hint := diagnostic.DidYouMean(name, known...)
		if slices.Contains(n.Variables, name) {
			hint = fmt.Sprintf("did you mean %q?", plugincel.VariableVarName+"."+name)
		}
		if hint == "" {
			hint = diagnostic.DidYouMean(name, usualFunctions()...)
		}
		if near, _ := diagnostic.Nearest(name, known...); near != "" || hint == "" {
			hint = strings.TrimPrefix(hint+" the names here are "+strings.Join(known, ", "), " ")
		}
		return fmt.Sprintf("%q is not declared", name), hint
	}
	if name, found := quotedIn(message, "undefined field"); found {
		switch {
		case slices.Contains(n.Variables, name):
			return fmt.Sprintf("there is no field %q", name), "a variable can name only those that are declared above it"
		case slices.Contains([]string{"username", "uid", "groups", "extra"}, name):
			return fmt.Sprintf("there is no field %q", name), fmt.Sprintf("did you mean %q?", "request.userInfo."+name)
		}
		return fmt.Sprintf("there is no field %q", name), diagnostic.DidYouMean(name, slices.Concat(n.Variables, requestFields())...)
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
