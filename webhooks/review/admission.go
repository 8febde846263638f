package review

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const admissionV1 = "admission.k8s.io/v1"

// admissionProtocol is the protocol of admission webhooks.
type admissionProtocol struct{ f AdmissionFunc }

func (admissionProtocol) decode(x *exchange) (values int, err error) {
	x.withIndex(func(index *rawjson.Index) {
		values, err = decodeAdmission(x.members[:0], x.body, &x.admission.AdmissionRequest, index)
	})
	x.outcome.setRequest(&x.admission.AdmissionRequest)
	return values, err
}

func (p admissionProtocol) decide(ctx context.Context, x *exchange) *failure {
	response := p.f(ctx, &x.admission)
	if failed := x.outcome.setAdmission(&response); failed != nil {
		return failed
	}
	answer, err := AppendAdmission(x.answer[:0], x.admission.UID, &response)
	x.answer = answer
	if err != nil {
		return &failure{status: http.StatusInternalServerError, reason: "internal", detail: err.Error()}
	}
	return nil
}

func (admissionProtocol) refuse(w http.ResponseWriter, f *failure, remaining time.Duration, _ *exchange) {
	refuse(w, f, remaining > retryAfter)
}

// DecodeAdmission decodes an AdmissionReview v1 in one pass.
// The objects in it stay raw and share the memory of body; everything else is
// copied.
//
// It requires apiVersion and kind, a request and its UID, and refuses members
// that occur twice in the review or its request. Names are matched exactly and
// unknown members are ignored, as the API server's own decoder does. The error
// names the member, never its value.
func DecodeAdmission(body []byte) (admission.Request, error) {
	var request admission.Request
	_, err := decodeAdmission(make([]rawjson.Member, 0, maxMembers), body, &request.AdmissionRequest, nil)
	return request, err
}

// decodeAdmission is DecodeAdmission with a buffer for members, and an Index for the body, which may be nil. It also returns the
// number of values in the body.
func decodeAdmission(members []rawjson.Member, body []byte, into *admissionv1.AdmissionRequest, index *rawjson.Index) (int, error) {
	apiVersion, request, values, err := envelope(members, body, "AdmissionReview", "request", index)
	if err != nil {
		return values, err
	}
	if apiVersion != admissionV1 {
		return values, fmt.Errorf("apiVersion: must be %q (hint: set admissionReviewVersions: [v1] in the webhook configuration)", admissionV1)
	}

	_, indexed := index.Root()
	d := fieldReader{prefix: "request.", unique: indexed}
	for _, m := range request {
		switch v := m.Value; string(m.Name) {
		case `"uid"`:
			into.UID = types.UID(d.string("", "uid", v))
		case `"kind"`:
			d.kind("kind", v, &into.Kind)
		case `"resource"`:
			d.resource("resource", v, &into.Resource)
		case `"subResource"`:
			into.SubResource = d.string("", "subResource", v)
		case `"requestKind"`:
			if v.Kind() != rawjson.Null {
				into.RequestKind = new(metav1.GroupVersionKind)
				d.kind("requestKind", v, into.RequestKind)
			}
		case `"requestResource"`:
			if v.Kind() != rawjson.Null {
				into.RequestResource = new(metav1.GroupVersionResource)
				d.resource("requestResource", v, into.RequestResource)
			}
		case `"requestSubResource"`:
			into.RequestSubResource = d.string("", "requestSubResource", v)
		case `"name"`:
			into.Name = d.string("", "name", v)
		case `"namespace"`:
			into.Namespace = d.string("", "namespace", v)
		case `"operation"`:
			into.Operation = admissionv1.Operation(d.string("", "operation", v))
		case `"userInfo"`:
			d.user("userInfo", v, &into.UserInfo)
		case `"object"`:
			d.object("object", v, &into.Object)
		case `"oldObject"`:
			d.object("oldObject", v, &into.OldObject)
		case `"options"`:
			d.object("options", v, &into.Options)
		case `"dryRun"`:
			into.DryRun = d.boolean("dryRun", v)
		}
	}
	switch {
	case d.err != nil:
		return values, d.err
	case into.UID == "":
		return values, required("request.uid")
	case into.Resource.Resource == "":
		return values, required("request.resource")
	case into.Kind.Kind == "":
		return values, required("request.kind")
	}
	switch into.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return values, nil
	default:
		return values, fmt.Errorf("request.operation: must be CREATE, UPDATE, DELETE or CONNECT")
	}
}

// AppendAdmission appends the AdmissionReview that answers the request with
// this UID. It stamps UID, kind and patch type, and bounds warnings, audit
// annotations, the message and the causes of a refusal so that the API server
// drops none of them.
//
// The error says that a patch value cannot be written as JSON; dst is returned
// as it was.
func AppendAdmission(dst []byte, uid types.UID, response *admission.Response) ([]byte, error) {
	start := len(dst)
	dst = append(dst, `{"kind":"AdmissionReview","apiVersion":"`+admissionV1+`","response":{"uid":`...)
	dst = rawjson.AppendString(dst, string(uid))
	dst = append(dst, `,"allowed":`...)
	dst = strconv.AppendBool(dst, response.Allowed)
	// A refusal carries no patch: the API server would not apply it.
	if response.Allowed && len(response.Patches) > 0 {
		var err error
		if dst, err = appendPatch(dst, response.Patches); err != nil {
			return dst[:start], err
		}
	}
	if !response.Allowed {
		status, err := json.Marshal(statusOf(response.Result))
		if err != nil {
			return dst[:start], fmt.Errorf("status: %w", err)
		}
		dst = append(append(dst, `,"status":`...), status...)
	}
	dst = appendWarnings(dst, response.Warnings)
	dst = appendAudit(dst, response.AuditAnnotations)
	return append(dst, "}}"...), nil
}
