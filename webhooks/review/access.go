package review

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The versions of SubjectAccessReview. The API server speaks the one that its AuthorizationConfiguration names.
const (
	accessV1      = "authorization.k8s.io/v1"
	accessV1beta1 = "authorization.k8s.io/v1beta1"
)

// MaxAccessBytes bounds the body of a SubjectAccessReview: a user with thousands of groups and a large extra.
const MaxAccessBytes = 1 << 20

// AccessFunc decides on access. A response with a status.evaluationError means "cannot decide".
type AccessFunc = func(context.Context, *AccessRequest) AccessResponse

// AccessRequest is a SubjectAccessReview to decide on. It is valid during the call only. Of the user it has the name and the extra, and
// of selectors nothing: the API server may leave requirements out.
type AccessRequest struct {
	Spec authorizationv1.SubjectAccessReviewSpec
	Call
}

// AccessResponse is the answer to a SubjectAccessReview.
type AccessResponse struct {
	// Status is the answer. Its reason and its evaluationError are for the caller. It is no opinion if it neither allows nor denies.
	Status authorizationv1.SubjectAccessReviewStatus
	// Reason is one word of a bounded set, and Detail is for the operator.
	Reason, Detail string
	// Code is the HTTP status of an answer that cannot be decided, 500 by default, which the API server tries again. It does not do
	// that for 503.
	Code int
}

// Access serves f as an authorization webhook.
func Access(f AccessFunc, o Options) http.Handler {
	return newHandler(accessProtocol{f}, o)
}

// accessProtocol is the protocol of authorization webhooks.
type accessProtocol struct{ f AccessFunc }

func (accessProtocol) decode(x *exchange) (values int, err error) {
	x.accessVersion, values, err = decodeAccess(x.members[:0], x.body, &x.access.Spec)
	x.outcome.setAccessRequest(&x.access.Spec)
	return values, err
}

func (p accessProtocol) decide(ctx context.Context, x *exchange) *failure {
	response := p.f(ctx, &x.access)
	if failed := x.outcome.setAccess(&response); failed != nil {
		return failed
	}
	x.answer = AppendAccess(x.answer[:0], x.accessVersion, &response.Status)
	return nil
}

// refuse answers with an HTTP error: the API server ignores an evaluationError, and takes no opinion for an answer, which it caches.
// There is no Retry-After, because each request of the user waits.
func (accessProtocol) refuse(w http.ResponseWriter, f *failure, _ time.Duration, _ *exchange) {
	refuse(w, f, false)
}

// DecodeAccess decodes a SubjectAccessReview v1 or v1beta1. It returns the apiVersion, which the answer must echo. The error names the
// member, never its value.
func DecodeAccess(body []byte) (authorizationv1.SubjectAccessReviewSpec, string, error) {
	var spec authorizationv1.SubjectAccessReviewSpec
	apiVersion, _, err := decodeAccess(make([]rawjson.Member, 0, maxMembers), body, &spec)
	return spec, apiVersion, err
}

// decodeAccess is DecodeAccess with a buffer for members. It also returns the number of values in the body. The groups, whose member
// has another name in v1beta1, are not read: no decision depends on them.
func decodeAccess(members []rawjson.Member, body []byte, into *authorizationv1.SubjectAccessReviewSpec) (apiVersion string, values int, err error) {
	apiVersion, spec, values, err := envelope(members, body, "SubjectAccessReview", "spec", nil)
	if err != nil {
		return "", values, err
	}
	if apiVersion != accessV1 && apiVersion != accessV1beta1 {
		return "", values, errors.New(`apiVersion: must be "` + accessV1 + `" or "` + accessV1beta1 + `"`)
	}
	d := fieldReader{prefix: "spec."}
	for _, m := range spec {
		switch string(m.Name) {
		case `"user"`:
			into.User = d.string("", "user", m.Value)
		case `"uid"`:
			into.UID = d.string("", "uid", m.Value)
		case `"extra"`:
			for key, value := range d.members("", "extra", m.Value).Members() {
				if into.Extra == nil {
					into.Extra = make(map[string]authorizationv1.ExtraValue)
				}
				into.Extra[d.text(key)] = d.strings("", "extra", value)
			}
		case `"resourceAttributes"`:
			into.ResourceAttributes = d.resourceAttributes("resourceAttributes", m.Value)
		case `"nonResourceAttributes"`:
			into.NonResourceAttributes = d.nonResourceAttributes("nonResourceAttributes", m.Value)
		}
	}
	if d.err == nil && (into.ResourceAttributes == nil) == (into.NonResourceAttributes == nil) {
		d.err = errors.New("spec: exactly one of resourceAttributes and nonResourceAttributes is required")
	}
	return apiVersion, values, d.err
}

