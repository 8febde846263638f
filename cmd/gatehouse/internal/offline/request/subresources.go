package request

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// subresource is a subresource of Kubernetes with a kind of its own.
type subresource struct {
	kind schema.GroupVersionKind
	// of is the resource, and empty for a subresource of many.
	of   schema.GroupVersionResource
	name string
	// operation is the default operation.
	operation admissionv1.Operation
	// also reports whether the kind has a resource too.
	also bool
}

// subresources returns all of them. A kind belongs to one subresource only.
func subresources() []subresource {
	core := schema.GroupVersion{Version: "v1"}
	connect := func(kind, resource, name string) subresource {
		return subresource{kind: core.WithKind(kind), of: core.WithResource(resource), name: name, operation: admissionv1.Connect}
	}
	create := func(kind schema.GroupVersionKind, resource, name string) subresource {
		return subresource{kind: kind, of: core.WithResource(resource), name: name, operation: admissionv1.Create}
	}
	binding := create(core.WithKind("Binding"), "pods", "binding")
	binding.also = true
	return []subresource{
		connect("PodExecOptions", "pods", "exec"),
		connect("PodAttachOptions", "pods", "attach"),
		connect("PodPortForwardOptions", "pods", "portforward"),
		connect("PodProxyOptions", "pods", "proxy"),
		connect("ServiceProxyOptions", "services", "proxy"),
		connect("NodeProxyOptions", "nodes", "proxy"),
		create(schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, "pods", "eviction"),
		create(schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}, "serviceaccounts", "token"),
		binding,
		{kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, name: "scale", operation: admissionv1.Update},
	}
}

// SubresourceKind returns the kind of a subresource that has a kind of its own.
func SubresourceKind(resource schema.GroupVersionResource, name string) (schema.GroupVersionKind, bool) {
	for _, s := range subresources() {
		if s.name == name && (s.of == resource || s.of.Resource == "") {
			return s.kind, true
		}
	}
	return schema.GroupVersionKind{}, false
}

// resolve returns the resource of a request for a kind, and sets subresource and operation of the Spec if they are empty.
func (r *Resources) resolve(s *Spec, kind schema.GroupVersionKind) (gvr schema.GroupVersionResource, as Resource, err error) {
	for _, sub := range subresources() {
		switch {
		case sub.kind != kind || sub.also && s.SubResource == "":
			continue
		case s.SubResource != "" && s.SubResource != sub.name:
			return gvr, as, fmt.Errorf("object: kind %q is that of the subresource %q, and not of %q", kind.Kind, sub.name, s.SubResource)
		case sub.of.Resource == "":
			return gvr, as, fmt.Errorf("object: a %s is that of the subresource %q of many resources, and does not say of which", kind.Kind, sub.name)
		}
		s.SubResource = sub.name
		if s.Operation == "" && s.OldObject == nil {
			s.Operation = sub.operation
		}
		return sub.of, Resource{Name: sub.of.Resource, ClusterScoped: sub.of.Resource == "nodes"}, nil
	}
	as = r.Of(kind)
	gvr = kind.GroupVersion().WithResource(as.Name)
	if own, ok := SubresourceKind(gvr, s.SubResource); ok {
		return gvr, as, fmt.Errorf("object: kind %q is not that of %s/%s: it must be a %s of %s", kind.Kind, gvr.Resource, s.SubResource, own.Kind, own.GroupVersion())
	}
	return gvr, as, nil
}

// options returns the default options of an operation. A CONNECT has none: its object is the options.
func options(operation admissionv1.Operation) []byte {
	var kind string
	switch operation {
	case admissionv1.Create:
		kind = "CreateOptions"
	case admissionv1.Update:
		kind = "UpdateOptions"
	case admissionv1.Delete:
		kind = "DeleteOptions"
	case admissionv1.Connect:
		return nil
	}
	return []byte(`{"kind":"` + kind + `","apiVersion":"` + metav1.SchemeGroupVersion.String() + `"}`)
}
