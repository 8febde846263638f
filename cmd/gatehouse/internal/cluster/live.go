package cluster

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// liveTimeout bounds how long a review waits for an object that is not in memory.
	liveTimeout = time.Second
	// absentTTL is how long an object that does not exist is remembered.
	absentTTL = time.Second
	// maxAbsent bounds how many of them are remembered.
	maxAbsent = 4096
	// liveGetsPerSecond bounds the requests for params. A policy may allow namespaces
	// without its param: these must not cost a request for every review.
	liveGetsPerSecond = 20
	// clientGetsPerSecond bounds the requests for namespaces for one address without a
	// verified certificate, and clientsGetsPerSecond for all of them: anybody can send names
	// of namespaces that do not exist. clients is how many addresses are distinguished.
	clientGetsPerSecond, clientsGetsPerSecond = 5, 100
	clients                                   = 1024
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
	// certified and others limit requests for namespaces for callers with and without a
	// verified certificate, and byClient has a limit for each address of the latter.
	certified, others *rate.Limiter
	byClient          *cache.LRUExpireCache
	// absent has the objects that could not be read, and fresh the namespaces that could.
	absent, fresh *cache.LRUExpireCache
}

func newLiveGetter(ctx context.Context, namespaces func() *follower) *liveGetter {
	return &liveGetter{
		ctx: ctx, namespaces: namespaces,
		limit:     rate.NewLimiter(liveGetsPerSecond, liveGetsPerSecond),
		certified: rate.NewLimiter(clientsGetsPerSecond, clientsGetsPerSecond),
		others:    rate.NewLimiter(clientsGetsPerSecond, clientsGetsPerSecond),
		byClient:  cache.NewLRUExpireCache(clients),
		absent:    cache.NewLRUExpireCache(maxAbsent),
		fresh:     cache.NewLRUExpireCache(maxAbsent),
	}
}

// allow reports whether a namespace may be read now for a caller.
func (a *liveGetter) allow(client netip.Prefix, certified bool) bool {
	if certified {
		return a.certified.Allow()
	}
	limit, known := a.byClient.Get(client)
	if !known {
		// Two calls at one time may each make one, of which one counts.
		limit = rate.NewLimiter(clientGetsPerSecond, 2*clientGetsPerSecond)
		a.byClient.Add(client, limit, time.Minute)
	}
	return limit.(*rate.Limiter).Allow() && a.others.Allow()
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
	_, fresh := a.fresh.Get(liveObject{f, "", namespace})
	return !fresh
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
	if object, fresh := a.fresh.Get(what); fresh {
		return object
	}
	if _, absent := a.absent.Get(what); absent || !allowed() {
		return nil
	}
	object, _, _ := f.liveGets.Do(key(namespace, name), func() (any, error) {
		ctx, cancel := context.WithTimeout(a.ctx, liveTimeout)
		defer cancel()
		object, err := f.source.get(ctx, s.resource, namespace, name)
		if err == nil {
			kept, err := strip(object)
			if f.vital && err == nil {
				a.fresh.Add(what, kept, freshTTL)
			}
			return kept, err
		}
		a.absent.Add(what, nil, absentTTL)
		if !apierrors.IsNotFound(err) {
			f.count(classify(err))
		}
		return nil, err
	})
	return object
}
