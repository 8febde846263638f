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
	// clientAsksPerSecond is how many namespaces are asked for at most for one address
	// without a verified certificate, and clientsAsksPerSecond for all of them: anybody can
	// send names of namespaces that do not exist. clients is how many addresses are told apart.
	clientAsksPerSecond, clientsAsksPerSecond = 5, 100
	clients                                   = 1024
	// freshTime is for how long a namespace that was asked for is remembered, by when the
	// watch has it.
	freshTime = 10 * time.Second
)

// asker asks the API server for single objects.
//
// A look-up has no context, and several may wait for one answer, so it keeps
// that of the Cluster.
type asker struct {
	ctx   context.Context
	limit *rate.Limiter
	// namespaces are those that are followed, nil if none are.
	namespaces func() *follower
	// certified and others are the limits for namespaces of requests, by callers with a
	// verified certificate and without one, and byClient has that of each address of the latter.
	certified, others *rate.Limiter
	byClient          *cache.LRUExpireCache
	// missed has what was asked for and could not be had, and fresh the namespaces that could.
	missed, fresh *cache.LRUExpireCache
}

func newAsker(ctx context.Context, namespaces func() *follower) *asker {
	return &asker{
		ctx: ctx, namespaces: namespaces,
		limit:     rate.NewLimiter(asksPerSecond, asksPerSecond),
		certified: rate.NewLimiter(clientsAsksPerSecond, clientsAsksPerSecond),
		others:    rate.NewLimiter(clientsAsksPerSecond, clientsAsksPerSecond),
		byClient:  cache.NewLRUExpireCache(clients),
		missed:    cache.NewLRUExpireCache(misses),
		fresh:     cache.NewLRUExpireCache(misses),
	}
}

// allow reports whether a namespace may be asked for now for a caller.
func (a *asker) allow(client netip.Prefix, certified bool) bool {
	if certified {
		return a.certified.Allow()
	}
	limit, known := a.byClient.Get(client)
	if !known {
		// Two calls at one time may each make one, of which one counts.
		limit = rate.NewLimiter(clientAsksPerSecond, 2*clientAsksPerSecond)
		a.byClient.Add(client, limit, time.Minute)
	}
	return limit.(*rate.Limiter).Allow() && a.others.Allow()
}

// invented reports whether there is no such namespace, as far as is known: then there is
// nothing in it.
func (a *asker) invented(namespace string) bool {
	f := a.namespaces()
	if f == nil {
		return false
	}
	if object, read := f.get("", namespace); object != nil || !read {
		return false
	}
	_, fresh := a.fresh.Get(asked{f, "", namespace})
	return !fresh
}

// asked names an object.
type asked struct {
	*follower
	namespace, name string
}

// ask is an object of the follower's kind that is not in memory, or nil if there
// is none or it cannot be told in time: then memory is right.
func (a *asker) ask(f *follower, namespace, name string) any {
	return a.askWithin(f, namespace, name, a.limit.Allow)
}

// askWithin is ask, if it is allowed to ask the API server.
func (a *asker) askWithin(f *follower, namespace, name string, allowed func() bool) any {
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
	if !f.vital && namespace != "" && a.invented(namespace) {
		return nil
	}
	what := asked{f, namespace, name}
	if object, fresh := a.fresh.Get(what); fresh {
		return object
	}
	if _, missed := a.missed.Get(what); missed || !allowed() {
		return nil
	}
	object, _, _ := f.asking.Do(key(namespace, name), func() (any, error) {
		ctx, cancel := context.WithTimeout(a.ctx, askTime)
		defer cancel()
		object, err := f.source.get(ctx, s.resource, namespace, name)
		if err == nil {
			kept, err := strip(object)
			if f.vital && err == nil {
				a.fresh.Add(what, kept, freshTime)
			}
			return kept, err
		}
		a.missed.Add(what, nil, missTime)
		if !apierrors.IsNotFound(err) {
			f.count(classify(err))
		}
		return nil, err
	})
	return object
}