func (d *fieldReader) resourceAttributes(name string, v rawjson.Value) *authorizationv1.ResourceAttributes {
	if v.Kind() == rawjson.Null {
		return nil
	}
	a := &authorizationv1.ResourceAttributes{}
	for key, value := range d.members("", name, v).Members() {
		switch string(key) {
		case `"namespace"`:
			a.Namespace = d.string(name, "namespace", value)
		case `"verb"`:
			a.Verb = d.string(name, "verb", value)
		case `"group"`:
			a.Group = d.string(name, "group", value)
		case `"version"`:
			a.Version = d.string(name, "version", value)
		case `"resource"`:
			a.Resource = d.string(name, "resource", value)
		case `"subresource"`:
			a.Subresource = d.string(name, "subresource", value)
		case `"name"`:
			a.Name = d.string(name, "name", value)
		default:
			d.unknown(name, key)
		}
	}
	return a
}

func (d *fieldReader) nonResourceAttributes(name string, v rawjson.Value) *authorizationv1.NonResourceAttributes {
	if v.Kind() == rawjson.Null {
		return nil
	}
	a := &authorizationv1.NonResourceAttributes{}
	for key, value := range d.members("", name, v).Members() {
		switch string(key) {
		case `"path"`:
			a.Path = d.string(name, "path", value)
		case `"verb"`:
			a.Verb = d.string(name, "verb", value)
		default:
			d.unknown(name, key)
		}
	}
	return a
}

// AppendAccess appends the SubjectAccessReview that answers one of this apiVersion. Of the response only the status is written, without
// the evaluationError, which belongs to no answer.
func AppendAccess(dst []byte, apiVersion string, status *authorizationv1.SubjectAccessReviewStatus) []byte {
	dst = append(dst, `{"kind":"SubjectAccessReview","apiVersion":`...)
	dst = rawjson.AppendString(dst, apiVersion)
	dst = append(dst, `,"status":{"allowed":`...)
	if status.Allowed && !status.Denied {
		dst = append(dst, "true"...)
	} else {
		dst = append(dst, "false"...)
	}
	if status.Denied {
		dst = append(dst, `,"denied":true`...)
	}
	if status.Reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = rawjson.AppendString(dst, bound(status.Reason, 256, false))
	}
	return append(dst, "}}"...)
}

// setAccessRequest sets the subject of an access review. A URL that is no resource is the object.
func (o *Outcome) setAccessRequest(spec *authorizationv1.SubjectAccessReviewSpec) {
	o.User = spec.User
	if a := spec.ResourceAttributes; a != nil {
		o.Operation, o.Subresource, o.Namespace, o.Object = a.Verb, a.Subresource, a.Namespace, a.Name
		o.Resource = metav1.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource}
	}
	if a := spec.NonResourceAttributes; a != nil {
		o.Operation, o.Object = a.Verb, a.Path
	}
}

// setAccess sets the response of an AccessFunc. It returns a failure if the function cannot decide.
func (o *Outcome) setAccess(response *AccessResponse) *failure {
	o.Reason, o.Detail = response.Reason, response.Detail
	switch status := &response.Status; {
	case status.EvaluationError != "":
		return &failure{
			status: cmp.Or(response.Code, http.StatusInternalServerError), reason: response.Reason, decision: Unknown,
			message: status.EvaluationError, detail: cmp.Or(response.Detail, status.EvaluationError),
		}
	case status.Denied:
		o.Decision = Denied
	case status.Allowed:
		o.Decision = Allowed
	default:
		o.Decision = NoOpinion
	}
	return nil
}
