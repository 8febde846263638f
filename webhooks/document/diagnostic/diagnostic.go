// Package diagnostic has the errors and warnings that Gatehouse reports about documents:
// which document, which field, what is wrong and what is allowed.
package diagnostic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Severity is how grave a diagnostic is.
type Severity string

const (
	// Error makes the configuration that has the document invalid.
	Error Severity = "error"
	// Warning changes nothing.
	Warning Severity = "warning"
	// Note is about what a correct document needs elsewhere. Only the command lint has notes.
	Note Severity = "note"
)

// Diagnostic is an error, a warning or a note about one document.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// Source is the file, and behind a # the number of the document in it
	// where it has several: "policies/base.yaml#2".
	Source string `json:"source,omitempty"`
	// File, Line and Column are the position of Field, for editors. Line and Column count from 1, and Column counts
	// characters. Only readers of files know them: others leave them empty.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Object is kind and name: "SidecarProfile/log-shipper".
	Object string `json:"object,omitempty"`
	// Field is the path in the document: "spec.template.spec.containers[0].name".
	Field string `json:"field,omitempty"`
	// Message says what is wrong, with the offending value in quotes, and what
	// is allowed. Lower case, no full stop.
	Message string `json:"message"`
	// Hint says what to do, where that is known.
	Hint string `json:"hint,omitempty"`
	// Code names the kind of diagnostic, where it can be looked up or suppressed by
	// a name: "missing-message".
	Code string `json:"code,omitempty"`
	// In is the place in the expression at Field that Message is about. Message begins with it.
	In Place `json:"-"`
	// Others are the other objects that take part in it, with spaces between them: a
	// change of any of them could correct it. It is not shown.
	Others string `json:"-"`
	// NoEffect is true for a warning that the whole object does nothing.
	NoEffect bool `json:"-"`
}

// token matches access tokens and login tokens, which may have been put anywhere by
// mistake.
var token = regexp.MustCompile(`gatehouse(?:-login)?_[a-z0-9-]+_[A-Za-z0-9_.-]+`)

// pattern matches the regular expression in the messages of apimachinery, behind the examples that say the same to people.
var pattern = regexp.MustCompile(`(,? or)?,? regex used for validation is '[^']*'`)

// WithoutPattern returns a message of apimachinery about a name or a label without its regular expression.
func WithoutPattern(message string) string {
	if !strings.Contains(message, "regex used") {
		return message
	}
	return strings.ReplaceAll(pattern.ReplaceAllString(message, ""), ",  or ", " or ")
}

// Redacted returns the diagnostic as it may be shown: without Gatehouse's tokens, in
// whatever field they are, and without regular expressions of apimachinery.
func (d Diagnostic) Redacted() Diagnostic {
	d.Message = WithoutPattern(d.Message)
	for _, text := range []*string{&d.Source, &d.File, &d.Object, &d.Field, &d.Message, &d.Hint} {
		if strings.Contains(*text, "gatehouse") {
			*text = token.ReplaceAllString(*text, "gatehouse_…")
		}
	}
	return d
}

// MarshalJSON shows the diagnostic as Redacted.
func (d Diagnostic) MarshalJSON() ([]byte, error) {
	type plain Diagnostic
	return json.Marshal(plain(d.Redacted()))
}

// String returns the diagnostic, as Redacted, on one line and without its severity.
func (d Diagnostic) String() string {
	d = d.Redacted()
	var b strings.Builder
	for _, part := range []string{d.Source, d.Object, d.Field} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(d.Message)
	if d.Hint != "" {
		b.WriteString(" (hint: ")
		b.WriteString(d.Hint)
		b.WriteByte(')')
	}
	if d.Code != "" {
		b.WriteString(" [")
		b.WriteString(d.Code)
		b.WriteByte(']')
	}
	return OneLine(b.String())
}

// Text returns Message without the place in an expression that it begins with, as Redacted.
func (d Diagnostic) Text() string {
	d = d.Redacted()
	if d.In.Line == 0 {
		return d.Message
	}
	return strings.TrimPrefix(d.Message, Diagnostic{Message: d.In.prefix()}.Redacted().Message)
}

// List is a list of diagnostics. As an error it shows one a line.
//
//nolint:errname // a list that can be an error, and is read as a list
type List []Diagnostic

// Error joins the diagnostics, one a line. Warnings are marked.
func (l List) Error() string {
	lines := make([]string, len(l))
	for i, d := range l {
		lines[i] = d.String()
		if d.Severity == Warning {
			lines[i] = "warning: " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Err returns the list as an error if it holds a diagnostic of severity Error, and nil
// otherwise. Callers return it instead of the list, so that an empty list is
// never a non-nil error. It keeps the warnings, so that they are shown with the
// errors.
func (l List) Err() error {
	if slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Severity == Error }) {
		return l
	}
	return nil
}

// Sort puts the diagnostics into the order in which they are shown: by source,
// object and field, and in the order found within these.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		fileA, numberA := splitSource(a.Source)
		fileB, numberB := splitSource(b.Source)
		return cmp.Or(cmp.Compare(fileA, fileB), cmp.Compare(numberA, numberB), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Object, b.Object), cmp.Compare(sortable(a.Field), sortable(b.Field)))
	})
}

// sortable returns a path for comparing it with others, so that element 10 of a list comes behind element 2.
func sortable(field string) string {
	return index.ReplaceAllStringFunc(field, func(digits string) string { return fmt.Sprintf("%9s", digits) })
}

var index = regexp.MustCompile(`[0-9]+`)

// splitSource splits a Source, so that document 10 comes after document 2.
func splitSource(source string) (file string, number int) {
	at := strings.LastIndexByte(source, '#')
	if at < 0 {
		return source, 0
	}
	digits, _, _ := strings.Cut(source[at+1:], "/")
	number, _ = strconv.Atoi(digits) // what is no number sorts as 0
	return source[:at], number
}

// QuotedList returns the values in quotes, with commas between them.
func QuotedList[S ~string](values []S) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(string(v))
	}
	return strings.Join(quoted, ", ")
}

// WithoutFollowers returns the list without what may follow from errors of reading documents, which are left out then: warnings. A
// document that is read may refer to one that is not.
func (l List) WithoutFollowers(reading List) List {
	if reading.Err() == nil {
		return l
	}
	return slices.DeleteFunc(slices.Clone(l), func(d Diagnostic) bool { return d.Severity == Warning })
}
