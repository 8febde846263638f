package lint

import (
	_ "embed" // codes.txtar
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/txtar"
)

// Code names a diagnostic, for people who look it up and for v1alpha1.LintIgnoreAnnotation. Codes
// do not change.
type Code string

// The codes, each with what explains it in codes.txtar.
const (
	// Type is an expression that does not fit the schema of a kind.
	Type Code = "type"
	// OptionalField is a field or key that an object need not have.
	OptionalField Code = "optional-field"
	// NullObject is object on DELETE, or oldObject on CREATE.
	NullObject Code = "null-object"
	// NamespaceObject is namespaceObject in a match condition.
	NamespaceObject Code = "namespace-object"
	// UnknownResource is a resource that its API group does not have.
	UnknownResource Code = "unknown-resource"
	// Operation is an operation that a resource never has.
	Operation Code = "operation"
	// Subresource is a subresource by which what a policy checks changes, and which no policy matches.
	Subresource Code = "subresource"
	// Scope is a scope that a rule's resources do not have.
	Scope Code = "scope"
	// Wildcard is a resource with a wildcard that matches more than its subresources.
	Wildcard Code = "wildcard"
	// DroppedWarning is a message with a character for which the API server drops the warning.
	DroppedWarning Code = "dropped-warning"
	// BeingDeleted is an expression that spares objects that are being deleted.
	BeingDeleted Code = "being-deleted"
	// Expensive is an expression that may cost more than the API server allows.
	Expensive Code = "expensive"
	// DoubleBraces is a string of a sidecar template that looks like a template of Helm or Istio.
	DoubleBraces Code = "double-braces"
	// Expired is an exception or a baseline that does nothing any more.
	Expired Code = "expired"
	// ExpiresSoon is a baseline with violations that will be refused soon.
	ExpiresSoon Code = "expires-soon"
	// TwoPolicies is an exception from two policies of one name.
	TwoPolicies Code = "two-policies"
	// ContainerNames is an exception of containers by their names alone.
	ContainerNames Code = "container-names"
	// AtomicField is an atomic field that an ApplyConfiguration sets.
	AtomicField Code = "atomic-field"
	// TokenVolume is a patch that replaces the volumes of pods.
	TokenVolume Code = "token-volume"
	// Resize is a mutating policy that matches pods/resize.
	Resize Code = "resize"
	// TokenScope is a scope of tokens, which counts only if the API server enforces it.
	TokenScope Code = "token-scope"

	// The others are about files of which an API server reads admission policies and webhooks, see Static. They are errors.

	// StaticKind is a document of another kind, or of the kinds of two plugins.
	StaticKind Code = "static-kind"
	// StaticName is a name without the ending of names in files, or one that is there twice.
	StaticName Code = "static-name"
	// StaticParams is a policy or binding with params.
	StaticParams Code = "static-params"
	// StaticReference is a binding whose policy is in another place.
	StaticReference Code = "static-reference"
	// StaticService is a webhook without a URL.
	StaticService Code = "static-service"
	// StaticInvalid is an object that the API server refuses wherever it is.
	StaticInvalid Code = "static-invalid"
	// StaticUnread is a file that the API server does not read.
	StaticUnread Code = "static-unread"
)

// explanation explains a code to users.
type explanation struct {
	code Code
	// summary is on one line, meaning says when the code is reported, and remedy what to do.
	summary, meaning, remedy string
	// example has the mistake: a document, or the spec of a ValidatingAdmissionPolicy.
	example string
}

//go:embed codes.txtar
var codesText []byte

// explanations returns those of all codes, in the order of codes.txtar.
var explanations = sync.OnceValue(func() (all []explanation) { //nolint:gochecknoglobals // a constant table
	files := txtar.Parse(codesText).Files
	for i := 0; i+1 < len(files); i += 2 {
		parts := strings.SplitN(strings.TrimSpace(string(files[i].Data)), "\n\n", 3)
		all = append(all, explanation{Code(files[i].Name), parts[0], parts[1], parts[2], strings.TrimSpace(string(files[i+1].Data))})
	}
	return all
})

// Codes returns all codes, in the order in which they are documented.
func Codes() []Code {
	var all []Code
	for _, e := range explanations() {
		all = append(all, e.code)
	}
	return all
}

// Summary returns what a code means on one line, and "" for what is no code.
func Summary(code Code) string {
	return find(code).summary
}

// Explain returns what a code means, an example and what to do. It is empty for what is no code.
func Explain(code Code) string {
	e := find(code)
	if e.code == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s\n\n%s\n\nExample:\n\n  %s\n\nWhat to do:\n\n%s\n", e.code, e.summary, e.meaning, strings.ReplaceAll(Example(code), "\n", "\n  "), e.remedy)
}

// Example returns a document with the mistake.
func Example(code Code) string {
	e := find(code)
	if strings.HasPrefix(e.example, "apiVersion: ") {
		return e.example
	}
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: example}\nspec:\n  " + strings.ReplaceAll(e.example, "\n", "\n  ")
}

func find(code Code) explanation {
	all := explanations()
	if i := slices.IndexFunc(all, func(e explanation) bool { return e.code == code }); i >= 0 {
		return all[i]
	}
	return explanation{}
}
