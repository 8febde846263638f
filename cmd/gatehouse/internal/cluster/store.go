package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// store holds the objects of a watch, by namespace and name, without what no
// policy needs: managed fields are a third of a usual object.
type store struct {
	cache.Indexer
	// replaced is called after all objects have been read.
	replaced func()
	// transform returns what is kept of an object.
	transform cache.TransformFunc
	// same reports whether an object need not be replaced by another one; nil stands for never.
	same func(before, after any) bool
	// changed is called after an object was added, replaced or deleted.
	changed func()
}

func newStore(transform cache.TransformFunc, same func(before, after any) bool, changed func()) *store {
	return &store{
		Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, cache.WithTransformer(transform)),
		transform: transform, same: same, changed: changed,
	}
}

// Add implements cache.Store.
func (s *store) Add(object any) error {
	kept, err := s.transform(object)
	if err != nil {
		return err
	}
	if s.same != nil {
		before, exists, err := s.Get(kept)
		if err == nil && exists && s.same(before, kept) {
			return nil
		}
	}
	err = s.Indexer.Add(kept)
	s.changed()
	return err
}

// Update implements cache.Store.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.Store.
func (s *store) Delete(object any) error {
	err := s.Indexer.Delete(object)
	s.changed()
	return err
}

// Transformer lets the reflector transform objects when it reads them first.
func (s *store) Transformer() cache.TransformFunc { return s.transform }

// Replace implements cache.Store.
func (s *store) Replace(list []any, resourceVersion string) error {
	if err := s.Indexer.Replace(list, resourceVersion); err != nil {
		return err
	}
	s.replaced()
	return nil
}

// param is an object other than a Namespace, with its labels read, because they
// are read more often than they change.
type param struct {
	*unstructured.Unstructured
	labels labels.Set
	// kinds are the kinds of a CustomResourceDefinition, nil for another object.
	kinds *mutation.CustomKinds
}

// strip returns what is kept of an object: it has no managed fields, a param has its labels, and the schemas of a definition have no
// descriptions. It is idempotent.
func strip(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	accessor.SetManagedFields(nil)
	if u, ok := object.(*unstructured.Unstructured); ok {
		kept := &param{Unstructured: u, labels: u.GetLabels()}
		if u.GroupVersionKind() == definitionKind {
			withoutDescriptions(u.Object)
			kept.kinds = mutation.NewCustomKinds([]*unstructured.Unstructured{u})
		}
		return kept, nil
	}
	return object, nil
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
