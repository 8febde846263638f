package policy

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawcel"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// request is a request as policies see it: the one of the review, the creation of the pod
// of a pod template in it, or either of them as it was before an update. Derived values are
// made when they are first needed and shared by all policies.
type request struct {
	admission.Request
	review *review
	// requested is what the client named; the API server may have sent the
	// object as an equivalent of it.
	requested         schema.GroupVersionResource
	object, oldObject payload
	// template is the path of the pod template that the object is made of, and ""
	// for the object of the review.
	template string
	// owner is the kind and name of what has the template, as "Deployment/web", and
	// sameTemplate is true if an update did not change it.
	owner        string
	sameTemplate bool
	// ownerGenerated is true if the name of the owner is only its beginning.
	ownerGenerated bool
	// nameInObject is the name in the object, or the beginning of the one that is generated, once it has been read.
	nameInObject            string
	nameRead, nameGenerated bool
	// isBaseline is true for a request as it was before the update: all of the object is
	// judged, though it is an update.
	isBaseline bool
	// matched is how matchedBy matched the request, the constraints of the policy before.
	matchedBy *constraints
	matched   match
	// selections has a place for each selector of the set.
	selections []selectorResult
	// namespaceSet are the labels by which the request's namespace is selected,
	// once they have been read; if they are not known, what is known of them.
	namespaceSet                  labels.Set
	namespaceRead, namespaceKnown bool

	// record is what attributes returns, and options are a part of it.
	record  apiserveradmission.Attributes
	options runtime.Unknown
	podRead *podsecurity.Pod
	// podFailures are those of podRead, of the level that was asked for last.
	podFailures podFailures
	// samePrograms reports whether the pod runs what that of the baseline ran, nil until a rule asks.
	samePrograms *bool
	values       requestValues
	// earlier is the request by which the object before the update is judged, nil
	// if there is none. It is made by baseline.
	earlier     *request
	earlierRead bool
	// harmless is what isHarmless found.
	harmless, harmlessRead bool
	// measured and namespaceMeasured are the sizes of the request and of its namespace, zero until they are needed.
	measured, namespaceMeasured measured
	// evaluations are those that are shared by bindings or rules, see evaluate.
	evaluations map[evaluationKey]*evaluation
	// equivalentTo and equivalentsKnown are what equivalents returns, once it was
	// called, and conversions what inVersion made.
	equivalentTo     []equivalent.Resource
	equivalentsKnown bool
	conversions      map[schema.GroupVersionResource]conversion
}

// requestValues are what expressions see of a request, each nil until it is
// asked for.
type requestValues struct {
	object, oldObject, request, asked, namespace ref.Val
	authorizer, resourceAuthorizer               ref.Val
	// matching is true while match conditions are evaluated, for which upstream
	// shows the resource that was asked for, and no namespace.
	matching bool
}

// newRequest returns a request of a review. The first one is in the memory of the review, which is used again.
func newRequest(v *review, req admission.Request) *request {
	r := &v.request
	if r.review != nil {
		r = new(request)
	}
	*r = request{
		Request:   req,
		review:    v,
		object:    payload{name: "object", raw: req.Object.Raw},
		oldObject: payload{name: "oldObject", raw: req.OldObject.Raw},
	}
	r.requested = r.sentResource()
	if req.RequestResource != nil {
		r.requested = schema.GroupVersionResource(*req.RequestResource)
	}
	return r
}

// sentResource returns the resource as which the API server sent the request.
func (r *request) sentResource() schema.GroupVersionResource {
	return schema.GroupVersionResource(r.Resource)
}

// attributes returns the request in the form in which the API server's own admission
// plugins get it, but for the objects.
func (r *request) attributes() apiserveradmission.Attributes {
	if r.record != nil {
		return r.record
	}
	kind := schema.GroupVersionKind(r.Kind)
	if r.RequestKind != nil {
		kind = schema.GroupVersionKind(*r.RequestKind)
	}
	var options runtime.Object
	if len(r.Options.Raw) > 0 {
		r.options = runtime.Unknown{Raw: r.Options.Raw, ContentType: runtime.ContentTypeJSON}
		options = &r.options
	}
	r.record = apiserveradmission.NewAttributesRecord(nil, nil, kind, r.Namespace, r.Name, r.requested, r.SubResource,
		apiserveradmission.Operation(r.Operation), options, r.DryRun != nil && *r.DryRun, (*requester)(&r.UserInfo))
	return r.record
}

// requester is the user of a request. Few reviews need what is extra of it.
type requester authenticationv1.UserInfo

var _ user.Info = (*requester)(nil)

func (u *requester) GetName() string     { return u.Username }
func (u *requester) GetUID() string      { return u.UID }
func (u *requester) GetGroups() []string { return u.Groups }

func (u *requester) GetExtra() map[string][]string {
	if len(u.Extra) == 0 {
		return nil
	}
	extra := make(map[string][]string, len(u.Extra))
	for key, values := range u.Extra {
		extra[key] = values
	}
	return extra
}

// namespaceObject returns the namespace as expressions see it. As in the API server, a
// cluster-scoped object has none, and a Namespace is not in itself.
func (r *request) namespaceObject() (namespace *corev1.Namespace, known bool) {
	kind := r.attributes().GetKind()
	if r.Namespace == "" || kind.Group == "" && kind.Version == "v1" && kind.Kind == "Namespace" {
		return nil, true
	}
	return r.review.set.objects.Namespace(r.Namespace)
}

