package template

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

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

// absentHint is the hint for an expression that failed because the pod lacks a key.
const absentHint = "for what may be absent, write .?name or [?'key'], and .orValue(…) at the end"

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
		return "the expression is incomplete", celhint.Syntax(at)
	}
	if strings.Contains(message, "Syntax error") {
		hint = celhint.Syntax(at)
	}
	message, _, _ = strings.Cut(message, " expecting {") // all that CEL has
	return message, hint
}

// declared returns a hint for a name that is not.
func (s *Scope) declared(name string, use use) string {
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
