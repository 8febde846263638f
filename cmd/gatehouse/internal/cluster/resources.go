package cluster

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// Resources are the custom resources of a cluster that are configuration. It is
// safe for concurrent use.
type Resources struct {
	notifier

	followers []*follower
	// grants proves who has granted.
	grants *grantPolicy
}

// Resources begins to read the custom resources. It is called once.
func (c *Cluster) Resources() (*Resources, error) {
	grants, err := c.newGrantPolicy()
	if err != nil {
		return nil, err
	}
	r := &Resources{notifier: newNotifier(), grants: grants}
	for _, kind := range config.ResourceKinds() {
		f := c.newFollower(Target{Kind: kind})
		// Without access tokens and Grants no caller gets in by mistake; without a policy or
		// a revocation, one may.
		f.vital = kind.Kind != "AccessToken" && kind.Kind != "Grant"
		f.transform, f.same, f.changed = keepResource, isSameResource, r.notify
		r.followers = append(r.followers, f)
	}
	for _, f := range []*follower{r.grants.policy, r.grants.binding} {
		f.changed = r.notify
		r.followers = append(r.followers, f)
	}
	c.mu.Lock()
	c.resources = r.followers
	c.mu.Unlock()
	for _, f := range r.followers {
		c.group.Go(func() { f.run(c.ctx) })
	}
	return r, nil
}

// Wait returns when all of them have been read, but for kinds that the cluster does
// not have, or with ctx. Then the error names what is missing and why.
func (r *Resources) Wait(ctx context.Context) error { return waitFor(ctx, r.followers) }

// All returns the resources in memory, in no order. They must not be changed. A Grant of which the API server may not have checked who
// granted it has an error.
func (r *Resources) All() []*config.Resource {
	var all []*config.Resource
	grants := r.grants.state()
	for _, f := range r.followers {
		objects, _ := f.list()
		for _, one := range objects {
			if resource, ok := one.(*config.Resource); ok {
				all = append(all, grants.check(resource))
			}
		}
	}
	return all
}
