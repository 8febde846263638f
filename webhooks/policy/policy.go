// Package policy is the validating endpoint: it decides from policies whether
// the API server may do what it was asked to do.
//
// Policies are Kubernetes' own ValidatingAdmissionPolicy and
// ValidatingAdmissionPolicyBinding documents, unchanged, and AdmissionPolicy
// documents of gatehouse.dev. Their expressions are compiled and evaluated by
// the API server's own library, so that upstream documents give upstream's
// verdicts; what differs is that an answer names every violation, where
// upstream names the first.
//
// Compile does all the work that does not depend on a request. A Set is
// immutable; Review is a pure function of the Set and the request.
package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Policy is a ValidatingAdmissionPolicy and where it was read.
type Policy struct {
	// Source is the file, and the number of the document in it where it has
	// several: "policies/base.yaml#2". It is used in findings only.
	Source string
	admissionregistrationv1.ValidatingAdmissionPolicy
}

// Binding is a ValidatingAdmissionPolicyBinding and where it was read.
type Binding struct {
	// Source is as in Policy.
	Source string
	admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// AdmissionPolicy is an AdmissionPolicy and where it was read.
type AdmissionPolicy struct {
	// Source is as in Policy.
	Source string
	v1alpha1.AdmissionPolicy
}

// Objects is the context that policies look into: namespaces and params. It is
// immutable, safe for concurrent use, and its objects are never changed by the
// one who gets them.
type Objects interface {
	// Namespace is the namespace of that name, and false if it is not known.
	Namespace(name string) (*corev1.Namespace, bool)
	// Get is an object of a kind by namespace and name. The namespace is "" for
	// an object that has none.
	Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, bool)
	// List is every object of a kind in a namespace, or without one if it is "",
	// whose labels match.
	List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) []*unstructured.Unstructured
}

// Spec is what Compile makes a Set of. Its zero value is a Set that allows
// everything.
type Spec struct {
	Policies          []Policy
	Bindings          []Binding
	AdmissionPolicies []AdmissionPolicy
	// Objects may be nil: then no namespace and no param is known.
	Objects Objects
}

// nothing is the context of a Spec without Objects.
type nothing struct{}

func (nothing) Namespace(string) (*corev1.Namespace, bool) { return nil, false }

func (nothing) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, bool) {
	return nil, false
}

func (nothing) List(schema.GroupVersionKind, string, labels.Selector) []*unstructured.Unstructured {
	return nil
}
