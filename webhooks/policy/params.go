package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// params finds the params of a binding. Its zero value is a binding without.
type params struct {
	kind       schema.GroupVersionKind
	namespaced bool
	// ref is nil if policy or binding know nothing of params.
	ref      *admissionregistrationv1.ParamRef
	selector labels.Selector
}

func compileParams(objects Objects, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) params {
	if kind == nil || ref == nil {
		return params{}
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	out := params{kind: gvk, namespaced: isNamespaced(objects, gvk), ref: ref}
	if ref.Selector != nil {
		out.selector, _ = metav1.LabelSelectorAsSelector(ref.Selector) // checked before
	}
	return out
}

// isNamespaced tells whether objects of a kind are in namespaces. Kinds of
// Kubernetes are known; of others, the objects of the context show it, and
// without any, namespaces are assumed.
func isNamespaced(objects Objects, gvk schema.GroupVersionKind) bool {
	if !strings.Contains(gvk.Group, ".") {
		return !isClusterKind(gvk.Kind)
	}
	if strings.HasSuffix(gvk.Group, ".k8s.io") && isClusterKind(gvk.Kind) {
		return false
	}
	return !slices.ContainsFunc(objects.List(gvk, "", labels.Everything()), func(object *unstructured.Unstructured) bool {
		return object.GetNamespace() == ""
	})
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

// find is every param of the binding for a request in a namespace, in the order
// of their names, and one nil without params. The policy is evaluated once for
// each. An error denies, or not, as the failure policy says.
func (p *params) find(objects Objects, namespace string) ([]runtime.Object, error) {
	if p.ref == nil {
		return []runtime.Object{nil}, nil
	}
	switch {
	case !p.namespaced && p.ref.Namespace != "":
		return nil, fmt.Errorf("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !p.namespaced:
		namespace = ""
	case p.ref.Namespace != "":
		namespace = p.ref.Namespace
	case namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	var found []*unstructured.Unstructured
	if p.selector != nil {
		found = slices.SortedFunc(slices.Values(objects.List(p.kind, namespace, p.selector)), func(a, b *unstructured.Unstructured) int {
			return cmp.Compare(a.GetName(), b.GetName())
		})
	} else if object, ok := objects.Get(p.kind, namespace, p.ref.Name); ok {
		found = append(found, object)
	}
	if len(found) == 0 && *p.ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	out := make([]runtime.Object, len(found))
	for i, object := range found {
		out[i] = param{object}
	}
	return out, nil
}

// param is an object that expressions see without being copied: an
// unstructured object alone would be written as JSON and read again for every
// evaluation.
type param struct{ *unstructured.Unstructured }

// ToUnstructured is the object's content, which nobody changes.
func (p param) ToUnstructured() any { return p.Object }
