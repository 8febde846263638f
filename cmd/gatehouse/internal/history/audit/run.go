package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	// firstPage and maxPage are numbers of objects. Objects of a kind that is read for the first time may be large.
	firstPage = 20
	maxPage   = 500
	// patience is how long an API server that does not answer, or asks for less, is waited for between two pages.
	patience = 2 * time.Minute
	// maxStretch is how long objects are decided without a call of Pace, if none of them takes longer.
	maxStretch = 250 * time.Millisecond
	// maxProblem is how many bytes of an error are kept.
	maxProblem = 1024
)

// Options say what is audited and by what. Access, Config and Snapshot are required.
type Options struct {
	// Access is how to reach the API server. Its rate limits hold for the audit.
	Access *rest.Config
	// Config is what Snapshot was compiled from. Its policies and profiles say which resources
	// are read.
	Config *config.Config
	// Snapshot decides. Its lookups answer from the cluster.
	Snapshot *webhooks.Snapshot
	// KnowsNamespaces reports that the lookups of Snapshot hold all namespaces, so that they are not
	// read and kept a second time.
	KnowsNamespaces bool
	// Namespaces are those that are audited, none for all of them. With namespaces, objects in no
	// namespace are left out, and a right to list in each of them is enough.
	Namespaces []string
	// Exclude are namespaces that are not audited, because the API server does not send their
	// objects to Gatehouse.
	Exclude []string
	// Kinds are those that are audited, none for all. Each is a kind or a resource, with or
	// without its group: "Pod", "pods", "deployments.apps".
	Kinds []string
	// Entries requests Result.Entry, NotCovered and HasEnded.
	Entries bool
	// Pace is called after each page, and between its objects once they take long, with the time
	// since the last call or since the page was asked for. It may wait. Its error ends the audit.
	// It may be nil.
	Pace func(ctx context.Context, took time.Duration) error
	// Progress is called when a resource begins, after each of its pages and at its end. It may
	// be nil.
	Progress func(Coverage)
	// Now is the clock of the Outcome, time.Now if it is nil.
	Now func() time.Time
}

// Run audits once, and passes what it finds to the sink as it goes. What cannot be read is in the Outcome and is no error.
// The error is that of the context or of Pace, with an Outcome of what was read until then; or that the resources of the
// API server cannot be discovered, without an Outcome.
func Run(ctx context.Context, o Options, sink Sink) (*Outcome, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(Coverage) {}
	}
	a := &audit{Options: o, sink: sink, retries: paging.Retries{Budget: patience}}
	a.out = &Outcome{Began: o.Now(), Digest: o.Snapshot.Digest, Complete: true}
	if err := a.connect(); err != nil {
		return nil, err
	}
	served, err := Discover(ctx, a.Access)
	if err != nil {
		return nil, err
	}
	a.plan(served)
	a.prepare(ctx)
	err = nil
	m := newMatchers(a.Config)
	for i := range a.targets {
		coverage := Coverage{GroupVersionResource: a.targets[i].GroupVersionResource, Kind: a.targets[i].Kind}
		coverage.Policies = m.about(served.find(coverage.GroupResource()))
		if err == nil {
			err = a.read(ctx, &a.targets[i], &coverage)
		} else {
			coverage.Problem = "not read: the audit ended before"
		}
		a.out.Complete = a.out.Complete && coverage.Complete
		a.out.Coverage = append(a.out.Coverage, coverage)
	}
	a.out.Ended = o.Now()
	return a.out, err
}

// audit is one call of Run.
type audit struct {
	Options

	sink    Sink
	out     *Outcome
	retries paging.Retries
	clients clients
	targets []Target
	decider *decider
}

// connect makes what all requests share: connections, and the rate limit.
func (a *audit) connect() error {
	access := rest.CopyConfig(a.Access)
	if access.RateLimiter == nil && access.QPS >= 0 {
		qps, burst := access.QPS, access.Burst
		if qps == 0 {
			qps = rest.DefaultQPS
		}
		if burst == 0 {
			burst = rest.DefaultBurst
		}
		access.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	a.Access = access
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	a.clients = func(version schema.GroupVersion) (rest.Interface, error) {
		of := rest.CopyConfig(access)
		of.GroupVersion, of.APIPath, of.NegotiatedSerializer = &version, "/apis", scheme.Codecs.WithoutConversion()
		if version.Group == "" {
			of.APIPath = "/api"
		}
		return rest.RESTClientForConfigAndClient(of, client)
	}
	return nil
}

// clients return a client of a group and version.
type clients func(schema.GroupVersion) (rest.Interface, error)

// plan finds out what is read, and what is not.
func (a *audit) plan(served *Served) {
	var unknown []string
	a.targets, unknown = Targets(a.Config, served)
	a.out.Unknown = unknown
	a.notDiscovered(served)
	for _, name := range a.Kinds {
		named := func(t Target) bool { return t.isNamed(name) }
		switch {
		case !slices.ContainsFunc(a.targets, named):
			a.out.Unknown = append(a.out.Unknown, fmt.Sprintf("%s: no active policy or profile matches this kind", name))
			a.out.Complete = false
		case len(a.Namespaces) > 0 && !slices.ContainsFunc(a.targets, func(t Target) bool { return t.Namespaced && named(t) }):
			a.out.Unknown = append(a.out.Unknown, fmt.Sprintf("%s: its objects are cluster-scoped, and --namespace audits only objects in namespaces", name))
			a.out.Complete = false
		}
	}
	a.targets = slices.DeleteFunc(a.targets, func(t Target) bool {
		return len(a.Kinds) > 0 && !slices.ContainsFunc(a.Kinds, t.isNamed) || len(a.Namespaces) > 0 && !t.Namespaced
	})
	a.Namespaces = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(a.Namespaces))), func(name string) bool { return slices.Contains(a.Exclude, name) })
	set, left := a.Snapshot.Policy.ForObjects(registration.NotBreakGlass().Expression) // an audit is not a member
	snapshot := *a.Snapshot
	snapshot.Policy = set
	a.out.Skipped = skippedRules(left)
	var skipped []Skipped
	snapshot.Mutation, skipped = knownMutations(a.Config, snapshot.Mutation)
	a.Snapshot, a.out.Skipped = &snapshot, append(a.out.Skipped, skipped...)
	a.out.Skipped = append(a.out.Skipped, newMatchers(a.Config).skipped(served, a.out.Skipped)...)
	sortSkipped(a.out.Skipped)
}

