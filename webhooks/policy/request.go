package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// request is one review under way. Everything in it is made when it is first
// asked for and shared by all policies.
type request struct {
	admission.Request
	set *Set
	// requested is what the client named; the API server may have sent the
	// object as an equivalent of it.
	requested         schema.GroupVersionResource
	object, oldObject payload
	// outcomes has a place for each selector of the set.
	outcomes []outcome
	// namespaceSet are the labels by which the request's namespace is selected,
	// once they have been read; if they are not known, what is known of them.
	namespaceSet                  labels.Set
	namespaceRead, namespaceKnown bool

	record    apiserveradmission.Attributes
	versioned *apiserveradmission.VersionedAttributes
	podRead   *podsecurity.Pod
	// err is why the request cannot be decided.
	err error

	answer
}

func newRequest(set *Set, req admission.Request) *request {
	r := &request{
		Request:   req,
		set:       set,
		object:    payload{name: "object", raw: req.Object.Raw},
		oldObject: payload{name: "oldObject", raw: req.OldObject.Raw},
	}
	r.requested = r.sent()
	if req.RequestResource != nil {
		r.requested = schema.GroupVersionResource(*req.RequestResource)
	}
	return r
}

// sent is the resource as which the API server sent the request.
func (r *request) sent() schema.GroupVersionResource {
	return schema.GroupVersionResource(r.Resource)
}

// fail makes the review end without a decision. The first reason stays.
func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// attributes is the request in the form in which the API server's own admission
// plugins get it, but for the objects.
func (r *request) attributes() apiserveradmission.Attributes {
	if r.record != nil {
		return r.record
	}
	kind := schema.GroupVersionKind(r.Kind)
	if r.RequestKind != nil {
		kind = schema.GroupVersionKind(*r.RequestKind)
	}
	info := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups}
	if len(r.UserInfo.Extra) > 0 {
		info.Extra = make(map[string][]string, len(r.UserInfo.Extra))
		for key, values := range r.UserInfo.Extra {
			info.Extra[key] = values
		}
	}
	var options runtime.Object
	if len(r.Options.Raw) > 0 {
		options = &runtime.Unknown{Raw: r.Options.Raw, ContentType: runtime.ContentTypeJSON}
	}
	r.record = apiserveradmission.NewAttributesRecord(nil, nil, kind, r.Namespace, r.Name, r.requested, r.SubResource,
		apiserveradmission.Operation(r.Operation), options, r.DryRun != nil && *r.DryRun, info)
	return r.record
}

// evaluable is the request as expressions see it. Without a look at the objects
// they are not decoded, and null.
func (r *request) evaluable(objects bool) (*apiserveradmission.VersionedAttributes, error) {
	if r.versioned == nil {
		r.versioned = &apiserveradmission.VersionedAttributes{
			Attributes: r.attributes(), VersionedKind: schema.GroupVersionKind(r.Kind),
		}
	}
	if !objects {
		return r.versioned, nil
	}
	var without []string
	if !r.set.managedFields {
		without = managedFieldsPath()
	}
	object, err := r.object.unstructured(without...)
	if err != nil {
		return nil, err
	}
	if object != nil && r.versioned.VersionedObject.Object() == nil {
		r.versioned.VersionedObject.Set(object)
	}
	old, err := r.oldObject.unstructured(without...)
	if err != nil {
		return nil, err
	}
	if old != nil && r.versioned.VersionedOldObject.Object() == nil {
		r.versioned.VersionedOldObject.Set(old)
	}
	return r.versioned, nil
}

// namespace is the namespace as expressions see it. As in the API server, what
// is in no namespace has none, and a Namespace is not in itself.
func (r *request) namespace() (namespace *corev1.Namespace, known bool) {
	kind := r.attributes().GetKind()
	if r.Namespace == "" || kind.Group == "" && kind.Version == "v1" && kind.Kind == "Namespace" {
		return nil, true
	}
	return r.set.objects.Namespace(r.Namespace)
}

// pod is the object as a pod.
func (r *request) pod() (*metav1.ObjectMeta, *corev1.PodSpec, error) {
	if r.podRead == nil {
		object, err := r.object.json()
		if err != nil {
			return nil, nil, err
		}
		if r.podRead, err = podsecurity.Decode(object); err != nil {
			return nil, nil, err
		}
	}
	return &r.podRead.Metadata, &r.podRead.Spec, nil
}

// payload is an object of the request: its text, and what was read from it.
type payload struct {
	// name is for errors.
	name string
	raw  []byte
	// checked tells that the text is known to be JSON, without space around it.
	checked bool

	parsed  rawjson.Value
	decoded *unstructured.Unstructured
	labels  labels.Set
	err     error
}

// present tells whether the request has the object.
func (p *payload) present() bool {
	return len(p.raw) > 0 && string(p.raw) != "null"
}

// json is the checked text, and absent if the request does not have the object.
func (p *payload) json() (rawjson.Value, error) {
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

// unstructured is the object as the API server's decoder would read it, but for
// what is at the path without, and nil if the request does not have it.
func (p *payload) unstructured(without ...string) (*unstructured.Unstructured, error) {
	if p.decoded != nil {
		return p.decoded, nil
	}
	text, err := p.json()
	if err != nil || len(text) == 0 {
		return nil, err
	}
	tree, err := text.DecodeWithout(without...)
	if err != nil {
		p.err = fmt.Errorf("%s: %w", p.name, err)
		return nil, p.err
	}
	object, _ := tree.(map[string]any)
	p.decoded = &unstructured.Unstructured{Object: object}
	return p.decoded, nil
}