// pod returns the object as a pod.
func (r *request) pod() (*metav1.ObjectMeta, *corev1.PodSpec, error) {
	if r.podRead == nil {
		object, err := r.object.json()
		if err != nil {
			return nil, nil, err
		}
		if node, ok := r.review.index.Find(object, "request"); ok {
			r.podRead, err = podsecurity.DecodeIndexed(r.review.index, node)
		} else {
			r.podRead, err = podsecurity.Decode(object)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return &r.podRead.Metadata, &r.podRead.Spec, nil
}

var _ expression.Source = (*request)(nil)

// value returns an object as a value. One that cannot be read ends the review.
func (r *request) value(from *payload, to *ref.Val) ref.Val {
	if *to == nil {
		text, err := from.json()
		if err == nil {
			of := builtin.TypeOf(schema.GroupVersionKind(r.Kind))
			if node, ok := r.review.index.Find(text, "request"); ok {
				*to = rawcel.Indexed(r.review.index, node, of)
			} else {
				*to = rawcel.Typed(text, of)
			}
			r.review.objects = append(r.review.objects, *to)
			if failure, bad := (*to).(*types.Err); bad {
				err = fmt.Errorf("%s: %w", from.name, failure)
			}
		}
		if err != nil {
			r.review.fail(err)
			*to = types.NullValue
		}
	}
	return *to
}

func (r *request) ObjectValue() ref.Val { return r.value(&r.object, &r.values.object) }

func (r *request) OldObjectValue() ref.Val { return r.value(&r.oldObject, &r.values.oldObject) }

func (r *request) RequestValue() ref.Val {
	if r.values.matching && r.requested != r.sentResource() {
		if r.values.asked == nil {
			r.values.asked = r.requestValue(r.requested)
		}
		return r.values.asked
	}
	if r.values.request == nil {
		r.values.request = r.requestValue(r.sentResource())
	}
	return r.values.request
}

// requestValue returns the value of request with the resource.
func (r *request) requestValue(resource schema.GroupVersionResource) ref.Val {
	return common.SchemalessTypedToVal(plugincel.CreateAdmissionRequest(r.attributes(), metav1.GroupVersionResource(resource), r.Kind))
}

// NamespaceValue returns the value of namespaceObject. As upstream, match conditions see
// none.
func (r *request) NamespaceValue() ref.Val {
	if r.values.matching {
		return types.NullValue
	}
	if r.values.namespace == nil {
		namespace, _ := r.namespaceObject()
		r.values.namespace = common.SchemalessTypedToVal(plugincel.CreateNamespaceObject(namespace))
	}
	return r.values.namespace
}

func (r *request) AuthorizerValue() ref.Val {
	if asked := r.review.authorizer(); r.values.authorizer == nil && asked != nil {
		r.values.authorizer = library.NewAuthorizerVal(r.attributes().GetUserInfo(), asked)
	}
	return r.values.authorizer
}

func (r *request) ResourceAuthorizerValue() ref.Val {
	if asked := r.review.authorizer(); r.values.resourceAuthorizer == nil && asked != nil {
		r.values.resourceAuthorizer = library.NewResourceAuthorizerVal(r.attributes().GetUserInfo(), asked, r.attributes())
	}
	return r.values.resourceAuthorizer
}

// authorizer returns the authorizer of the set, whose answers are cached for the review,
// and nil if there is none.
func (v *review) authorizer() authorizer.UnconditionalAuthorizer {
	if v.caching == nil && v.set.authorizer != nil {
		v.caching = &noticingAuthorizer{admissionauthorizer.NewCachingAuthorizer(&contextAuthorizer{v.context, v.set.authorizer}), v}
	}
	return v.caching
}

// contextAuthorizer calls an authorizer with the context of a review: the library's
// functions do not pass it on.
type contextAuthorizer struct {
	context    context.Context //nolint:containedctx // it belongs to one review, as this does
	authorizer authorizer.UnconditionalAuthorizer
}

func (a *contextAuthorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.authorizer.Authorize(a.context, attributes) //nolint:contextcheck // that is what it is for
}

// payload is an object of the request: its text, and what was read from it.
type payload struct {
	// name is for errors.
	name string
	raw  []byte
	// build returns raw when it is first asked for, and is nil if it is there.
	build func() ([]byte, error)
	// checked is true if the text is known to be JSON, without space around it.
	checked bool

	parsed rawjson.Value
	// values is what objectValues counts, 0 until it does.
	values int
	labels labels.Set
	err    error
}

// present reports whether the request has the object.
func (p *payload) present() bool {
	return p.build != nil || len(p.raw) > 0 && string(p.raw) != "null"
}

// json returns the checked text, and absent if the request does not have the object.
func (p *payload) json() (rawjson.Value, error) {
	if p.build != nil {
		p.raw, p.err = p.build()
		p.build = nil
	}
	if p.parsed == nil && p.err == nil && p.present() {
		p.parsed = p.raw
		if !p.checked {
			var err error
			if p.parsed, err = rawjson.Parse(p.raw); err != nil {
				p.err = fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if p.err == nil && p.parsed.Kind() != rawjson.Object {
			p.err = fmt.Errorf("%s: not a JSON object", p.name)
		}
	}
	return p.parsed, p.err
}
