package review

import (
	"cmp"
	"fmt"
	"net/http"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxCauses bounds the causes of a refusal. All of them together are bounded like
	// its message, whose parts they are.
	maxCauses = 256
	// maxDetailRunes bounds each of the other strings in a refusal's details: names in
	// the API are shorter.
	maxDetailRunes = 512
)

// statusOf returns the status of a refusal. The API server shows message
// and reason to the user, passes the details on, and answers with the code, which
// must be one of a refusal.
func statusOf(result *metav1.Status) *metav1.Status {
	result = cmp.Or(result, &metav1.Status{})
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	if result.Code >= 400 && result.Code < 500 {
		status.Code, status.Reason = result.Code, result.Reason
	}
	status.Message = boundMessage(result.Message)
	if d := result.Details; d != nil {
		status.Details = &metav1.StatusDetails{
			Name: boundDetail(d.Name), Group: boundDetail(d.Group), Kind: boundDetail(d.Kind), UID: types.UID(boundDetail(string(d.UID))),
			Causes: boundCauses(d.Causes), RetryAfterSeconds: d.RetryAfterSeconds,
		}
	}
	return &status
}

func boundDetail(text string) string { return bound(text, maxDetailRunes, false) }

// boundCauses returns as many causes as are within the bounds, and one more that
// counts the others.
func boundCauses(causes []metav1.StatusCause) []metav1.StatusCause {
	list := make([]metav1.StatusCause, 0, min(len(causes), maxCauses))
	left := maxMessageRunes
	for i, c := range causes {
		c = metav1.StatusCause{Type: metav1.CauseType(boundDetail(string(c.Type))), Message: boundMessage(c.Message), Field: boundDetail(c.Field)}
		// The first is shown however long it is.
		left -= utf8.RuneCountInString(string(c.Type)) + utf8.RuneCountInString(c.Message) + utf8.RuneCountInString(c.Field)
		if i > 0 && (left < 0 || i == maxCauses-1 && len(causes) > maxCauses) {
			return append(list, metav1.StatusCause{Message: fmt.Sprintf("… and %d more", len(causes)-i)})
		}
		list = append(list, c)
	}
	return list
}
