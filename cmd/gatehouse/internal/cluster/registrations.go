package cluster

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Registrations are webhook configurations of a cluster, which say what is sent. It
// is safe for concurrent use.
type Registrations struct {
	validating []*follower
	changed    chan struct{}
}

// Registrations begins to read the ValidatingWebhookConfigurations of these names.
// Nothing waits for them.
func (c *Cluster) Registrations(names []string) *Registrations {
	r := &Registrations{changed: make(chan struct{}, 1)}
	kind := admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	for _, name := range names {
		f := newFollower(Target{Kind: kind, Name: name}, &paramSource{kind: kind, client: c.dynamic, discovery: c.discovery}, c.log, c.metrics.counter(kind))
		f.keep = func(s *store) cache.ReflectorStore { return &touchingStore{s, r.touch} }
		f.changed = r.touch
		r.validating = append(r.validating, f)
		c.group.Go(func() { f.run(c.ctx) })
	}
	return r
}

// Changed has a value whenever Validating may be something else than before.
func (r *Registrations) Changed() <-chan struct{} { return r.changed }

func (r *Registrations) touch() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Validating are the configurations that there are, in the order of their names, and
// false while it is not known of each name whether there is one.
func (r *Registrations) Validating() ([]admissionregistrationv1.ValidatingWebhookConfiguration, bool) {
	var all []admissionregistrationv1.ValidatingWebhookConfiguration
	for _, f := range r.validating {
		s := f.state.Load().store
		if s == nil {
			return nil, false
		}
		for _, item := range s.List() {
			object, ok := item.(*param)
			if !ok {
				continue
			}
			var one admissionregistrationv1.ValidatingWebhookConfiguration
			if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one) == nil {
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b admissionregistrationv1.ValidatingWebhookConfiguration) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return all, true
}

// touchingStore tells of every change.
type touchingStore struct {
	*store
	changed func()
}

// Add implements cache.ReflectorStore.
func (s *touchingStore) Add(object any) error {
	defer s.changed()
	return s.store.Add(object)
}

// Update implements cache.ReflectorStore.
func (s *touchingStore) Update(object any) error {
	defer s.changed()
	return s.store.Update(object)
}

// Delete implements cache.ReflectorStore.
func (s *touchingStore) Delete(object any) error {
	defer s.changed()
	return s.store.Delete(object)
}
