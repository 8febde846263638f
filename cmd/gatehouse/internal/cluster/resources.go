package cluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// resourceConfirmAfter is how long an API server must say at a start that it has no
// definition before this server is ready without custom resources.
const resourceConfirmAfter = 10 * time.Second

// resourceGrace is how long custom resources stay active after their definition
// was last seen. An API server that starts says for a moment that it has none, and one
// of several that is not well may say so for longer: a gate must not be open for that.
const resourceGrace = 10 * time.Minute

// Resources are the custom resources of a cluster that are configuration. It is
// safe for concurrent use.
type Resources struct {
	notifier

	followers []*follower
}

// Resources begins to read the custom resources. It is called once.
func (c *Cluster) Resources() *Resources {
	r := &Resources{notifier: newNotifier()}
	for _, kind := range config.ResourceKinds() {
		f := newFollower(Target{Kind: kind}, &paramSource{kind: kind, client: c.dynamic, discovery: c.discovery}, c.log, c.metrics.counter(kind))
		// Without access tokens no caller gets in by mistake; without a policy or
		// a revocation, one may.
		f.vital = kind != v1alpha1.GroupVersion.WithKind("AccessToken")
		f.absent = "install the CustomResourceDefinitions (gatehouse manifests --crds); Gatehouse retries"
		f.grace, f.confirmAfter = resourceGrace, resourceConfirmAfter
		f.transform, f.same = readResource, sameResource
		f.changed = r.notify
		r.followers = append(r.followers, f)
	}
	c.mu.Lock()
	c.resources = r.followers
	c.mu.Unlock()
	for _, f := range r.followers {
		c.group.Go(func() { f.run(c.ctx) })
	}
	return r
}

// Wait returns when all of them have been read, but for kinds that the cluster does
// not have, or with ctx. Then the error names what is missing and why.
func (r *Resources) Wait(ctx context.Context) error { return waitFor(ctx, r.followers) }

// All returns the resources in memory, in no order. They must not be changed.
func (r *Resources) All() []*config.Resource {
	var all []*config.Resource
	for _, f := range r.followers {
		s := f.state.Load().store
		if s == nil {
			continue
		}
		for _, item := range s.List() {
			if resource, ok := item.(*config.Resource); ok {
				all = append(all, resource)
			}
		}
	}
	return all
}

// readResource returns what is kept of a custom resource. It is idempotent.
func readResource(object any) (any, error) {
	switch object := object.(type) {
	case *config.Resource:
		return object, nil
	case *unstructured.Unstructured:
		return config.ReadResource(object), nil
	default:
		return nil, fmt.Errorf("a %s is no custom resource", reflect.TypeOf(object))
	}
}

// sameResource reports whether two readings are of one version. What changes is the
// status most often, which means nothing here.
func sameResource(before, after any) bool {
	a, _ := before.(*config.Resource)
	b, _ := after.(*config.Resource)
	return a != nil && b != nil && a.Equal(b)
}

// waitFor waits until all followers have been read, or for ctx. A wait for a follower that
// timed out is not repeated, because it would delay every new configuration.
func waitFor(ctx context.Context, all []*follower) error {
	for _, f := range all {
		if f.late.Load() {
			continue
		}
		select {
		case <-f.resolved:
		case <-ctx.Done():
			f.late.Store(!errors.Is(ctx.Err(), context.Canceled))
		}
	}
	return missing(slices.Clone(all))
}
