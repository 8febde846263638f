package matching

import (
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
)

// Source is what a Request reads of its objects, when it needs it.
type Source interface {
	// Labels returns the labels of the object, or of the old one, and false if the request does not have it.
	Labels(old bool) (set labels.Set, present bool)
	// UnknownNamespace returns the error for a namespace that is not known, and why that matters.
	UnknownNamespace(why string) error
}

// Request is a request as constraints see it. Derived values are made when they are first needed. It is not safe for
// concurrent use.
type Request struct {
	admission.Request
	// Requested is what the client named; the API server may have sent the
	// object as an equivalent of it.
	Requested schema.GroupVersionResource

	objects Objects
	source  Source
	// selectors is how many there are, and selections has a place for each.
	selectors  int
	selections []selectorResult
	// namespaceSet are the labels by which the request's namespace is selected,
	// once they have been read; if they are not known, what is known of them.
	namespaceSet                  labels.Set
	namespaceRead, namespaceKnown bool

	// record is what Attributes returns, and options are a part of it.
	record  apiserveradmission.Attributes
	options runtime.Unknown
	// equivalentTo and equivalentsKnown are what Equivalents returns, once it was
	// called.
	equivalentTo     []kindversions.Resource
	equivalentsKnown bool
}

// Init makes the zero Request that of an admission request, for constraints of Selectors that have compiled so many.
func (r *Request) Init(req admission.Request, objects Objects, source Source, selectors int) {
	r.Request, r.objects, r.source, r.selectors = req, objects, source, selectors
	r.Requested = r.SentResource()
	if req.RequestResource != nil {
		r.Requested = schema.GroupVersionResource(*req.RequestResource)
	}
}

// SentResource returns the resource as which the API server sent the request.
func (r *Request) SentResource() schema.GroupVersionResource {
	return schema.GroupVersionResource(r.Resource)
}

// Attributes returns the request in the form in which the API server's own admission
// plugins get it, but for the objects.
func (r *Request) Attributes() apiserveradmission.Attributes {
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
	r.record = apiserveradmission.NewAttributesRecord(nil, nil, kind, r.Namespace, r.Name, r.Requested, r.SubResource,
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

// NamespaceObject returns the namespace as expressions see it. As in the API server, a
// cluster-scoped object has none, and a Namespace is not in itself.
func (r *Request) NamespaceObject() (namespace *corev1.Namespace, known bool) {
	kind := r.Attributes().GetKind()
	if r.Namespace == "" || kind.Group == "" && kind.Version == "v1" && kind.Kind == "Namespace" {
		return nil, true
	}
	return r.objects.Namespace(r.Namespace)
}

// crdKind returns the kind that defines custom resources.
func crdKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

// Equivalents returns the resources that are equivalent to the requested one,
// itself included, in the order in which the API server looks through them. If they
// are not known, it returns the two that the request names, and false.
func (r *Request) Equivalents() (list []kindversions.Resource, known bool) {
	if r.equivalentTo == nil {
		r.equivalentTo = kindversions.Of(r.Requested)
		if r.equivalentTo == nil {
			r.equivalentTo = r.customVersions()
		}
		has := func(resource schema.GroupVersionResource) bool {
			return slices.ContainsFunc(r.equivalentTo, func(e kindversions.Resource) bool { return e.GroupVersionResource == resource })
		}
		// An API server that sends something else is newer than what is known here.
		r.equivalentsKnown = has(r.Requested) && has(r.SentResource())
		if !r.equivalentsKnown {
			r.equivalentTo = []kindversions.Resource{{GroupVersionResource: r.Requested, Standard: true}, {GroupVersionResource: r.SentResource(), Standard: true}}
		}
	}
	return r.equivalentTo, r.equivalentsKnown
}

// customVersions returns the versions of a custom resource that its definition serves,
// or nil if the definition is not among the objects.
func (r *Request) customVersions() []kindversions.Resource {
	crd := r.definition()
	if crd == nil {
		return nil
	}
	var out []kindversions.Resource
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		fields, _ := version.(map[string]any)
		if name, _ := fields["name"].(string); fields["served"] == true {
			out = append(out, kindversions.Resource{
				GroupVersionResource: schema.GroupVersionResource{Group: r.Requested.Group, Version: name, Resource: r.Requested.Resource}, Standard: true,
			})
		}
	}
	return out
}

// definition returns the definition of the requested custom resource, or nil if it is not
// among the objects.
func (r *Request) definition() *unstructured.Unstructured {
	crd, err := r.objects.Get(crdKind(), "", r.Requested.Resource+"."+r.Requested.Group)
	if err != nil {
		return nil
	}
	return crd
}

// IsRenamed reports whether the API server converts the object, of a custom resource, to the
// other version by its apiVersion alone: the definition serves both and has no conversion webhook.
func (r *Request) IsRenamed(to schema.GroupVersionResource) bool {
	if r.HasOwnKind() || to == r.SentResource() || kindversions.Of(r.Requested) != nil {
		return false
	}
	list, known := r.Equivalents()
	crd := r.definition()
	if !known || crd == nil || !slices.ContainsFunc(list, func(e kindversions.Resource) bool { return e.GroupVersionResource == to }) {
		return false
	}
	strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
	return strategy == "" || strategy == "None"
}

// ShareEquivalents takes over what the request of another version found of Equivalents.
func (r *Request) ShareEquivalents(of *Request) {
	r.equivalentTo, r.equivalentsKnown = of.equivalentTo, of.equivalentsKnown
}

// NeedsConversion reports whether the object has to be converted for constraints that match the request as the
// resource. An error says why it cannot be converted.
func (r *Request) NeedsConversion(c *Constraints, resource schema.GroupVersionResource) (bool, error) {
	sent := r.SentResource()
	if resource == sent {
		return false, nil
	}
	convertible := kindversions.Convertible(sent, resource)
	if r.HasOwnKind() {
		_, convertible = r.Equivalents()
	}
	if convertible {
		return true, nil
	}
	// The rules may name what was sent as well as what was requested.
	if !c.exact && anyMatches(c.Rules, &otherResource{r.Attributes(), sent}, r.Name) {
		return false, nil
	}
	return false, fmt.Errorf("failed to convert object version: the object was sent as %s, and the policy names %s: "+
		"name the versions of policies in the webhook configuration, with matchPolicy Equivalent", sent.GroupVersion(), resource.GroupVersion())
}

// HasOwnKind reports whether the object is of a kind that does not belong to the
// version of the resource, such as the Scale of a subresource: it is the same for all
// versions.
func (r *Request) HasOwnKind() bool {
	return r.Kind.Group != r.Resource.Group || r.Kind.Version != r.Resource.Version
}
