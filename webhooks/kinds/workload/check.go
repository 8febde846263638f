package workload

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// Field names a member of Kind, as a PolicyConfiguration writes it.
type Field string

// The fields that an Error may be about.
const (
	KindName Field = "kind"
	Group    Field = "group"
	Resource Field = "resource"
	Template Field = "template"
)

// Error is one thing that is wrong with a custom kind.
type Error struct {
	// Index is that of the kind in what New was given.
	Index int
	// Field is what is wrong, and empty if it is the kind as a whole.
	Field Field
	// Reason says what is wrong and Hint, if it is known, what would be right.
	Reason, Hint string
}

// Error names the kind by its index and says all of it.
func (e *Error) Error() string {
	text := fmt.Sprintf("[%d]", e.Index)
	if e.Field != "" {
		text += "." + string(e.Field)
	}
	text += ": " + e.Reason
	if e.Hint != "" {
		text += " (hint: " + e.Hint + ")"
	}
	return text
}

// Errors are everything that is wrong with custom kinds, in their order.
type Errors []*Error

// Error returns all of them, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// check finds everything that is wrong with custom kinds. Its error is an Errors.
func check(custom []Kind) error {
	var (
		problems  Errors
		kinds     = make(map[schema.GroupKind]bool)
		resources = make(map[schema.GroupResource]bool)
	)
	for _, k := range builtIn() {
		kinds[k.groupKind()], resources[k.groupResource()] = false, false
	}
	for i := range custom {
		k := &custom[i]
		found := k.check()
		if len(found) == 0 {
			if reason := repeated(kinds, k.groupKind()); reason != "" {
				found = append(found, &Error{Reason: reason})
			} else if reason = repeated(resources, k.groupResource()); reason != "" && k.Resource != "" {
				found = append(found, &Error{Field: Resource, Reason: reason})
			}
		}
		for _, e := range found {
			e.Index = i
			problems = append(problems, e)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}

// repeated notes a key, and says why it must not be given if it was there
// already. What is built in is there as false.
func repeated[K interface {
	comparable
	fmt.Stringer
}](seen map[K]bool, key K) string {
	given, known := seen[key]
	switch {
	case !known:
		seen[key] = true
		return ""
	case given:
		return key.String() + " is given twice"
	default:
		return key.String() + " is built in"
	}
}

func (k *Kind) check() []*Error {
	var found []*Error
	report := func(field Field, hint, format string, args ...any) {
		found = append(found, &Error{Field: field, Reason: fmt.Sprintf(format, args...), Hint: hint})
	}
	const most = 100 // characters of what is quoted
	if k.Kind == "" || k.Kind[0] < 'A' || k.Kind[0] > 'Z' {
		report(KindName, "a kind as manifests write it, such as Rollout, and not a resource",
			"%q does not begin with a capital letter", strict.Cut(k.Kind, most))
	}
	switch group := strict.Cut(k.Group, most); {
	case group == "":
		report(Group, "such as argoproj.io", "the API group of kind %q is required", strict.Cut(k.Kind, most))
	case strings.Contains(k.Group, "/"):
		report(Group, "such as argoproj.io", "the API group %q must be without a version", group)
	case len(validation.IsDNS1123Subdomain(k.Group)) > 0:
		report(Group, "such as argoproj.io", "%q is not an API group", group)
	}
	if k.Resource != "" && len(validation.IsDNS1035Label(k.Resource)) > 0 {
		report(Resource, "such as rollouts", "%q is not a resource: the plural of the kind in lower case", strict.Cut(k.Resource, most))
	}
	path := strings.Join(k.Template, ".")
	last := len(k.Template) - 1
	switch shown := strict.Cut(path, most); {
	case path == "" || slices.ContainsFunc(k.Template, badStep):
		report(Template, "", "%q is not the path of a pod template: write field names separated by dots, without lists", shown)
	case last > 0 && k.Template[last] == "spec":
		report(Template, fmt.Sprintf("%q", strict.Cut(strings.Join(k.Template[:last], "."), most)),
			"the path %q ends in spec: it must name the whole pod template, with its metadata", shown)
	}
	return found
}

func badStep(step string) bool { return step == "" || strings.ContainsAny(step, "[]./ \t") }
