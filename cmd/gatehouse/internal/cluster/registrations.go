package cluster

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Registrations are the webhook configurations of a cluster that register Gatehouse. It is
// safe for concurrent use.
type Registrations struct {
	notifier

	mutating, validating []*follower
}

// Registrations begins to read the MutatingWebhookConfigurations and
// ValidatingWebhookConfigurations of these names. Nothing waits for them.
func (c *Cluster) Registrations(names []string) *Registrations {
	r := &Registrations{notifier: newNotifier()}
	follow := func(kind, name string) *follower {
		f := c.newFollower(Target{Kind: admissionregistrationv1.SchemeGroupVersion.WithKind(kind), Name: name})
		f.changed = r.notify
		c.group.Go(func() { f.run(c.ctx) })
		return f
	}
	for _, name := range names {
		r.mutating = append(r.mutating, follow("MutatingWebhookConfiguration", name))
		r.validating = append(r.validating, follow("ValidatingWebhookConfiguration", name))
	}
	return r
}

// Mutating returns the configurations that exist, in the order of their names, and false
// until all have been read.
func (r *Registrations) Mutating() ([]admissionregistrationv1.MutatingWebhookConfiguration, bool) {
	return configurations[admissionregistrationv1.MutatingWebhookConfiguration](r.mutating)
}

// Validating is Mutating for ValidatingWebhookConfigurations.
func (r *Registrations) Validating() ([]admissionregistrationv1.ValidatingWebhookConfiguration, bool) {
	return configurations[admissionregistrationv1.ValidatingWebhookConfiguration](r.validating)
}

// configurations returns the objects of followers, in the order of their names.
func configurations[T any, P interface {
	*T
	metav1.Object
}](followers []*follower) ([]T, bool) {
	var all []T
	for _, f := range followers {
		objects, read := f.list()
		if !read {
			return nil, false
		}
		for _, item := range objects {
			object, ok := item.(*param)
			if !ok {
				continue
			}
			var one T
			if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one) == nil {
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(P(&a).GetName(), P(&b).GetName()) })
	return all, true
}
