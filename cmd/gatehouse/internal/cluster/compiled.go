package cluster

import (
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Compiled are the documents of gatehouse compile in a cluster, of which a comparable value of each is kept. It is safe for concurrent use.
type Compiled[T comparable] struct {
	notifier

	followers []*follower
}

// FollowCompiled begins to read the documents. The server does not wait for them, because no decision depends on them. Keep returns what is
// kept of one, and false for nothing.
func FollowCompiled[T comparable](c *Cluster, keep func(metav1.Object) (T, bool)) *Compiled[T] {
	w := &Compiled[T]{notifier: newNotifier()}
	for kind, empty := range map[string]func() metav1.Object{
		"ValidatingAdmissionPolicy":        func() metav1.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicy) },
		"ValidatingAdmissionPolicyBinding": func() metav1.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) },
	} {
		f := c.newFollower(Target{Kind: admissionregistrationv1.SchemeGroupVersion.WithKind(kind)})
		f.labels, f.changed = v1alpha1.ManagedByLabel+"="+v1alpha1.CompileManager, w.notify
		f.transform = func(object any) (any, error) {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return object, nil
			}
			one := kept[T]{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}}
			if document := empty(); runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, document) == nil {
				one.value, one.is = keep(document)
			}
			return &one, nil
		}
		f.same = func(before, after any) bool {
			a, _ := before.(*kept[T])
			b, _ := after.(*kept[T])
			return a != nil && b != nil && a.value == b.value
		}
		w.followers = append(w.followers, f)
		c.group.Go(func() { f.run(c.ctx) })
	}
	return w
}

// kept is what is kept of an object, with its name and version for stores of client-go.
type kept[T comparable] struct {
	metav1.ObjectMeta

	value T
	is    bool
}

// ErrNotReadYet is the error of All before the first reading.
var ErrNotReadYet = errors.New("not read from the cluster yet")

// All returns what is kept, in no order. The error is ErrNotReadYet, or why the documents cannot be read.
func (w *Compiled[T]) All() (all []T, err error) {
	for _, f := range w.followers {
		objects, read := f.list()
		if failed := f.state.Load().err; failed != nil && (!read || classify(failed) == apierr.Forbidden) {
			return nil, failed
		} else if !read {
			return nil, ErrNotReadYet
		}
		for _, one := range objects {
			if one, ok := one.(*kept[T]); ok && one.is {
				all = append(all, one.value)
			}
		}
	}
	return all, nil
}
