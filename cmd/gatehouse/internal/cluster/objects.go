package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// What is kept of an object in memory is without what no policy needs: managed fields are a third of a usual object. The functions
// of this file are transform functions of informers, and idempotent.

// param is an object other than a Namespace, with its labels read, because they
// are read more often than they change.
type param struct {
	*unstructured.Unstructured
	labels labels.Set
	// kinds are the kinds of a CustomResourceDefinition, nil for another object.
	kinds *mutation.CustomKinds
}

// keepParam keeps an object without its managed fields, and the schemas of a definition without descriptions.
func keepParam(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	u.SetManagedFields(nil)
	kept := &param{Unstructured: u, labels: u.GetLabels()}
	if u.GroupVersionKind() == definitionKind {
		withoutDescriptions(u.Object)
		kept.kinds = mutation.NewCustomKinds([]*unstructured.Unstructured{u})
	}
	return kept, nil
}

// keepNamespace keeps a namespace in its own type: what expressions see of it is upstream's, and half the memory.
func keepNamespace(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	n := new(corev1.Namespace)
	u.SetManagedFields(nil)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
		return nil, fmt.Errorf("namespace %q: %w", u.GetName(), err)
	}
	return n, nil
}

// keepResource keeps a custom resource as configuration.
func keepResource(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return config.ReadResource(u), nil
	}
	return object, nil
}

// isSameResource reports whether two readings are of one version. What changes is the
// status most often, which means nothing here.
func isSameResource(before, after any) bool {
	a, _ := before.(*config.Resource)
	b, _ := after.(*config.Resource)
	return a != nil && b != nil && a.Equal(b)
}

// key is the key of an object in a store.
func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// notifier has a value whenever something changed since the last one was received.
type notifier chan struct{}

func newNotifier() notifier { return make(notifier, 1) }

// Changed has a value whenever there may be other objects than before.
func (n notifier) Changed() <-chan struct{} { return n }

func (n notifier) notify() {
	select {
	case n <- struct{}{}:
	default:
	}
}
