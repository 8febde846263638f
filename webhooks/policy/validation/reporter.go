// Package validation checks policies, bindings and their parts by the rules of
// the API server, and reports what it refuses as diagnostics with field paths.
// Expressions are not compiled here.
package validation

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Reporter adds the diagnostics of one document to a list.
type Reporter struct {
	// Source and Object are as in diagnostic.Diagnostic.
	Source, Object string
	List           *diagnostic.List
}

// Errorf reports an error: the document cannot be used.
func (r Reporter) Errorf(path *field.Path, hint, format string, args ...any) {
	r.Add(diagnostic.Error, pathString(path), hint, fmt.Sprintf(format, args...))
}

// ErrorIn reports an error about a place in the expression at the path.
func (r Reporter) ErrorIn(path *field.Path, in diagnostic.Place, hint, message string) {
	*r.List = append(*r.List, diagnostic.Diagnostic{
		Severity: diagnostic.Error, Source: r.Source, Object: r.Object, Field: pathString(path), Message: in.Message("%s", message), In: in, Hint: hint,
	})
}

// Warnf reports a warning.
func (r Reporter) Warnf(path *field.Path, hint, format string, args ...any) {
	r.Add(diagnostic.Warning, pathString(path), hint, fmt.Sprintf(format, args...))
}

// NoEffect warns that the document does nothing.
func (r Reporter) NoEffect(path *field.Path, hint, format string, args ...any) {
	r.Warnf(path, hint, format, args...)
	(*r.List)[len(*r.List)-1].NoEffect = true
}

// NeverTrue warns of a match condition that is never true, so that a document, which the message calls what, does nothing.
func (r Reporter) NeverTrue(path *field.Path, condition, what string) {
	r.NoEffect(path, "", "%q is never true, so the %s does nothing", diagnostic.Excerpt(condition, 1, 1), what)
}

// CheckReach warns of a policy, or of a binding if that is not nil, that matches no request, and
// reports whether it may match one.
func (r Reporter) CheckReach(policy, binding *admissionregistrationv1.MatchResources) bool {
	why := matching.WhyNever(policy, binding)
	switch {
	case why == "":
		return true
	case binding == nil:
		r.NoEffect(field.NewPath("spec", "matchConstraints"), "", "%s, so the policy does nothing", why)
	default:
		r.NoEffect(field.NewPath("spec", "matchResources"), "a request has to match both", "%s, so the binding does nothing", why)
	}
	return false
}

// Add reports a diagnostic of a field.
func (r Reporter) Add(severity diagnostic.Severity, field, hint, message string) {
	*r.List = append(*r.List, diagnostic.Diagnostic{
		Severity: severity, Source: r.Source, Object: r.Object, Field: field, Message: message, Hint: hint,
	})
}

// pathString returns the path as a string; nil stands for the whole document.
func pathString(path *field.Path) string {
	if path == nil {
		return ""
	}
	return path.String()
}

// FieldErrors reports the errors of a validation function of apimachinery.
func (r Reporter) FieldErrors(errs field.ErrorList) {
	for _, err := range errs {
		body := err.ErrorBody()
		first, size := utf8.DecodeRuneInString(body)
		r.Add(diagnostic.Error, err.Field, "", string(unicode.ToLower(first))+body[size:])
	}
}

// NotSupported reports a value that is not one of those allowed.
func (r Reporter) NotSupported(path *field.Path, value string, allowed ...string) {
	r.Errorf(path, diagnostic.DidYouMean(value, allowed...), "%q is not allowed; allowed are %s", value, diagnostic.QuotedList(allowed))
}

// Required reports a required field that is missing.
func (r Reporter) Required(path *field.Path, hint string) {
	r.Errorf(path, hint, "is required")
}

// Duplicate reports a value that occurs twice.
func (r Reporter) Duplicate(path *field.Path, value string) {
	r.Errorf(path, "", "%q occurs twice", value)
}
