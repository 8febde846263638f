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

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celhint "github.com/gatehouse-dev/gatehouse/webhooks/cel/hint"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
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
	var loopVariables []string
	for _, issue := range compilation.Issues.Errors() {
		at := diagnostic.Place{Text: expression, Line: issue.Location.Line(), Column: issue.Location.Column() + 1}
		message, _, _ := strings.Cut(issue.Message, " (in container")
		message = strings.TrimSpace(message)
		if name, found := quotedIn(message, "undeclared reference to"); found {
			if slices.Contains(loopVariables, name) {
				continue // the function that declares it is unknown
			}
			if celhint.IsCall(at) {
				loopVariables = append(loopVariables, celhint.LoopVariable(at))
			}
		}
		message, hint := names.explain(message, at)
		syntax := strings.Contains(message, "Syntax error")
		if syntax {
			hint = cmp.Or(bracesHint(expression, at), celhint.Syntax(at))
		}
		r.ErrorIn(path, at, hint, message)
		if syntax || celhint.Reserved(issue.Message) != "" {
			break // what follows is about the same mistake
		}
	}
}

// bracesHint returns a hint for a syntax error in an expression that has a placeholder of a template.
func bracesHint(expression string, at diagnostic.Place) string {
	lines := strings.Split(expression, "\n")
	line := []rune(lines[min(max(at.Line, 1), len(lines))-1])
	// The error is at the end of a placeholder, or at its $.
	begin := string(line[:min(at.Column+1, len(line))])
	switch {
	case strings.Contains(begin, "{{"):
		return "write the CEL expression without {{ and }}"
	case strings.Contains(begin, "${"):
		return "write the CEL expression without ${ and }"
	default:
		return ""
	}
}

// explain returns some of CEL's own messages in terms of policies, with a hint.
func (n Names) explain(message string, at diagnostic.Place) (text, hint string) {
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
		text = fmt.Sprintf("%q is not declared", name)
		if celhint.IsCall(at) {
			return text, celhint.Function(name)
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
		if slices.Contains(n.Variables, name) {
			return text, fmt.Sprintf("did you mean %q?", plugincel.VariableVarName+"."+name)
		}
		if hint := fieldHint(name); hint != "" {
			return text, hint
		}
		hint := diagnostic.DidYouMean(name, known...)
		return text, strings.TrimPrefix(hint+" the names here are "+strings.Join(known, ", "), " ")
	}
	if word := celhint.Reserved(message); word != "" {
		hint := ""
		switch word {
		case "namespace":
			hint = fmt.Sprintf("did you mean %q? the name of the namespace is request.namespace", plugincel.NamespaceVarName)
		case "let", "var", "const":
			hint = "declare variables in spec.variables"
		}
		return fmt.Sprintf("%q is a reserved word of CEL", word), hint
	}
	if name, found := quotedIn(message, "undefined field"); found {
		switch {
		case slices.Contains(n.Variables, name):
			return fmt.Sprintf("there is no field %q", name), "a variable can name only those that are declared above it"
		case slices.Contains([]string{"user", "username", "uid", "groups", "extra"}, name):
			return fmt.Sprintf("there is no field %q", name), fieldHint(name)
		}
		return fmt.Sprintf("there is no field %q", name), diagnostic.DidYouMean(name, slices.Concat(n.Variables, requestFields())...)
	}
	if strings.Contains(message, "invalid argument to has() macro") {
		return message, "has takes a field, as in has(object.spec.replicas); for a key of a map write 'key' in map"
	}
	message, _, _ = strings.Cut(message, " expecting {") // all that CEL has
	return message, ""
}

// fieldHint returns a hint for a name that is that of a field, or of a variable in other languages.
func fieldHint(name string) string {
	meant := ""
	switch name {
	case "self", "this", "obj", "resource", "input":
		meant = plugincel.ObjectVarName
	case "old", "oldSelf", "oldObj":
		meant = plugincel.OldObjectVarName
	case "apiVersion", "kind", "metadata", "spec", "status", "data":
		meant = "object." + name
	case "labels", "annotations", "name":
		meant = "object.metadata." + name
	case "containers", "initContainers", "volumes":
		meant = "object.spec." + name
	case "operation", "userInfo", "dryRun", "subResource":
		meant = "request." + name
	case "user":
		meant = "request.userInfo"
	case "username", "uid", "groups", "extra":
		meant = "request.userInfo." + name
	default:
		return ""
	}
	return fmt.Sprintf("did you mean %q?", meant)
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
