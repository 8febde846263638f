package policy

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// document is what findings about one document are reported to.
type document struct {
	source, object string
	findings       *diagnostic.List
}

// errorf reports what keeps the document from being used.
func (d document) errorf(path *field.Path, hint, format string, args ...any) {
	d.add(diagnostic.Error, pathText(path), hint, fmt.Sprintf(format, args...))
}

// warnf reports what is worth a person's time and changes nothing.
func (d document) warnf(path *field.Path, hint, format string, args ...any) {
	d.add(diagnostic.Warning, pathText(path), hint, fmt.Sprintf(format, args...))
}

func (d document) add(severity diagnostic.Severity, place, hint, message string) {
	*d.findings = append(*d.findings, diagnostic.Diagnostic{
		Severity: severity, Source: d.source, Object: d.object, Field: place, Message: message, Hint: hint,
	})
}

// pathText is the text of a path; nil stands for the whole document.
func pathText(path *field.Path) string {
	if path == nil {
		return ""
	}
	return path.String()
}

// upstream reports the findings of a validating function of apimachinery.
func (d document) upstream(errs field.ErrorList) {
	for _, err := range errs {
		body := err.ErrorBody()
		first, size := utf8.DecodeRuneInString(body)
		d.add(diagnostic.Error, err.Field, "", string(unicode.ToLower(first))+body[size:])
	}
}

// oneOf reports a value that is not among those allowed.
func (d document) oneOf(path *field.Path, value string, allowed ...string) {
	d.errorf(path, diagnostic.DidYouMean(value, allowed...), "%q is not allowed; allowed are %s", value, quotedList(allowed))
}

// required reports a field that must be there and is not.
func (d document) required(path *field.Path, hint string) {
	d.errorf(path, hint, "is required")
}

// duplicate reports a value that occurs twice where it must not.
func (d document) duplicate(path *field.Path, value string) {
	d.errorf(path, "", "%q occurs twice", value)
}

func quotedList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(quoted, ", ")
}
