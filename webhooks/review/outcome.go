package review

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"
)

// Decision is how a review ended.
type Decision string

// The ways in which a review ends. The first two are answers; the others are
// the reasons why there is none.
const (
	// Allowed is a yes: admitted, or authenticated.
	Allowed Decision = "allowed"
	// Denied is a no.
	Denied Decision = "denied"
	// Unknown means that the decision could not be made.
	Unknown Decision = "unknown"
	// Refused means that the request was no review that could be answered.
	Refused Decision = "refused"
	// Shed means that there was no room for the review.
	Shed Decision = "shed"
)

// Outcome is a finished review, for logs and metrics. It holds nothing of the
// object or the token that was reviewed.
type Outcome struct {
	// Endpoint is the endpoint's name.
	Endpoint string
	// Decision is how the review ended.
	Decision Decision
	// Reason is one word of a bounded set that tells more, and may be empty.
	Reason string
	// Detail is what an operator needs to know of a review that ended in no
	// answer, or of a token that was refused. It never reaches the caller.
	Detail string

	// Caller is who sent the review.
	Caller Caller
	// UID names the review. It is empty if none could be read.
	UID types.UID
	// Operation, Resource, Subresource, Namespace, Object and DryRun say what an
	// admission review is about. They are empty for a token review.
	Operation   string
	Resource    metav1.GroupVersionResource
	Subresource string
	Namespace   string
	Object      string
	DryRun      bool
	// User is who asks for admission, or whom a token belongs to.
	User string
	// Audit are the audit annotations of the answer.
	Audit map[string]string
	// Patched tells whether the answer holds a patch.
	Patched bool
	// Warnings is the number of warnings of the decision, with those for which
	// there is no room in the answer.
	Warnings int
	// TokenID is the public id of the token, if it has one.
	TokenID string
	// Backend is the authenticator that the token was for, one of a bounded set,
	// and Source where the identity comes from, a word of the configuration. They
	// are empty if the token was for none.
	Backend string
	Source  string

	// TraceParent is the caller's header traceparent (W3C Trace Context), as it came
	// and so of any shape. It is empty without one, and unless Options ask for it.
	TraceParent string

	// Started is when the request's header had been read.
	Started time.Time
	// Took is the time from Started to the end of the answer.
	Took time.Duration
	// Waited is the part of Took that was spent waiting for a slot.
	Waited time.Duration
	// Bytes is the size of the body.
	Bytes int
}

// answered notes the response of an AdmissionFunc, and returns the failure that
// it stands for if it is no answer.
func (o *Outcome) answered(response *admission.Response) *failure {
	o.Audit = response.AuditAnnotations
	o.Warnings = len(response.Warnings)
	if response.Allowed {
		o.Decision = Allowed
		o.Patched = len(response.Patches) > 0
		return nil
	}
	if response.Result != nil {
		o.Reason = string(response.Result.Reason)
		if response.Result.Code >= http.StatusInternalServerError {
			return &failure{status: http.StatusInternalServerError, reason: "internal", detail: response.Result.Message}
		}
	}
	o.Decision = Denied
	return nil
}

func (o *Outcome) tokenAnswered(response *authentication.Response) {
	o.Reason = response.Annotations[ReasonAnnotation]
	o.TokenID = response.Annotations[TokenIDAnnotation]
	o.Backend = response.Annotations[BackendAnnotation]
	o.Source = response.Annotations[SourceAnnotation]
	o.User = response.Annotations[UserAnnotation]
	o.Detail = response.Annotations[DetailAnnotation]
	switch {
	case response.Status.Error != "":
		o.Decision = Unknown
		if o.Detail == "" {
			o.Detail = response.Status.Error
		}
	case response.Status.Authenticated:
		o.Decision = Allowed
	default:
		o.Decision = Denied
	}
}

func (o *Outcome) failed(f *failure) {
	o.Reason = f.reason
	o.Detail = f.detail
	if o.Detail == "" {
		o.Detail = f.text
	}
	switch {
	case f.status == http.StatusServiceUnavailable:
		o.Decision = Shed
	case f.status >= http.StatusInternalServerError:
		o.Decision = Unknown
	default:
		o.Decision = Refused
	}
}
