package policy

import (
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// request is a request as policies see it: the one of the review, the creation of the pod
// of a pod template in it, or either of them as it was before an update. Derived values are
// made when they are first needed and shared by all policies.
type request struct {
	matching.Request
	decider           *decider
	object, oldObject payload
	// template is the path of the pod template that the object is made of, and ""
	// for the object of the review.
	template string
	// owner is the kind and name of what has the template, as "Deployment/web", and
	// sameTemplate is true if an update did not change it.
	owner        string
	sameTemplate bool
	// ownerGroup is the API group of the owner.
	ownerGroup string
	// ownerGenerated is true if the name of the owner is only its beginning.
	ownerGenerated bool
	// nameInObject is the name in the object, or the beginning of the one that is generated, once it has been read.
	nameInObject            string
	nameRead, nameGenerated bool
	// isBefore is true for a request as it was before the update: all of the object is
	// judged, though it is an update.
	isBefore bool
	// matched is how matchedBy matched the request, the constraints of the policy before.
	matchedBy *matching.Constraints
	matched   match
	podRead   *podsecurity.Pod
	// containers are nil until an exception asks, see podContainers.
	containers *podContainers
	// podFailures are those of podRead, of the level that was asked for last.
	podFailures podFailures
	// keepsPower reports whether the pod has no more power than it had before the update, nil until a rule asks.
	keepsPower *bool
	values     requestValues
	// earlier is the request by which the object before the update is judged, nil
	// if there is none. It is made by before.
	earlier     *request
	earlierRead bool
	// harmless is what isHarmless found.
	harmless, harmlessRead bool
	// measured and namespaceMeasured are the sizes of the request and of its namespace, zero until they are needed.
	measured, namespaceMeasured measured
	// evaluations are those that are shared by bindings or rules, see evaluate.
	evaluations map[evaluationKey]*evaluation
	// subject is what baselines know the object as, and unbaselined why it cannot be in one. Both are unset until subjectOf.
	subject     *baseline.Subject
	unbaselined string
	// conversions are what inVersion made.
	conversions map[schema.GroupVersionResource]conversion
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
func newRequest(v *decider, req admission.Request) *request {
	r := &v.request
	if r.decider != nil {
		r = new(request)
	}
	*r = request{
		decider:   v,
		object:    payload{name: "object", raw: req.Object.Raw},
		oldObject: payload{name: "oldObject", raw: req.OldObject.Raw},
	}
	r.Init(req, v.set.objects, r, v.set.selectors)
	return r
}

// pod returns the object as a pod.
func (r *request) pod() (*metav1.ObjectMeta, *corev1.PodSpec, error) {
	if r.podRead == nil {
		object, err := r.object.json()
		if err != nil {
			return nil, nil, err
		}
		if node, ok := r.decider.index.Find(object, "request"); ok {
			r.podRead, err = podsecurity.DecodeIndexed(r.decider.index, node)
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
			if node, ok := r.decider.index.Find(text, "request"); ok {
				*to = celvalue.Indexed(r.decider.index, node, of)
			} else {
				*to = celvalue.Typed(text, of)
			}
			r.decider.objects = append(r.decider.objects, *to)
			if failure, bad := (*to).(*types.Err); bad {
				err = fmt.Errorf("%s: %w", from.name, failure)
			}
		}
		if err != nil {
			r.decider.fail(err)
			*to = types.NullValue
		}
	}
	return *to
}

func (r *request) ObjectValue() ref.Val { return r.value(&r.object, &r.values.object) }

func (r *request) OldObjectValue() ref.Val { return r.value(&r.oldObject, &r.values.oldObject) }

func (r *request) RequestValue() ref.Val {
	if r.values.matching && r.Requested != r.SentResource() {
		if r.values.asked == nil {
			r.values.asked = r.requestValue(r.Requested)
		}
		return r.values.asked
	}
	if r.values.request == nil {
		r.values.request = r.requestValue(r.SentResource())
	}
	return r.values.request
}

// requestValue returns the value of request with the resource.
func (r *request) requestValue(resource schema.GroupVersionResource) ref.Val {
	return common.SchemalessTypedToVal(plugincel.CreateAdmissionRequest(r.Attributes(), metav1.GroupVersionResource(resource), r.Kind))
}

// NamespaceValue returns the value of namespaceObject. As upstream, match conditions see
// none.
func (r *request) NamespaceValue() ref.Val {
	if r.values.matching {
		return types.NullValue
	}
	if r.values.namespace == nil {
		namespace, _ := r.NamespaceObject()
		r.values.namespace = common.SchemalessTypedToVal(plugincel.CreateNamespaceObject(namespace))
	}
	return r.values.namespace
}

func (r *request) AuthorizerValue() ref.Val {
	if asked := r.decider.authorizer(); r.values.authorizer == nil && asked != nil {
		r.values.authorizer = library.NewAuthorizerVal(r.Attributes().GetUserInfo(), asked)
	}
	return r.values.authorizer
}

func (r *request) ResourceAuthorizerValue() ref.Val {
	if asked := r.decider.authorizer(); r.values.resourceAuthorizer == nil && asked != nil {
		r.values.resourceAuthorizer = library.NewResourceAuthorizerVal(r.Attributes().GetUserInfo(), asked, r.Attributes())
	}
	return r.values.resourceAuthorizer
}

// authorizer returns the authorizer of the set, whose answers are cached for the review,
// and nil if there is none.
func (v *decider) authorizer() authorizer.UnconditionalAuthorizer {
	if v.caching == nil && v.set.authorizer != nil {
		v.caching = &noticingAuthorizer{expression.CachingAuthorizer(v.context, v.set.authorizer), v}
	}
	return v.caching
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
