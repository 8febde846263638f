package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
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
	// failuresKey is upstream's key for audited violations, without the prefix:
	// the API server puts the name of the webhook there.
	failuresKey = "validation_failure"
)

// DeniedByKey is the key of the audit annotation that names the policies, and
// behind a slash the bindings, that refused a request. Unlike the message it
// holds nothing of the object, so that it can be logged.
const DeniedByKey = "denied-by"

// violation is one reason to refuse.
type violation struct {
	// by is the policy and, if it has one, the binding.
	by     string
	text   string
	reason metav1.StatusReason
}

// answer gathers what the policies say, in the order in which they say it.
type answer struct {
	denied   []violation
	warnings []string
	failures []validating.ValidationFailureValue
	// audit has the distinct values for each key.
	audit map[string][]string
}

// deny adds a reason to refuse; without a reason code it is Invalid.
func (a *answer) deny(p *compiledPolicy, binding, message string, reason metav1.StatusReason) {
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	by := p.name
	if binding != "" {
		by += "/" + binding
	}
	a.denied = append(a.denied, violation{by: by, text: fmt.Sprintf("%s denied request: %s", p.title(binding), message), reason: reason})
}

func (a *answer) warn(p *compiledPolicy, binding, message string) {
	a.warnings = append(a.warnings, fmt.Sprintf("Validation failed for %s: %s", p.title(binding), message))
}

func (a *answer) annotate(key, value string) {
	if a.audit == nil {
		a.audit = make(map[string][]string)
	}
	if !slices.Contains(a.audit[key], value) {
		a.audit[key] = append(a.audit[key], cutText(value, maxAuditValue, ""))
	}
}

// response is the answer to the API server.
func (a *answer) response(r *request) admission.Response {
	out := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: len(a.denied) == 0, Warnings: a.warnings}}
	if len(a.audit) > 0 || len(a.failures) > 0 {
		out.AuditAnnotations = make(map[string]string, len(a.audit)+1)
		for key, values := range a.audit {
			out.AuditAnnotations[key] = strings.Join(values, ", ")
		}
	}
	if len(a.failures) > 0 {
		if text, err := json.Marshal(a.failures[:min(len(a.failures), maxFailures)]); err == nil { // strings and numbers: never fails
			out.AuditAnnotations[failuresKey] = string(text)
		}
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

// deniedBy names each policy and binding once, in the order of the violations.
func (a *answer) deniedBy() string {
	var names []string
	for _, v := range a.denied {
		if !slices.Contains(names, v.by) {
			names = append(names, v.by)
		}
	}
	return cutText(strings.Join(names, ","), maxLine, "…")
}

// status is what the client gets. Code and reason are those of the first
// violation, as upstream's are.
func (a *answer) status(r *request) *metav1.Status {
	code, _ := statusCode(a.denied[0].reason)
	lines := a.lines()
	status := &metav1.Status{
		Status: metav1.StatusFailure,
		Code:   code,
		Reason: a.denied[0].reason,
		Details: &metav1.StatusDetails{
			Name: r.objectName(), Group: r.requested.Group, Kind: r.requested.Resource,
			Causes: make([]metav1.StatusCause, len(lines)),
		},
	}
	for i, line := range lines {
		status.Details.Causes[i].Message = line
	}
	if len(a.denied) == 1 {
		status.Message = lines[0]
		return status
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d violations:", len(a.denied))
	for i, line := range lines {
		if i < len(a.denied) && (len(lines) == len(a.denied) || i < len(lines)-1) {
			fmt.Fprintf(&text, "\n%d. ", i+1)
		} else {
			text.WriteByte('\n')
		}
		text.WriteString(strings.ReplaceAll(line, "\n", "\n   "))
	}
	status.Message = text.String()
	return status
}

// lines are the violations, each cut to what can be shown, and at their end the
// number of those that cannot.
func (a *answer) lines() []string {
	if len(a.denied) == 1 {
		return []string{cutText(a.denied[0].text, maxMessage, "…")}
	}
	// Around each line stand a number and a line break, and at the end the count.
	const around, last = 8, 64
	var out []string
	size := last
	for i, v := range a.denied {
		line := cutText(v.text, maxLine, "…")
		size += len(line) + 3*strings.Count(line, "\n") + around
		if size > maxMessage {
			return append(out, fmt.Sprintf("… and %d more", len(a.denied)-i))
		}
		out = append(out, line)
	}
	return out
}

// cutText cuts a text to a number of bytes, not within a character.
func cutText(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	most -= len(mark)
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + mark
}

// objectName is the name that the client knows the object by.
func (r *request) objectName() string {
	if r.Name != "" {
		return r.Name
	}
	object, err := r.object.json()
	if err != nil {
		return ""
	}
	if name := object.Get("metadata", "name").Text(); name != "" {
		return name
	}
	return object.Get("metadata", "generateName").Text()
}

// statusCode is the HTTP status that goes with a reason, as upstream pairs them,
// and false for a reason that a policy cannot give.
func statusCode(reason metav1.StatusReason) (code int32, known bool) {
	codes := map[metav1.StatusReason]int32{
		metav1.StatusReasonForbidden:             403,
		metav1.StatusReasonRequestEntityTooLarge: 413,
		metav1.StatusReasonInvalid:               422,
	}
	if code, known = codes[reason]; !known {
		code = codes[metav1.StatusReasonInvalid]
	}
	return code, known
}

// auditKey is the key under which a policy's audit annotation is published.
// Upstream's is <policy>/<key>; a webhook's own name must stand before the
// slash, so policy and key are joined behind it, by a character that no policy's
// name has. What would be too long for a key is cut, with a hash in place of
// what is missing.
func auditKey(policy, key string) string {
	joined := policy + "_" + key
	if len(validation.IsQualifiedName(joined)) == 0 {
		return joined
	}
	const most, digits = 63, 8
	sum := sha256.Sum256([]byte(joined))
	return joined[:min(len(joined), most-digits-1)] + "-" + hex.EncodeToString(sum[:])[:digits]
}
