package policy

import (
	"fmt"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// match is how a request matches a policy, or a binding of it.
type match struct {
	// why is Evaluated if it matches, and Misconfigured if it would match, or could be
	// evaluated, if something were known that is not: err says what. Detail is for people.
	why    Why
	detail string
	err    error
	// resource is the resource and version in which the rules name the request.
	resource schema.GroupVersionResource
	// request is the one that the policy is evaluated for, with the object in the version
	// that it names, and params are those that it is evaluated with.
	request *request
	params  []*matching.Param
}

func misconfigured(r *request, err error) match {
	return match{why: Misconfigured, detail: err.Error(), err: err, request: r}
}

// matchPolicy returns how the request matches a policy, whatever its bindings match.
func matchPolicy(r *request, p *compiledPolicy) match {
	if r.matchedBy != p.match {
		r.matchedBy, r.matched = p.match, r.matches(p.match)
	}
	m := r.matched
	switch {
	case m.why != Evaluated && m.why != Misconfigured:
		return m
	case len(p.bindings) == 0:
		return match{why: NotInForce, detail: "no binding puts it in force"}
	case m.why == Misconfigured:
		return m
	case p.broken != nil:
		return misconfigured(r, p.broken)
	}
	if err := matching.CheckParamKind(r.decider.set.objects, p.spec.ParamKind); err != nil {
		return misconfigured(r, err)
	}
	return m
}

// matchBinding returns how the request matches a binding of a policy that it matches as
// the resource.
func matchBinding(r *request, p *compiledPolicy, b *binding, resource schema.GroupVersionResource) match {
	if b.match != nil {
		m := r.matches(b.match)
		if m.why != Evaluated && m.why != Misconfigured {
			m.detail = "of the binding"
		}
		if m.why != Evaluated {
			return m
		}
	}
	params := r.decider.noParams[:]
	if b.params.Ref != nil {
		var err error
		if params, err = b.params.Find(r.decider.set.objects, r.Namespace); err != nil {
			return misconfigured(r, err)
		}
		if len(params) == 0 {
			return match{why: NoParams, request: r}
		}
	}
	converted, err := r.inVersion(p.match, resource)
	if err != nil {
		return misconfigured(r, err)
	}
	if p.needsNamespace {
		if _, known := converted.NamespaceObject(); !known {
			why := "namespaceObject is used"
			if !p.uses.Has(expression.UsesNamespace) {
				why = "its labels decide"
			}
			return misconfigured(converted, r.UnknownNamespace(why))
		}
	}
	return match{why: Evaluated, request: converted, params: params}
}

// matches returns how constraints match the request.
func (r *request) matches(c *matching.Constraints) match {
	m := c.Match(&r.Request)
	switch m.Outcome {
	case matching.OtherRequest:
		return match{why: OtherRequest, request: r}
	case matching.OtherNamespace:
		return match{why: NamespaceNotSelected, request: r}
	case matching.OtherObject:
		return match{why: ObjectNotSelected, request: r}
	case matching.Unknown:
		return misconfigured(r, m.Err)
	case matching.Matches:
	}
	return match{why: Evaluated, request: r, resource: m.Resource}
}

// matchesCreation reports whether the rules match the creation of the object of the
// request.
func (r *request) matchesCreation(c *matching.Constraints) bool {
	created := r.AdmissionRequest
	created.Operation, created.SubResource, created.RequestSubResource = admissionv1.Create, "", ""
	return c.NamesRequest(&newRequest(r.decider, admissionRequest(created)).Request)
}

// Labels returns the labels of the object, or of the old one, and false if the request does not have it.
func (r *request) Labels(old bool) (set labels.Set, present bool) {
	object := &r.object
	if old {
		object = &r.oldObject
	}
	if !object.present() {
		return nil, false
	}
	return r.objectLabels(object), true
}

// objectLabels reads the labels of an object. If they cannot be read, the
// request fails.
func (r *request) objectLabels(object *payload) labels.Set {
	if object.labels != nil {
		return object.labels
	}
	object.labels = labels.Set{}
	read := r.ObjectValue
	if object == &r.oldObject {
		read = r.OldObjectValue
	}
	metadata, _, _ := celvalue.Member(read(), "metadata")
	value, _, _ := celvalue.Member(metadata, "labels")
	switch found, areStrings, isObject := celvalue.Strings(value); {
	case value == nil || value == types.NullValue:
	case !isObject:
		r.decider.fail(fmt.Errorf("%s: metadata.labels is not an object", object.name))
	case !areStrings:
		r.decider.fail(fmt.Errorf("%s: a label is not a string", object.name))
	default:
		object.labels = found
	}
	return object.labels
}
