package review

import (
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const (
	// maxCauses bounds the causes of a refusal. All of them together are bounded like
	// its message, whose parts they are.
	maxCauses = 256
	// maxDetailRunes bounds each of the other strings in a refusal's details: names in
	// the API are shorter.
	maxDetailRunes = 512
)

// appendStatus appends the status of a refusal. The API server shows message
// and reason to the user, passes the details on, and answers with the code, which
// must be one of a refusal.
func appendStatus(dst []byte, result *metav1.Status) []byte {
	code, reason, message := int32(http.StatusForbidden), metav1.StatusReasonForbidden, ""
	if result != nil {
		if result.Code >= 400 && result.Code < 500 {
			code = result.Code
			reason = result.Reason
		}
		message = result.Message
	}
	dst = append(dst, `,"status":{"metadata":{},"status":"Failure","message":`...)
	dst = rawjson.AppendString(dst, boundMessage(message))
	if reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = rawjson.AppendString(dst, string(reason))
	}
	if result != nil && result.Details != nil {
		dst = appendDetails(dst, result.Details)
	}
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	return append(dst, '}')
}

// appendDetails appends the details of a refusal, which programs read.
func appendDetails(dst []byte, details *metav1.StatusDetails) []byte {
	dst = append(dst, `,"details":`...)
	m := members{dst: append(dst, '{')}
	m.string("name", bound(details.Name, maxDetailRunes, false))
	m.string("group", bound(details.Group, maxDetailRunes, false))
	m.string("kind", bound(details.Kind, maxDetailRunes, false))
	m.string("uid", bound(string(details.UID), maxDetailRunes, false))
	if len(details.Causes) > 0 {
		m.name("causes")
		m.dst = appendCauses(m.dst, details.Causes)
	}
	if details.RetryAfterSeconds != 0 {
		m.name("retryAfterSeconds")
		m.dst = strconv.AppendInt(m.dst, int64(details.RetryAfterSeconds), 10)
	}
	return append(m.dst, '}')
}

// appendCauses appends as many causes as are within the bounds, and one more that
// counts the others.
func appendCauses(dst []byte, causes []metav1.StatusCause) []byte {
	dst = append(dst, '[')
	left := maxMessageRunes
	for i := range causes {
		if i > 0 {
			dst = append(dst, ',')
		}
		reason := bound(string(causes[i].Type), maxDetailRunes, false)
		message := boundMessage(causes[i].Message)
		field := bound(causes[i].Field, maxDetailRunes, false)
		// The first is shown however long it is.
		left -= utf8.RuneCountInString(reason) + utf8.RuneCountInString(message) + utf8.RuneCountInString(field)
		if i > 0 && (left < 0 || i == maxCauses-1 && len(causes) > maxCauses) {
			dst = appendCause(dst, "", fmt.Sprintf("… and %d more", len(causes)-i), "")
			break
		}
		dst = appendCause(dst, reason, message, field)
	}
	return append(dst, ']')
}

func appendCause(dst []byte, reason, message, field string) []byte {
	m := members{dst: append(dst, '{')}
	m.string("reason", reason)
	m.string("message", message)
	m.string("field", field)
	return append(m.dst, '}')
}

// members appends the members of one JSON object.
type members struct {
	dst  []byte
	some bool // a member was appended
}

// name begins a member.
func (m *members) name(name string) {
	if m.some {
		m.dst = append(m.dst, ',')
	}
	m.some = true
	m.dst = append(m.dst, '"')
	m.dst = append(m.dst, name...)
	m.dst = append(m.dst, '"', ':')
}

// string appends a string member, unless it is empty.
func (m *members) string(name, value string) {
	if value == "" {
		return
	}
	m.name(name)
	m.dst = rawjson.AppendString(m.dst, value)
}