// notDiscovered names the groups that policies may match and that cannot be discovered. What their
// resources are is not known.
func (a *audit) notDiscovered(served *Served) {
	m := newMatchers(a.Config)
	named := sets.New[string]()
	for _, version := range served.undiscovered() {
		policies, may := m.mayMatch(version.Group)
		if named.Has(version.Group) || !may {
			continue
		}
		named.Insert(version.Group)
		a.out.Complete = false
		a.out.Coverage = append(a.out.Coverage, Coverage{
			GroupVersionResource: version.WithResource("*"), Problem: "cannot be discovered: " + problem(served.failed[version]), Policies: policies,
		})
	}
}

// undiscovered returns the groups and versions that cannot be discovered, sorted.
func (s *Served) undiscovered() []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(s.failed), func(a, b schema.GroupVersion) int { return cmp.Compare(a.String(), b.String()) })
}

// isNamed reports whether a name is one of the kind or the resource, with or without the group.
func (t *Target) isNamed(name string) bool {
	name, group, hasGroup := strings.Cut(strings.ToLower(name), ".")
	return (name == t.Resource || name == strings.ToLower(t.Kind)) && (!hasGroup || group == t.Group)
}

// read reads and decides all objects of a resource. The error ends the audit.
func (a *audit) read(ctx context.Context, t *Target, coverage *Coverage) error {
	a.Progress(*coverage)
	defer func() { a.Progress(*coverage) }()
	client, err := a.clients(t.GroupVersion())
	if err != nil {
		coverage.Problem = problem(err)
		return nil
	}
	coverage.Complete = true
	places := a.Namespaces
	if len(places) == 0 {
		places = []string{""}
	}
	for _, namespace := range places {
		var ended error
		list := paging.List{
			Client: client, Resource: t.Resource, Namespace: namespace,
			Limit: firstPage, MaxLimit: maxPage, Retries: &a.retries,
		}
		err := list.Each(ctx, func(page paging.Page) error {
			ended = a.decidePage(ctx, t, coverage, page)
			return ended
		})
		if err != nil {
			coverage.fail(t, namespace, err)
		}
		if ended == nil {
			ended = context.Cause(ctx)
		}
		if err != nil && ended != nil {
			coverage.Problem = "the audit ended before all objects were read"
			return ended
		}
	}
	return nil
}

// decidePage decides the objects of a page. The error ends the audit.
func (a *audit) decidePage(ctx context.Context, t *Target, coverage *Coverage, page paging.Page) error {
	working := page.Began
	for _, item := range page.Items {
		object := objectOf(t, item)
		if slices.Contains(a.Exclude, object.Home()) {
			continue
		}
		if err := a.decider.decide(ctx, t, object, item, a.sink); err != nil {
			return err
		}
		coverage.Objects++
		if time.Since(working) >= maxStretch {
			if err := a.pause(ctx, &working); err != nil {
				return err
			}
		}
	}
	now := *coverage
	now.Complete = false
	a.Progress(now)
	return a.pause(ctx, &working)
}

// pause calls Pace with the time since the audit works, and begins that time again.
func (a *audit) pause(ctx context.Context, working *time.Time) error {
	if a.Pace == nil {
		return nil
	}
	err := a.Pace(ctx, time.Since(*working))
	*working = time.Now()
	return err
}

// fail records why not all objects were read, and the first right that is missing.
func (c *Coverage) fail(t *Target, namespace string, err error) {
	c.Complete = false
	if c.Problem != "" {
		return
	}
	in := ""
	if namespace != "" {
		in = fmt.Sprintf(" in namespace %q", namespace)
	}
	switch class := apierr.Classify(err); class { //nolint:exhaustive // all others say what they are
	case apierr.Forbidden:
		c.Problem = problem(err)
		if apierr.LacksRight(err, "list") {
			c.Right = "list " + t.GroupResource().String() + in
			c.Problem = "missing right: " + c.Right
		}
	case apierr.NotFound, apierr.Unserved:
		c.Problem = "the API server does not serve it any more: its definition was deleted during the audit"
	case apierr.Expired:
		c.Problem = "the list expired too often" + in + " (hint: give the audit a higher rate of requests)"
	default:
		c.Problem = problem(err) + in
	}
}

// problem returns an error for people, on one line.
func problem(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the API server did not answer in time"
	}
	if strings.TrimSpace(err.Error()) == "" {
		return "the API server answers without a reason"
	}
	return truncate.Bytes(strings.Join(strings.Fields(err.Error()), " "), maxProblem)
}
