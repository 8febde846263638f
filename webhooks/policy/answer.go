package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// maxMessage is how many bytes a message may have. The API server passes a
	// message on as it is, to a person at a terminal and into events; some hundred
	// lines are more than anybody reads.
	maxMessage = 8 * 1024
	// maxLine is how many bytes of a violation are shown among others, so that a
	// long one does not keep others from being shown.
	maxLine = 1024
	// maxFailures is upstream's limit for the list of audited violations.
	maxFailures = 50
	// maxAuditValue is upstream's limit, in bytes, for one audit annotation.
	maxAuditValue = 10 * 1024
	// maxFailuresText is how many bytes the list may have: webhooks/review cuts a
	// longer value, and what is cut is not JSON. Upstream, which writes into the audit
	// log itself, has no such limit.
	maxFailuresText = 16 * 1024
	// failuresKey is upstream's key for audited violations, without the prefix:
	// the API server puts the name of the webhook there.
	failuresKey = "validation_failure"
)

// DeniedByKey is the key of the audit annotation that names the policies, and
// behind a slash the bindings, that refused a request. Unlike the message it
// holds nothing of the object, so that it can be logged.
const DeniedByKey = "denied-by"

// ExceptedByKey is the key of the audit annotation that names the exceptions
// that let a request pass, each with the policy and rule that it violates:
// "ns/name:policy/rule".
const ExceptedByKey = "excepted-by"

// ExistingKey is the key of the audit annotation that names the rules that an
// update violates as the object did before: "policy/rule".
const ExistingKey = "existing-violations"

// BaselinedByKey is the key of the audit annotation that names the baselines that let a
// request pass, each with the policy and rule that it violates: "ns/name:policy/rule".
const BaselinedByKey = "baselined-by"

// answer gathers what the policies say, in the order in which they say it.
type answer struct {
	// violations are all that were found, and denied those that refuse, by index.
	violations []Violation
	denied     []int
	warnings   []string
	failures   []validating.ValidationFailureValue
	// audit has the distinct values for each key.
	audit map[string][]string
}

// add adds a violation with what it leads to. Index is what upstream calls the index of
// the expression.
func (a *answer) add(v *Violation, index int) {
	v.Message = printable(v.Message)
	shown := v.Message
	if v.Template != "" {
		shown = v.Template + ": " + shown
	}
	a.violations = append(a.violations, *v)
	if v.Unknown != "" {
		return
	}
	if v.Exception != "" {
		for exception := range Exceptions(v.Exception) {
			a.annotate(ExceptedByKey, exception+":"+v.Policy+"/"+v.Rule)
		}
	}
	switch v.Outcome {
	case Excepted:
		return
	case Existing:
		a.annotate(ExistingKey, v.Policy+"/"+v.Rule)
		a.warn(fmt.Sprintf("%s: %s (allowed: the object violated this before the update)", title(v.Kind, v.Policy, v.Binding), shown))
		return
	case Baselined:
		a.annotate(BaselinedByKey, v.Baseline+":"+v.Policy+"/"+v.Rule)
		a.warn(fmt.Sprintf("%s: %s (allowed until %s by PolicyBaseline %s)", title(v.Kind, v.Policy, v.Binding), shown, v.Until.Format(time.RFC3339), v.Baseline))
		return
	case Violated, Failed, Passed, Ignored, Done:
	}
	if v.Actions == nil {
		a.denied = append(a.denied, len(a.violations)-1)
		return
	}
	for _, action := range v.Actions {
		switch action {
		case admissionregistrationv1.Deny:
			a.denied = append(a.denied, len(a.violations)-1)
		case admissionregistrationv1.Warn:
			a.warn(fmt.Sprintf("Validation failed for %s: %s", title(v.Kind, v.Policy, v.Binding), shown))
		case admissionregistrationv1.Audit:
			a.failures = append(a.failures, validating.ValidationFailureValue{
				ExpressionIndex: index, Message: shown, ValidationActions: v.Actions, Binding: v.Binding, Policy: v.Policy,
			})
		}
	}
}

// describe returns a violation as the client reads it, in at most so many bytes. Whom to ask is never cut.
func (v *Violation) describe(most int) string {
	contact := ""
	if v.Contact != "" {
		contact = " (contact: " + v.Contact + ")"
	}
	message := v.Message
	if v.Template != "" {
		message = v.Template + ": " + message
	}
	return truncate.Bytes(title(v.Kind, v.Policy, v.Binding)+" denied request: "+message, most-len(contact)) + contact
}

