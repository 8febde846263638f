package cluster

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

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
		f := c.newFollower(Target{Kind: kind})
		// Without access tokens no caller gets in by mistake; without a policy or
		// a revocation, one may.
		f.vital = kind != v1alpha1.GroupVersion.WithKind("AccessToken")
		f.transform, f.same, f.changed = keepResource, isSameResource, r.notify
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
		objects, _ := f.list()
		for _, one := range objects {
			if resource, ok := one.(*config.Resource); ok {
				all = append(all, resource)
			}
		}
	}
	return all
}
