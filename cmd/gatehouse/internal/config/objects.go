package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// objects are the context objects of a directory: what policies and templates
// may look up. They never change, and are safe for concurrent use. What they
// return is shared by all callers and must not be changed.
type objects struct {
	namespaces map[string]*corev1.Namespace
	byKind     map[schema.GroupVersionKind]map[placed]*unstructured.Unstructured
	sorted     map[schema.GroupVersionKind]map[string][]*unstructured.Unstructured
}

// placed is the place of an object among those of its kind.
type placed struct{ namespace, name string }

func newObjects(namespaces []sidecar.KnownNamespace, context []*unstructured.Unstructured) *objects {
	o := &objects{
		namespaces: make(map[string]*corev1.Namespace, len(namespaces)),
		byKind:     map[schema.GroupVersionKind]map[placed]*unstructured.Unstructured{},
		sorted:     map[schema.GroupVersionKind]map[string][]*unstructured.Unstructured{},
	}
	for _, n := range namespaces {
		o.namespaces[n.Name] = n.Namespace
	}
	for _, u := range context {
		gvk := u.GroupVersionKind()
		if o.byKind[gvk] == nil {
			o.byKind[gvk] = map[placed]*unstructured.Unstructured{}
			o.sorted[gvk] = map[string][]*unstructured.Unstructured{}
		}
		o.byKind[gvk][placed{u.GetNamespace(), u.GetName()}] = u
		o.sorted[gvk][u.GetNamespace()] = append(o.sorted[gvk][u.GetNamespace()], u)
	}
	for _, byNamespace := range o.sorted {
		for _, list := range byNamespace {
			slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
		}
	}
	return o
}

// Namespace is the namespace of that name.
func (o *objects) Namespace(name string) (*corev1.Namespace, bool) {
	n, ok := o.namespaces[name]
	return n, ok
}

// ConfigMapData is the data of a ConfigMap.
func (o *objects) ConfigMapData(namespace, name string) (map[string]string, bool) {
	u := o.byKind[corev1.SchemeGroupVersion.WithKind("ConfigMap")][placed{namespace, name}]
	if u == nil {
		return nil, false
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	return data, err == nil
}

// Get is the object of exactly that kind and version, or nil. The namespace is
// empty for kinds that are not in namespaces. There is never an error.
func (o *objects) Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	return o.byKind[gvk][placed{namespace, name}], nil
}

// List are the objects of exactly that kind and version in the namespace that
// the selector matches, sorted by name. A nil selector matches all. There is
// never an error.
func (o *objects) List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for _, u := range o.sorted[gvk][namespace] {
		if selector == nil || selector.Matches(labels.Set(u.GetLabels())) {
			list = append(list, u)
		}
	}
	return list, nil
}

// Namespaced tells whether objects of a kind are in namespaces. Kinds of
// Kubernetes are known; of others, the objects of the directory show it, and
// without any, namespaces are assumed. The error says that Kubernetes does not serve
// a kind in its version.
func (o *objects) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	if len(o.byKind[gvk]) == 0 {
		if serves, known := equivalent.Serves(gvk); known && !serves {
			return false, fmt.Errorf("failed to find resource referenced by paramKind: '%v': %w", gvk, policy.ErrNotServed)
		}
	}
	if !strings.Contains(gvk.Group, ".") {
		return !isClusterKind(gvk.Kind), nil
	}
	if strings.HasSuffix(gvk.Group, ".k8s.io") && isClusterKind(gvk.Kind) {
		return false, nil
	}
	return len(o.sorted[gvk][""]) == 0, nil
}

// isClusterKind tells whether a kind of Kubernetes is cluster-scoped. Their
// names are unique among its groups.
func isClusterKind(kind string) bool {
	switch kind {
	case "APIService", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "ClusterTrustBundle",
		"CSIDriver", "CSINode", "CustomResourceDefinition", "DeviceClass", "DeviceTaintRule", "FlowSchema",
		"IngressClass", "IPAddress", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "PriorityClass",
		"PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass", "ServiceCIDR", "StorageClass",
		"StorageVersion", "StorageVersionMigration", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment",
		"VolumeAttributesClass":
		return true
	default:
		return false
	}
}