// cause returns the violation for programs, and for kubectl, which shows causes and not
// the message if a refusal is Invalid: each behind its field. Where no field is
// known the rule stands there.
func (v *Violation) cause(line string) metav1.StatusCause {
	out := metav1.StatusCause{Type: metav1.CauseType(v.Rule), Field: cmp.Or(v.Template, v.Rule, v.Kind+"/"+v.Policy), Message: line}
	if v.Template != "" {
		out.Message = strings.Replace(line, "denied request: "+v.Template+": ", "denied request: ", 1)
	}
	return out
}

// reason returns the code of a refusal: without one it is Invalid.
func (v *Violation) reason() metav1.StatusReason {
	return cmp.Or(v.Reason, metav1.StatusReasonInvalid)
}

// warn adds a warning. The API server drops one with a line break.
func (a *answer) warn(message string) {
	a.warnings = append(a.warnings, strings.ReplaceAll(printable(message), "\n", " "))
}

// printable returns a string without control characters, which can change what a
// terminal shows, but for line breaks.
func printable(message string) string {
	if truncate.IsPlain(message) {
		return message
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		if unicode.IsControl(r) || r == utf8.RuneError || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, message)
}

func (a *answer) annotate(key, value string) {
	if a.audit == nil {
		a.audit = make(map[string][]string)
	}
	if !slices.Contains(a.audit[key], value) {
		a.audit[key] = append(a.audit[key], strings.ToValidUTF8(value[:min(len(value), maxAuditValue)], ""))
	}
}

// response returns the answer to the API server.
func (a *answer) response(r *request) admission.Response {
	out := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: len(a.denied) == 0, Warnings: a.warnings}}
	if len(a.audit) > 0 || len(a.failures) > 0 {
		out.AuditAnnotations = make(map[string]string, len(a.audit)+1)
		for key, values := range a.audit {
			out.AuditAnnotations[key] = strings.Join(values, ", ")
			if key == ExceptedByKey || key == ExistingKey || key == BaselinedByKey {
				out.AuditAnnotations[key] = truncate.Bytes(out.AuditAnnotations[key], maxLine)
			}
		}
	}
	if len(a.failures) > 0 {
		out.AuditAnnotations[failuresKey] = auditedFailures(a.failures)
	}
	if len(a.denied) > 0 {
		out.Result = a.status(r)
		if out.AuditAnnotations == nil {
			out.AuditAnnotations = make(map[string]string, 1)
		}
		out.AuditAnnotations[DeniedByKey] = a.deniedBy()
	}
	return out
}

// auditedFailures returns the list of audited violations in upstream's format. If
// not all of them fit, the last entry has nothing but a message, which says how
// many are left out. A violation that is too long by itself has its message cut.
func auditedFailures(failures []validating.ValidationFailureValue) string {
	// counting is the size of the entry that counts those left out, and around it.
	const counting = 256
	list := []byte{'['}
	shown := failures[:min(len(failures), maxFailures)]
	for i := range shown {
		entry := marshalFailure(shown[i])
		if i == 0 {
			// Escaped, a byte of a message becomes six at most.
			for cut := maxFailuresText / 2; len(entry) > maxFailuresText-counting && cut > 0; cut /= 2 {
				shown[i].Message = truncate.Bytes(shown[i].Message, cut)
				entry = marshalFailure(shown[i])
			}
		}
		reserved := counting
		if i == len(failures)-1 {
			reserved = 2
		}
		if len(list)+len(entry)+reserved > maxFailuresText {
			if i > 0 {
				list = append(list, ',')
			}
			return string(append(append(list, marshalFailure(validating.ValidationFailureValue{
				Message: fmt.Sprintf("… and %d more", len(failures)-i), ValidationActions: []admissionregistrationv1.ValidationAction{},
			})...), ']'))
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, entry...)
	}
	return string(append(list, ']'))
}

func marshalFailure(failure validating.ValidationFailureValue) []byte {
	entry, err := json.Marshal(failure)
	if err != nil {
		return []byte("null") // strings and numbers: never fails
	}
	return entry
}

