// Package diagnostic is the form of everything that Gatehouse has to say about a
// document that it was given: which document, where in it, what is wrong and
// what would be right.
package diagnostic

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Severity tells whether a finding keeps a configuration from being used.
type Severity string

const (
	// Error keeps the configuration that holds the document from being used.
	Error Severity = "error"
	// Warning is worth a person's time but changes nothing.
	Warning Severity = "warning"
)

// Diagnostic is one remark about one document.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// Source is the file, and behind a # the number of the document in it
	// where it has several: "policies/base.yaml#2".
	Source string `json:"source,omitempty"`
	// Object is kind and name: "SidecarProfile/log-shipper".
	Object string `json:"object,omitempty"`
	// Field is the path in the document: "spec.template.spec.containers[0].name".
	Field string `json:"field,omitempty"`
	// Message says what is wrong, with the offending value in quotes, and what
	// is allowed. Lower case, no full stop.
	Message string `json:"message"`
	// Hint says what to do, where that is known.
	Hint string `json:"hint,omitempty"`
	// Code names the kind of finding, where it can be looked up or suppressed by
	// a name: "missing-message".
	Code string `json:"code,omitempty"`
	// Others are the other objects that take part in it, with spaces between them: any
	// of them could be changed to mend it. Nobody is shown them.
	Others string `json:"-"`
}

// token is the text of an access token or of a login token, which may have been
// put anywhere by mistake.
var token = regexp.MustCompile(`gatehouse(?:-login)?_[a-z0-9-]+_[A-Za-z0-9_.-]+`)

// Redacted is the finding as it may be shown: without the text of a token of
// Gatehouse, wherever in a document somebody has put one.
func (f Diagnostic) Redacted() Diagnostic {
	for _, text := range []*string{&f.Source, &f.Object, &f.Field, &f.Message, &f.Hint} {
		if strings.Contains(*text, "gatehouse") {
			*text = token.ReplaceAllString(*text, "gatehouse_…")
		}
	}
	return f
}

// MarshalJSON shows the finding as Redacted.
func (f Diagnostic) MarshalJSON() ([]byte, error) {
	type plain Diagnostic
	return json.Marshal(plain(f.Redacted()))
}

// String is the finding, as Redacted, on one line and without its severity.
func (f Diagnostic) String() string {
	f = f.Redacted()
	var b strings.Builder
	for _, part := range []string{f.Source, f.Object, f.Field} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(f.Message)
	if f.Hint != "" {
		b.WriteString(" (hint: ")
		b.WriteString(f.Hint)
		b.WriteByte(')')
	}
	if f.Code != "" {
		b.WriteString(" [")
		b.WriteString(f.Code)
		b.WriteByte(']')
	}
	return b.String()
}

// List is a number of findings. As an error it shows one finding a line.
//
//nolint:errname // a list that can be an error, and is read as a list
type List []Diagnostic

// Error joins the findings, one a line. Warnings are marked.
func (l List) Error() string {
	lines := make([]string, len(l))
	for i, f := range l {
		lines[i] = f.String()
		if f.Severity == Warning {
			lines[i] = "warning: " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Err is the list as an error if it holds a finding of severity Error, and nil
// otherwise. Callers return it instead of the list, so that an empty list is
// never a non-nil error. It keeps the warnings: whoever mends the errors sees
// them in the same go.
func (l List) Err() error {
	if slices.ContainsFunc(l, func(f Diagnostic) bool { return f.Severity == Error }) {
		return l
	}
	return nil
}

// Sort puts the findings into the order in which they are shown: by source,
// object and field, and in the order found within these.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		fileA, numberA := source(a.Source)
		fileB, numberB := source(b.Source)
		return cmp.Or(cmp.Compare(fileA, fileB), cmp.Compare(numberA, numberB), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Object, b.Object), compareFields(a.Field, b.Field))
	})
}

// compareFields compares paths, so that element 10 of a list comes behind element
// 2.
func compareFields(a, b string) int {
	for {
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] && a[i] != '[' {
			i++
		}
		if i == len(a) || i == len(b) || a[i] != '[' || b[i] != '[' {
			return cmp.Compare(a[i:], b[i:])
		}
		a, b = a[i+1:], b[i+1:]
		indexA, restA, _ := strings.Cut(a, "]")
		indexB, restB, _ := strings.Cut(b, "]")
		numberA, errA := strconv.Atoi(indexA)
		numberB, errB := strconv.Atoi(indexB)
		switch {
		case indexA == indexB:
		case errA == nil && errB == nil:
			return cmp.Or(cmp.Compare(numberA, numberB), cmp.Compare(indexA, indexB))
		case errA == nil: // Numbers come before keys.
			return -1
		case errB == nil:
			return 1
		default:
			return cmp.Compare(indexA, indexB)
		}
		a, b = restA, restB
	}
}

// source takes a Source apart, so that document 10 comes behind document 2.
func source(text string) (file string, number int) {
	at := strings.LastIndexByte(text, '#')
	if at < 0 {
		return text, 0
	}
	digits, _, _ := strings.Cut(text[at+1:], "/")
	number, _ = strconv.Atoi(digits) // what is no number sorts as 0
	return text[:at], number
}
