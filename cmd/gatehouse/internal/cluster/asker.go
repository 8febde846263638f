package cluster

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// askTime is the longest that a review waits for an object that is not in
	// memory.
	askTime = time.Second
	// missTime is for how long an object that does not exist is not asked for
	// again.
	missTime = time.Second
	// misses is how many of them are remembered.
	misses = 4096
	// asksPerSecond is how many objects are asked for at most. Namespaces without
	// the param that a policy allows them to lack must not become a call for every
	// review.
	asksPerSecond = 20
)

// asker asks the API server for single objects.
//
// A look-up has no context, and several may wait for one answer, so it keeps
// that of the Cluster.
type asker struct {
	ctx   context.Context
	limit *rate.Limiter
	// missed has what was asked for and could not be had.
	missed *cache.LRUExpireCache
}

func newAsker(ctx context.Context) *asker {
	return &asker{ctx: ctx, limit: rate.NewLimiter(asksPerSecond, asksPerSecond), missed: cache.NewLRUExpireCache(misses)}
}

// asked names an object.
type asked struct {
	*follower
	namespace, name string
}

// ask is an object of the follower's kind that is not in memory, or nil if there
// is none or it cannot be told in time: then memory is right.
func (a *asker) ask(f *follower, namespace, name string) any {
	s := f.state.Load()
	if s.err != nil || s.resource == nil {
		return nil // The API server is away, or does not give the right.
	}
	// Anybody who reaches the server chooses namespaces. The names of params are
	// the configuration's.
	chosen := namespace
	if f.vital {
		chosen = name
	}
	if chosen != "" && len(validation.IsDNS1123Label(chosen)) > 0 {
		return nil
	}
	what := asked{f, namespace, name}
	if _, missed := a.missed.Get(what); missed || !a.limit.Allow() {
		return nil
	}
	object, _, _ := f.asking.Do(key(namespace, name), func() (any, error) {
		ctx, cancel := context.WithTimeout(a.ctx, askTime)
		defer cancel()
		object, err := f.source.get(ctx, s.resource, namespace, name)
		if err == nil {
			return strip(object)
		}
		a.missed.Add(what, nil, missTime)
		if !apierrors.IsNotFound(err) {
			f.count(classify(err))
		}
		return nil, err
	})
	return object
}