// deniedBy names each policy and binding once, in the order of the violations.
func (a *answer) deniedBy() string {
	var names []string
	for _, i := range a.denied {
		by := a.violations[i].Policy
		if binding := a.violations[i].Binding; binding != "" {
			by += "/" + binding
		}
		if !slices.Contains(names, by) {
			names = append(names, by)
		}
	}
	return truncate.Bytes(strings.Join(names, ","), maxLine)
}

// status returns what the client gets. Code and reason are those of the first
// violation, as upstream's are.
func (a *answer) status(r *request) *metav1.Status {
	reason := a.violations[a.denied[0]].reason()
	lines, left := a.lines()
	status := &metav1.Status{
		Status: metav1.StatusFailure,
		Code:   statusCode(reason),
		Reason: reason,
		Details: &metav1.StatusDetails{
			Name: r.objectName(), Group: r.Requested.Group, Kind: r.Requested.Resource,
			Causes: make([]metav1.StatusCause, len(lines), len(lines)+1),
		},
	}
	for i, line := range lines {
		status.Details.Causes[i] = a.violations[a.denied[i]].cause(line)
	}
	if len(a.denied) == 1 {
		status.Message = lines[0]
		return status
	}
	var message strings.Builder
	// The first violation is on the first line, the only one that "kubectl get events" shows.
	fmt.Fprintf(&message, "%d violations:", len(a.denied))
	for i, line := range lines {
		separator := "\n"
		if i == 0 {
			separator = " "
		}
		fmt.Fprintf(&message, "%s%d. %s", separator, i+1, strings.ReplaceAll(line, "\n", "\n   "))
	}
	if left > 0 {
		fmt.Fprintf(&message, "\n… and %d more", left)
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Field: "…", Message: fmt.Sprintf("and %d more", left)})
	}
	status.Message = message.String()
	return status
}

// lines returns the violations, each truncated to what can be shown, and the number of
// those that are left out.
func (a *answer) lines() (out []string, left int) {
	if len(a.denied) == 1 {
		return []string{a.violations[a.denied[0]].describe(maxMessage)}, 0
	}
	// Around each line stand a number and a line break, and at the end the count.
	const around, last = 8, 64
	size := last
	for i, n := range a.denied {
		line := a.violations[n].describe(maxLine)
		size += len(line) + 3*strings.Count(line, "\n") + around
		if size > maxMessage {
			return out, len(a.denied) - i
		}
		out = append(out, line)
	}
	return out, 0
}

// objectName returns the name that the client knows the object by: of an object without a name, the
// beginning of the one that the API server generates. The deletion of a collection has a review for each of its objects, which
// only the old object names.
func (r *request) objectName() string {
	if r.Name != "" || r.nameRead {
		return cmp.Or(r.Name, r.nameInObject)
	}
	r.nameRead = true
	of := &r.object
	if !of.present() {
		of = &r.oldObject
	}
	object, err := of.json()
	if err != nil {
		return ""
	}
	metadata := object.Get("metadata")
	r.nameInObject = metadata.Get("name").Text()
	if r.nameInObject == "" {
		r.nameGenerated, r.nameInObject = true, metadata.Get("generateName").Text()
	}
	return r.nameInObject
}

// statusCode returns the HTTP status that goes with a reason, as upstream pairs them.
func statusCode(reason metav1.StatusReason) int32 {
	switch reason { //nolint:exhaustive // policies give no others
	case metav1.StatusReasonForbidden:
		return 403
	case metav1.StatusReasonRequestEntityTooLarge:
		return 413
	default:
		return 422
	}
}

// auditKey returns the key under which a policy's audit annotation is published.
// Upstream's is <policy>/<key>; a webhook's own name must stand before the
// slash, so policy and key are joined behind it, by a character that no policy's
// name has. What would be too long for a key is cut, with a hash in place of
// what is missing; what is a key already gets a hash, too.
func auditKey(policy, key string) string {
	joined := policy + "_" + key
	if len(validation.IsQualifiedName(joined)) == 0 && joined != failuresKey {
		return joined
	}
	const most, digits = 63, 8
	sum := sha256.Sum256([]byte(joined))
	return joined[:min(len(joined), most-digits-1)] + "-" + hex.EncodeToString(sum[:])[:digits]
}
