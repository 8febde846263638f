// Package cluster reads from a cluster what policies and profiles look up: namespaces, the objects that they name as
// params and presets, and answers of the API server's authorizer. The server uses a View, which watches exactly the
// objects that the configuration names and answers from memory. A command uses Once, which reads each object when it is
// needed.
//
// While the API server cannot be reached, a View goes on with the objects that it has read.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	// qps and burst bound the requests to the API server: a policy may check the
	// authorizer several times a review.
	qps   = 200
	burst = 400
	// readyTimeout is how long Ready waits for params, because a missing right for one
	// policy must not stop all others.
	readyTimeout = 30 * time.Second
)

// Cluster is a connection to an API server. It is safe for concurrent use.
type Cluster struct {
	log        *slog.Logger
	dynamic    dynamic.Interface
	discovery  *discovery.DiscoveryClient
	access     *access
	liveGetter *liveGetter
	metrics    *metrics
	// namespaces is the follower of namespaces, nil until they are needed. It runs from then on.
	namespaces atomic.Pointer[follower]

	// ctx ends with the Cluster. Followers begin and end with configurations, not
	// with calls.
	ctx   context.Context
	close context.CancelFunc
	group sync.WaitGroup

	begin time.Time
	ready atomic.Bool
	mu    sync.Mutex
	// params are the followers of params, with what stops each.
	params map[Target]*running
	// resources are the followers of the custom resources, which run for ever.
	resources []*follower
}

type running struct {
	*follower
	stop context.CancelFunc
}

// New returns a Cluster for the API server of a configuration, which is not changed. It
// sends no request, so that an error is about the configuration. Version is the version of
// this program, for the user agent. The caller calls Close.
func New(config *rest.Config, version string, log *slog.Logger) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "gatehouse/" + version
	config.QPS, config.Burst = qps, burst
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", config.Host, err)
	}
	c := &Cluster{log: log, begin: time.Now(), params: map[Target]*running{}, metrics: newMetrics()}
	if err := c.clients(config, client); err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", config.Host, err)
	}
	c.ctx, c.close = context.WithCancel(context.Background())
	c.liveGetter = newLiveGetter(c.ctx, c.namespaces.Load)
	return c, nil
}

func (c *Cluster) clients(config *rest.Config, client *http.Client) error {
	// Checks of rights are part of reviews: they take the encoding that is cheaper for both sides.
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	authorization, err := authorizationv1client.NewForConfigAndClient(typed, client)
	if err != nil {
		return err
	}
	if c.access, err = newAccess(authorization, c.log, c.metrics.reviews); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return err
	}
	c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, client)
	return err
}

// Close stops all followers. It does not wait for them, which may take some seconds while
// the API server is unreachable.
func (c *Cluster) Close() { c.close() }

// Provide makes a configuration look up everything in the cluster instead of a directory,
// and starts to read what it needs. Policies that change objects look up what the others do.
func (c *Cluster) Provide(p *policy.Spec, m *mutation.Spec, s *sidecar.Spec) *View {
	v := c.view(FindWatchTargets(p, m, s))
	p.Objects, p.Authorizer = v, c.access.authorizer()
	if m.Schemas == nil {
		m.Schemas = mutation.NewCustomKinds(nil)
	}
	m.Schemas = &definitions{followers: v.params[definitionKind], others: m.Schemas}
	s.Namespaces, s.ConfigMaps = v, v
	return v
}

func (c *Cluster) view(n WatchTargets) *View {
	v := &View{liveGetter: c.liveGetter, params: map[schema.GroupVersionKind][]*follower{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Namespaces {
		v.namespaces = c.namespaces.Load()
		if v.namespaces == nil {
			v.namespaces = c.newFollower(Target{Kind: namespaceKind})
			v.namespaces.vital, v.namespaces.transform = true, keepNamespace
			c.namespaces.Store(v.namespaces)
			c.group.Go(func() { v.namespaces.run(c.ctx) })
		}
		v.all = append(v.all, v.namespaces)
	}
	for _, t := range n.Targets {
		r := c.params[t]
		if r == nil {
			ctx, stop := context.WithCancel(c.ctx)
			r = &running{c.newFollower(t), stop}
			c.params[t] = r
			c.group.Go(func() { r.run(ctx) })
		}
		v.params[t.Kind] = append(v.params[t.Kind], r.follower)
		v.all = append(v.all, r.follower)
	}
	return v
}

// ReadNamespace reads the namespace of a request if it is not in memory, because it may have been created a moment ago.
// The number of reads is limited for each client, so that a client that names namespaces that do not exist delays no
// other.
func (c *Cluster) ReadNamespace(name string, client *clients.Client) {
	f := c.namespaces.Load()
	if f == nil || name == "" {
		return
	}
	if object, read := f.get("", name); object != nil || !read {
		return
	}
	c.liveGetter.getLiveIf(f, "", name, func() bool { return c.liveGetter.allow(client) })
}

// Keep stops watching what the View does not use. Reviews that an older configuration still decides use the objects in
// memory.
func (c *Cluster) Keep(v *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, r := range c.params {
		if !slices.Contains(v.all, r.follower) {
			r.stop()
			delete(c.params, t)
		}
	}
}

// Ready returns nil once everything has been read that is looked up, and from then on:
// objects in memory stay in use. Before, its error names what is missing, and why.
//
// It waits for params for readyTimeout, and for namespaces, which nearly every policy
// needs, without a limit.
func (c *Cluster) Ready() error {
	if c.ready.Load() {
		return nil
	}
	all := c.followers()
	err := missing(all)
	if err == nil || time.Since(c.begin) > readyTimeout && missing(slices.DeleteFunc(all, func(f *follower) bool { return !f.vital })) == nil {
		if !c.ready.Swap(true) && err != nil {
			// Logged when objects of the cluster cannot be read for so long that the replica becomes ready without them; reviews that need them cannot be decided.
			c.log.Error("ready, but not all objects that policies and profiles look up are read", "missing", err.Error())
		}
		return nil
	}
	return fmt.Errorf("not read from the cluster yet: %w", err)
}

// followers returns the running followers, in no order.
func (c *Cluster) followers() []*follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.resources)
	if f := c.namespaces.Load(); f != nil {
		all = append(all, f)
	}
	for _, r := range c.params {
		all = append(all, r.follower)
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Cluster) Describe(ch chan<- *prometheus.Desc) { c.metrics.describe(ch) }

// Collect implements prometheus.Collector.
func (c *Cluster) Collect(ch chan<- prometheus.Metric) {
	c.metrics.collect(ch, c.followers())
}
