package review

import (
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Decision is how a review ended.
type Decision string

// The decisions. The first three are answers; the others are why there is none.
const (
	// Allowed is a yes: admitted, or authenticated.
	Allowed Decision = "allowed"
	// Denied is a no.
	Denied Decision = "denied"
	// NoOpinion leaves the decision to others.
	NoOpinion Decision = "no-opinion"
	// Unknown means that the decision could not be made.
	Unknown Decision = "unknown"
	// Refused means that the request was no review that could be answered.
	Refused Decision = "refused"
	// Shed means that the review was rejected because of overload.
	Shed Decision = "shed"
)

// Outcome is a finished review, for logs and metrics. It holds nothing of the
// object or the token that was reviewed.
type Outcome struct {
	// Endpoint is the endpoint's name.
	Endpoint string
	// Decision is how the review ended.
	Decision Decision
	// Reason is one word of a bounded set, and may be empty.
	Reason string
	// Detail explains a review without an answer, or a refused token, to the operator.
	// It never reaches the caller.
	Detail string

	// Client is who sent the review, nil if that is not known.
	Client *clients.Client
	// UID names the review. It is empty if none could be read.
	UID types.UID
	// Operation, Resource, Subresource, Namespace, Object and DryRun are the subject of an
	// admission review, or of an access review, whose operation is the verb. They are empty for a
	// token review.
	Operation   string
	Resource    metav1.GroupVersionResource
	Subresource string
	Namespace   string
	Object      string
	DryRun      bool
	// User is the user who requests admission or access, or to whom the token belongs.
	User string
	// Audit are the audit annotations of the answer.
	Audit map[string]string
	// Patched reports whether the answer holds a patch.
	Patched bool
	// Warnings is the number of warnings of the decision, including those that do not
	// fit into the answer.
	Warnings int
	// TokenID is the public id of the token, if it has one.
	TokenID string
	// Backend is the authenticator that the token is for, one of a bounded set, and
	// Source the source of the identity, as the configuration names it. They are empty
	// if the token is for none.
	Backend string
	Source  string

	// TraceParent is the caller's header traceparent (W3C Trace Context), unchecked.
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

// setRequest sets the subject of an admission review.
func (o *Outcome) setRequest(request *admissionv1.AdmissionRequest) {
	o.UID = request.UID
	o.Operation = string(request.Operation)
	o.Resource = request.Resource
	o.Subresource = request.SubResource
	o.Namespace = request.Namespace
	o.Object = request.Name
	if o.Object == "" && request.Operation == admissionv1.Delete { // of a collection: each review names its object in the object alone
		o.Object = rawjson.Value(request.OldObject.Raw).Get("metadata").Get("name").Text()
	}
	o.User = request.UserInfo.Username
	o.DryRun = request.DryRun != nil && *request.DryRun
}

// setAdmission sets the response of an AdmissionFunc. It returns a failure if the
// function cannot decide.
func (o *Outcome) setAdmission(response *admission.Response) *failure {
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

// setToken sets the response of a TokenFunc.
func (o *Outcome) setToken(response *authentication.Response) {
	o.Reason = response.Annotations[reasonAnnotation]
	o.TokenID = response.Annotations[tokenIDAnnotation]
	o.Backend = response.Annotations[backendAnnotation]
	o.Source = response.Annotations[sourceAnnotation]
	o.User = response.Annotations[userAnnotation]
	o.Detail = response.Annotations[detailAnnotation]
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

// setFailure sets the reason why there is no answer of the function.
func (o *Outcome) setFailure(f *failure) {
	o.Reason = f.reason
	o.Detail = f.detail
	if o.Detail == "" {
		o.Detail = f.message
	}
	switch {
	case f.decision != "":
		o.Decision = f.decision
	case f.status == http.StatusServiceUnavailable:
		o.Decision = Shed
	case f.status >= http.StatusInternalServerError:
		o.Decision = Unknown
	default:
		o.Decision = Refused
	}
}
