// Package matching decides which requests the policies and bindings of admissionregistration.k8s.io match, and finds
// their params. The rules are those of k8s.io/apiserver/pkg/admission/plugin/policy/matching and of
// …/policy/generic.CollectParams, for a webhook: it gets an object in the one version that its registration names.
package matching

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Objects are the namespaces and params that policies read. An implementation is safe for
// concurrent use and answers without making a review wait. Callers never change what it
// returns.
type Objects interface {
	// Namespace returns the namespace of that name, and false if it is not known.
	Namespace(name string) (*corev1.Namespace, bool)
	// Namespaced reports whether objects of a kind are in namespaces. An error
	// says why it is not known. It wraps ErrNotServed if there is no such kind.
	Namespaced(gvk schema.GroupVersionKind) (bool, error)
	// Get returns an object of a kind by namespace and name, or nil if there is none.
	// The namespace is "" for an object that has none. An error says why it is
	// not known whether there is one.
	Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// List returns every object of a kind in a namespace, or without one if it is "",
	// whose labels match, in the order of their names.
	List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error)
}

// ErrNotServed is wrapped by errors of Objects that say that API servers do not
// serve a kind in its version.
var ErrNotServed = errors.New("the kind is not served")

// Nothing are Objects of which none is known.
type Nothing struct{}

var _ Objects = Nothing{}

// Namespace returns false.
func (Nothing) Namespace(string) (*corev1.Namespace, bool) { return nil, false }

// Namespaced returns true.
func (Nothing) Namespaced(schema.GroupVersionKind) (bool, error) { return true, nil }

// Get returns nil.
func (Nothing) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, nil //nolint:nilnil // there is none, as the interface says
}

// List returns nil.
func (Nothing) List(schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
