package admission

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// maxMessage bounds all errors of a refusal, and maxLine each of them, in bytes.
	maxMessage = 8 * 1024
	maxLine    = 1024
	// maxWarnings and maxWarningRunes are well below what the API server passes on,
	// 4096 runes for all of a request.
	maxWarnings     = 10
	maxWarningRunes = 200
)

// allowed allows a request.
func allowed(warnings []string) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Warnings: warnings}}
}

// answer is the response for an object with these diagnostics.
func answer(o *object, found diagnostic.List) admission.Response {
	out := allowed(warnings(found))
	errs := slices.DeleteFunc(slices.Clone(found), func(f diagnostic.Diagnostic) bool { return f.Severity != diagnostic.Error })
	if len(errs) > 0 {
		out.Allowed, out.Result = false, refusal(o, errs)
	}
	return out
}

// refusal is a status like that of the API server's own validation, whose causes kubectl
// shows.
func refusal(o *object, errs diagnostic.List) *metav1.Status {
	const maxName = 253 // bytes, which no name has more of
	name := truncate.Bytes(printable(diagnostic.Diagnostic{Message: o.name}.Redacted().Message), maxName)
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Group: Group, Kind: o.kind, Name: name},
	}
	var lines []string
	size := 0
	for i, f := range errs {
		f = f.Redacted()
		text := printable(f.Message)
		if f.Hint != "" {
			text += " (hint: " + printable(f.Hint) + ")"
		}
		field := printable(cmp.Or(f.Field, "spec")) // kubectl shows every cause behind a field
		text = truncate.Bytes(text, maxLine)
		if size += len(field) + len(text); size > maxMessage {
			more := fmt.Sprintf("… and %d more", len(errs)-i)
			lines = append(lines, more)
			status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "…", Message: strings.TrimPrefix(more, "… ")})
			break
		}
		lines = append(lines, field+": "+text)
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: text})
	}
	status.Message = fmt.Sprintf("%s %q is invalid: ", o.kind, name)
	if len(lines) == 1 {
		status.Message += lines[0]
	} else {
		status.Message = strings.TrimSuffix(status.Message, " ") + "\n* " + strings.Join(lines, "\n* ")
	}
	return status
}

// warnings returns the warnings among diagnostics, each once and with the name of its
// object, which kubectl does not show.
func warnings(found diagnostic.List) []string {
	var all []string
	seen := make(map[string]bool)
	for _, f := range found {
		if f.Severity != diagnostic.Warning {
			continue
		}
		f.Source, f.Code = "", ""
		text := printable(f.String())
		if f.Hint != "" && utf8.RuneCountInString(text) > maxWarningRunes {
			f.Hint = "" // it would be cut
			text = printable(f.String())
		}
		text = truncate.Runes(text, maxWarningRunes)
		if !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	if len(all) > maxWarnings {
		more := fmt.Sprintf("… and %d more warnings", len(all)-maxWarnings+1)
		all = append(all[:maxWarnings-1], more)
	}
	return all
}

// printable returns a text on one line and without control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}
