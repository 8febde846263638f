package policy

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
)

// crdKind returns the kind that defines custom resources.
func crdKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

// equivalents returns the resources that are equivalent to the requested one,
// itself included, in the order in which the API server looks through them. If they
// are not known, it returns the two that the request names, and false.
func (r *request) equivalents() (list []equivalent.Resource, known bool) {
	if r.equivalentTo == nil {
		r.equivalentTo = equivalent.Of(r.requested)
		if r.equivalentTo == nil {
			r.equivalentTo = r.customVersions()
		}
		has := func(resource schema.GroupVersionResource) bool {
			return slices.ContainsFunc(r.equivalentTo, func(e equivalent.Resource) bool { return e.GroupVersionResource == resource })
		}
		// An API server that sends something else is newer than what is known here.
		r.equivalentsKnown = has(r.requested) && has(r.sentResource())
		if !r.equivalentsKnown {
			r.equivalentTo = []equivalent.Resource{{GroupVersionResource: r.requested, Standard: true}, {GroupVersionResource: r.sentResource(), Standard: true}}
		}
	}
	return r.equivalentTo, r.equivalentsKnown
}

// customVersions returns the versions of a custom resource that its definition serves,
// or nil if the definition is not among the objects.
func (r *request) customVersions() []equivalent.Resource {
	crd, err := r.review.set.objects.Get(crdKind(), "", r.requested.Resource+"."+r.requested.Group)
	if err != nil || crd == nil {
		return nil
	}
	var out []equivalent.Resource
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		fields, _ := version.(map[string]any)
		if name, _ := fields["name"].(string); fields["served"] == true {
			out = append(out, equivalent.Resource{
				GroupVersionResource: schema.GroupVersionResource{Group: r.requested.Group, Version: name, Resource: r.requested.Resource}, Standard: true,
			})
		}
	}
	return out
}

// inVersion returns the request as a policy sees it that names the resource: with the
// object in that version. An error says why it cannot be converted.
func (r *request) inVersion(c *constraints, resource schema.GroupVersionResource) (*request, error) {
	sent := r.sentResource()
	if resource == sent {
		return r, nil
	}
	if known, ok := r.conversions[resource]; ok {
		return known.request, known.err
	}
	convertible := equivalent.Convertible(sent, resource)
	if r.hasOwnKind() {
		_, convertible = r.equivalents()
	}
	if !convertible {
		// The rules may name what was sent as well as what was requested.
		if !c.exact && anyMatches(c.rules, &otherResource{r.attributes(), sent}, r.Name) {
			return r, nil
		}
		return nil, fmt.Errorf("failed to convert object version: the object was sent as %s, and the policy names %s: "+
			"name the versions of policies in the webhook configuration, with matchPolicy Equivalent", sent.GroupVersion(), resource.GroupVersion())
	}
	converted, err := r.convert(resource)
	if r.conversions == nil {
		r.conversions = map[schema.GroupVersionResource]conversion{}
	}
	r.conversions[resource] = conversion{converted, err}
	return converted, err
}

// hasOwnKind reports whether the object is of a kind that does not belong to the
// version of the resource, such as the Scale of a subresource: it is the same for all
// versions.
func (r *request) hasOwnKind() bool {
	return r.Kind.Group != r.Resource.Group || r.Kind.Version != r.Resource.Version
}

// conversion is a request as one of an equivalent resource, or why there is none.
type conversion struct {
	request *request
	err     error
}

func (r *request) convert(resource schema.GroupVersionResource) (*request, error) {
	req := r.AdmissionRequest
	if req.RequestKind == nil {
		req.RequestKind = new(r.Kind)
	}
	req.RequestResource = (*metav1.GroupVersionResource)(&r.requested)
	req.Resource = metav1.GroupVersionResource(resource)
	if r.hasOwnKind() {
		return r.converted(req), nil
	}
	req.Kind.Group, req.Kind.Version = resource.Group, resource.Version
	for _, object := range [...]struct {
		from *payload
		to   *runtime.RawExtension
	}{{&r.object, &req.Object}, {&r.oldObject, &req.OldObject}} {
		if !object.from.present() {
			continue
		}
		text, err := object.from.json()
		if err != nil {
			r.review.fail(err)
			return nil, err
		}
		if object.to.Raw, err = equivalent.Convert(text, r.sentResource(), resource); err != nil {
			return nil, fmt.Errorf("failed to convert object version: %s: %w", object.from.name, err)
		}
	}
	out := r.converted(req)
	out.object.checked, out.oldObject.checked = true, true
	return out, nil
}

// converted returns the request of the review in another form.
func (r *request) converted(req admissionv1.AdmissionRequest) *request {
	out := newRequest(r.review, admissionRequest(req))
	out.object.checked, out.oldObject.checked = r.object.checked, r.oldObject.checked
	out.equivalentTo, out.equivalentsKnown, out.isBaseline = r.equivalentTo, r.equivalentsKnown, r.isBaseline
	return out
}
