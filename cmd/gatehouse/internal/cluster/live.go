package cluster

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
)

const (
	// liveTimeout bounds how long a review waits for an object that is not in memory.
	liveTimeout = time.Second
	// absentTTL is how long an object that does not exist is remembered.
	absentTTL = time.Second
	// maxKnown bounds how many objects are remembered.
	maxKnown = 4096
	// liveGetsPerSecond bounds the requests for params. A policy may allow namespaces
	// without its param: these must not cost a request for every review.
	liveGetsPerSecond = 20
	// namespaceGetsPerSecond bounds the requests for namespaces for all clients without a
	// verified certificate, and as many again for others: anybody can send names
	// of namespaces that do not exist. The account of each of the former bounds them too.
	namespaceGetsPerSecond = 100
	// freshTTL is how long a namespace is remembered. By then the watch has it.
	freshTTL = 10 * time.Second
)

// liveGetter reads single objects from the API server.
//
// A look-up has no context, and several may wait for one answer, so that it uses the
// context of the Cluster.
type liveGetter struct {
	ctx   context.Context
	limit *rate.Limiter
	// namespaces returns the follower of namespaces, nil if there is none.
	namespaces func() *follower
	// certified and others limit requests for namespaces for clients with and without a
	// verified certificate.
	certified, others *rate.Limiter
	// known has the namespaces that were read, and nil for objects that could not be.
	known *cache.LRUExpireCache
}

func newLiveGetter(ctx context.Context, namespaces func() *follower) *liveGetter {
	return &liveGetter{
		ctx: ctx, namespaces: namespaces,
		limit:     rate.NewLimiter(liveGetsPerSecond, liveGetsPerSecond),
		certified: rate.NewLimiter(namespaceGetsPerSecond, namespaceGetsPerSecond),
		others:    rate.NewLimiter(namespaceGetsPerSecond, namespaceGetsPerSecond),
		known:     cache.NewLRUExpireCache(maxKnown),
	}
}

// allow reports whether a namespace may be read now for a client.
func (a *liveGetter) allow(client *clients.Client) bool {
	if client.Certified {
		return a.certified.Allow()
	}
	return client.Lookups.Allow() && a.others.Allow()
}

// isAbsent reports whether there is no such namespace, as far as is known.
func (a *liveGetter) isAbsent(namespace string) bool {
	f := a.namespaces()
	if f == nil {
		return false
	}
	if object, read := f.get("", namespace); object != nil || !read {
		return false
	}
	object, _ := a.known.Get(liveObject{f, "", namespace})
	return object == nil
}

// liveObject names an object.
type liveObject struct {
	*follower
	namespace, name string
}

// getLive returns an object of the follower's kind that is not in memory. It returns nil
// if there is none or no answer in time.
func (a *liveGetter) getLive(f *follower, namespace, name string) any {
	return a.getLiveIf(f, namespace, name, a.limit.Allow)
}

// getLiveIf is getLive if a request is allowed.
func (a *liveGetter) getLiveIf(f *follower, namespace, name string, allowed func() bool) any {
	s := f.state.Load()
	if s.err != nil || s.resource == nil {
		return nil // The API server is unreachable, or forbids it.
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
	if !f.vital && namespace != "" && a.isAbsent(namespace) {
		return nil
	}
	what := liveObject{f, namespace, name}
	if object, known := a.known.Get(what); known || !allowed() {
		return object
	}
	object, _, _ := f.liveGets.Do(key(namespace, name), func() (any, error) {
		ctx, cancel := context.WithTimeout(a.ctx, liveTimeout)
		defer cancel()
		object, err := f.source.get(ctx, s.resource, namespace, name)
		if err == nil {
			kept, err := f.transform(object)
			if f.vital && err == nil {
				a.known.Add(what, kept, freshTTL)
			}
			return kept, err
		}
		a.known.Add(what, nil, absentTTL)
		if !apierrors.IsNotFound(err) {
			f.count(classify(err))
		}
		return nil, err
	})
	return object
}
