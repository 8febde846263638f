package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	celcommon "k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Request is a request to the API server that writes, as far as it is known.
type Request struct {
	Operation   admissionv1.Operation
	Resource    schema.GroupVersionResource
	Subresource string
	Kind        schema.GroupVersionKind
	// Namespace of a request about a Namespace is that Namespace.
	Namespace, Name string
	User            authenticationv1.UserInfo
	// Object and OldObject are JSON, nil where the request has none. ObjectUnknown is a request that has one which is not known.
	Object, OldObject []byte
	ObjectUnknown     bool
	// Redacted reports whether values in the objects are not those that the API server has seen. Labels are.
	Redacted bool
	DryRun   bool
}

// request is a Request as selectors and expressions see it. It is not safe for concurrent use.
type request struct {
	matching.Request

	objectUnknown, redacted, reviewsAreExempt bool
	labels, oldLabels                         labels.Set
	object, oldObject, asked                  ref.Val
	authorizer, resourceAuthorizer            ref.Val
	// validated is the request as validating webhooks see it, with a name that the API server has generated, nil for the same.
	validated *request
	// rights reports whether the user has every right, or none, and opaque whether match conditions see an object that is not known.
	rights, opaque bool
}

var (
	_ expression.Source = (*request)(nil)
	_ matching.Source   = (*request)(nil)
)

// newRequest returns a request to the cluster.
func (d *Drill) newRequest(of *Request) (*request, error) {
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(of.Kind), Resource: metav1.GroupVersionResource(of.Resource), SubResource: of.Subresource,
		Name: of.Name, Namespace: of.Namespace, Operation: of.Operation, UserInfo: of.User, DryRun: new(of.DryRun),
		Object: runtime.RawExtension{Raw: of.Object}, OldObject: runtime.RawExtension{Raw: of.OldObject},
	}}
	r, err := d.requestOf(req, of)
	if err != nil {
		return nil, err
	}
	name, err := admit.GenerateName(&req)
	if err == nil && name != "" {
		r.validated, err = d.requestOf(req, of)
	}
	return r, err
}

func (d *Drill) requestOf(req admission.Request, of *Request) (*request, error) {
	r := &request{objectUnknown: of.ObjectUnknown, redacted: of.Redacted, reviewsAreExempt: d.reviewsAreExempt}
	var err error
	if r.object, r.labels, err = read(req.Object.Raw, of.Kind); err != nil {
		return nil, fmt.Errorf("the object of the request: %w", err)
	}
	if r.oldObject, r.oldLabels, err = read(req.OldObject.Raw, of.Kind); err != nil {
		return nil, fmt.Errorf("the old object of the request: %w", err)
	}
	r.Init(req, d.cluster, r, d.selectors.Count())
	return r, nil
}

// read returns an object as a value, and its labels, which are nil without an object.
func read(text []byte, kind schema.GroupVersionKind) (ref.Val, labels.Set, error) {
	if len(text) == 0 {
		return types.NullValue, nil, nil
	}
	value, err := rawjson.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	if value.Kind() != rawjson.Object {
		return types.NullValue, nil, nil
	}
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, nil, err
	}
	set := labels.Set(object.Metadata.Labels)
	if set == nil {
		set = labels.Set{}
	}
	out := celvalue.Typed(value, builtin.TypeOf(kind))
	if failure, bad := out.(*types.Err); bad {
		return nil, nil, failure
	}
	return out, set, nil
}

// isExempt reports whether the API server calls no webhook about the resource.
func (r *request) isExempt() bool {
	of := r.Requested.GroupResource()
	switch of.Group {
	case admissionregistrationv1.GroupName:
		return matching.IsExempt(of) || of.Resource == "mutatingwebhookconfigurations" || of.Resource == "validatingwebhookconfigurations"
	case "authentication.k8s.io", "authorization.k8s.io":
		return r.reviewsAreExempt && matching.IsExempt(of)
	default:
		return false
	}
}

// Labels implements matching.Source.
func (r *request) Labels(old bool) (labels.Set, bool) {
	if old {
		return r.oldLabels, r.oldLabels != nil
	}
	return r.labels, r.labels != nil
}

// UnknownNamespace implements matching.Source.
func (r *request) UnknownNamespace(why string) error {
	return fmt.Errorf("the namespace %q is not known, and %s", r.Namespace, why)
}

// ObjectValue and the following methods implement expression.Source.
func (r *request) ObjectValue() ref.Val    { return r.object }
func (r *request) OldObjectValue() ref.Val { return r.oldObject }

// RequestValue returns the request as match conditions see it: with the resource that was asked for.
func (r *request) RequestValue() ref.Val {
	if r.asked == nil {
		r.asked = celcommon.SchemalessTypedToVal(plugincel.CreateAdmissionRequest(r.Attributes(), metav1.GroupVersionResource(r.Requested), r.Kind))
	}
	return r.asked
}

// NamespaceValue returns null, as in the match conditions of webhooks.
func (*request) NamespaceValue() ref.Val { return types.NullValue }

// AuthorizerValue returns an authorizer that knows one answer.
func (r *request) AuthorizerValue() ref.Val {
	if r.authorizer == nil {
		r.authorizer = library.NewAuthorizerVal(r.Attributes().GetUserInfo(), rights(r.rights))
	}
	return r.authorizer
}

// ResourceAuthorizerValue is AuthorizerValue for authorizer.requestResource.
func (r *request) ResourceAuthorizerValue() ref.Val {
	if r.resourceAuthorizer == nil {
		r.resourceAuthorizer = library.NewResourceAuthorizerVal(r.Attributes().GetUserInfo(), rights(r.rights), r.Attributes())
	}
	return r.resourceAuthorizer
}

// rights is an authorizer by which every user has every right, or none.
type rights bool

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r rights) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if r {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// isKubernetes reports whether a user is a part of Kubernetes itself, whose requests bring a cluster back.
func isKubernetes(user string) bool {
	switch user {
	case "system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy":
		return true
	}
	return strings.HasPrefix(user, "system:node:") || strings.HasPrefix(user, "system:serviceaccount:kube-system:")
}
