package configuration

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Reconciler keeps the active configuration up to date with its two sources: the documents of a directory and the custom
// resources of a cluster. Either may be empty. Its methods, except Ready and CheckComplete, are called by one goroutine.
//
// Every change of a source takes the same way: merge the documents with the custom resources, resolve which versions can be
// active together, compile, activate, report.
type Reconciler struct {
	// Dir is the directory, "" without one.
	Dir     string
	Current *Active
	// Cluster is where policies and profiles look up objects. Without one they look into the directory.
	Cluster   *cluster.Cluster
	Providers *IdentityProviders
	// Resources are nil without custom resources.
	Resources CustomResources
	// Report receives what became of the custom resources after each activation. It may be nil.
	Report func(status.Report)
	// NotSent returns a function that returns remarks on what an object matches and the API server does not send, and on what it
	// costs to send it. It may be nil, and so may its result.
	NotSent func(*config.Config) func(object any) (notSent, warnings []string)
	// Native is what the API server enforces itself. It is nil without custom resources.
	Native *Native
	// Renotify have a value when the report about the same resources has changed. They may be nil.
	Renotify [3]<-chan struct{}
	// RefuseEmptied makes a file that has lost all its documents an error.
	RefuseEmptied bool
	// ScopesEnforced is that of authn.Spec. Without it, tokens with a scope are rejected.
	ScopesEnforced func() error

	resolver resolve.Resolver
	// documents are those of the active configuration, nil without custom resources.
	documents *config.Config
	// resources are the custom resources that were read last. failed is true if they could not be activated.
	resources []*config.Resource
	failed    bool
	// restUntil is the time before which changed custom resources are not activated.
	restUntil time.Time
	// active is the last activated resolution, nil without custom resources. lookups belong to the active configuration.
	active  *resolve.Resolution
	lookups lookups
	// complete is true once everything that existed at the start is active.
	complete atomic.Bool
}

// lookups are what a configuration looks up in the cluster and in identity providers.
type lookups struct {
	cluster    *cluster.View
	identities identities
}

// CustomResources are those of a cluster. cluster.Resources implements it.
type CustomResources interface {
	// Changed receives a value after changes.
	Changed() <-chan struct{}
	// All returns the resources as they were read last.
	All() []*config.Resource
	// Wait returns after the first reading of all kinds, or the context's error.
	Wait(ctx context.Context) error
}

// Custom resources that change within batchPeriod, as those of one kubectl apply do, are activated together. After an activation is a
// rest of restFactor times its duration, so that endless changes leave processor time to reviews.
const (
	batchPeriod = 200 * time.Millisecond
	restFactor  = 5
	maxRest     = 5 * time.Second
)

// firstRead bounds how long a start waits for the first reading of the custom resources.
const firstRead = 5 * time.Second

// maxLookupWait bounds how long the activation of a configuration waits for what it looks up. What is not there in time is
// logged and measured by its source; until it is there, decisions that need it are "cannot decide".
const maxLookupWait = 5 * time.Second

// errIncomplete keeps a server from being ready before its custom resources are active.
var errIncomplete = errors.New("not all custom resources are active yet")

// Read reads the directory for the first time.
func (r *Reconciler) Read() (*config.Config, diagnostic.List) {
	if r.Resources != nil {
		return config.InspectBeside(r.Dir)
	}
	return config.Inspect(r.Dir)
}

// Start activates the first configuration. Nothing is active that could stay in its place, so that broken expressions of
// policies do not fail the start: for what these policies match, their failurePolicy decides.
func (r *Reconciler) Start(ctx context.Context, documents *config.Config, found diagnostic.List) error {
	limitGarbage()
	defer setGCPercent()
	if found.Err() != nil {
		_, found = config.Compile(documents, found)
		return config.InvalidError(r.Dir, found.Err())
	}
	complete := true
	if r.Resources != nil {
		waiting, cancel := context.WithTimeout(ctx, firstRead)
		defer cancel()
		_ = r.Resources.Wait(waiting) // what is missing is logged, and keeps this from being ready
		complete = r.clusterReady() == nil
		r.resources = r.Resources.All()
	}
	if err := r.activate(ctx, documents, true); err != nil {
		if _, ok := errors.AsType[diagnostic.List](err); !ok {
			return err
		}
		if _, all := config.Compile(documents, found); all.Err() != nil {
			err = all.Err()
		}
		return config.InvalidError(r.Dir, err)
	}
	if r.Dir != "" && documents.Documents == 0 {
		// Logged when the directory of --config is empty, with --custom-resources.
		r.Current.Log.Warn("the directory has no documents: only custom resources are active", "dir", r.Dir)
	}
	r.warnIgnored(documents)
	if complete {
		r.setComplete()
	}
	return nil
}

// Run follows both sources until ctx ends. State is that of the documents that Start activated.
func (r *Reconciler) Run(ctx context.Context, state string) {
	type reading struct {
		documents *config.Config
		err       error
	}
	readings := make(chan reading)
	watch := config.Watch
	var changed <-chan struct{} // never receives without custom resources
	if r.Resources != nil {
		watch, changed = config.WatchBeside, r.Resources.Changed()
	}
	go watch(ctx, r.Dir, state, func(documents *config.Config, err error) {
		select {
		case readings <- reading{documents, err}:
		case <-ctx.Done():
		}
	})
	params := time.NewTicker(paramsPeriod)
	defer params.Stop()
	incomplete := time.NewTicker(time.Second)
	defer incomplete.Stop()
	var batch <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case read := <-readings:
			r.reconcileDocuments(ctx, read.documents, read.err)
		case <-changed:
			changed, batch = nil, time.After(batchPeriod)
		case <-batch:
			changed, batch = r.Resources.Changed(), nil
			if rest := time.Until(r.restUntil); rest > 0 {
				r.withdraw(r.Resources.All()) // access tokens end meanwhile
				batch = time.After(rest)
			} else {
				r.reconcileResources(ctx)
			}
		case <-params.C:
			r.checkParams()
		case <-r.Renotify[0]:
			r.notify()
		case <-r.Renotify[1]:
			r.notify()
		case <-r.Renotify[2]:
			r.notify()
		case <-incomplete.C:
			if r.complete.Load() {
				incomplete.Stop()
				continue
			}
			r.reconcileResources(ctx)
		}
	}
}

// Ready returns an error until everything that was there at the start has been read and is active.
func (r *Reconciler) Ready() error {
	if err := r.clusterReady(); err != nil {
		return err
	}
	return r.CheckComplete()
}

// CheckComplete returns an error while the active configuration lacks custom resources that existed at the start: it would admit what
// these refuse. An API server that takes this replica for ready all the same gets "cannot decide".
func (r *Reconciler) CheckComplete() error {
	if r.Resources != nil && !r.complete.Load() {
		return errIncomplete
	}
	return nil
}

// reconcileDocuments activates changed documents. Err is why they cannot be read.
func (r *Reconciler) reconcileDocuments(ctx context.Context, documents *config.Config, err error) {
	if err == nil {
		err = r.checkLost(documents)
	}
	merged := r.merge(documents, r.resources)
	r.Current.withdraw(merged) // activating waits for what is looked up
	if err == nil {
		err = r.activate(ctx, documents, false)
	}
	if err != nil {
		r.keepActive(merged, err)
	}
}

// reconcileResources activates the custom resources if they have changed.
func (r *Reconciler) reconcileResources(ctx context.Context) {
	read := r.clusterReady() == nil
	if all := r.Resources.All(); !resolve.SameResources(all, r.resources) {
		r.resources = all
		merged := r.merge(r.documents, all)
		r.Current.withdraw(merged) // activating waits for what is looked up
		err := r.activate(ctx, r.documents, true)
		if r.failed = err != nil; r.failed {
			r.keepActive(merged, err) // the documents are invalid without the resources that they had before
			return
		}
	}
	if read && !r.failed {
		r.setComplete()
	}
}

// setComplete notes that everything that existed at the start is active. That is reported.
func (r *Reconciler) setComplete() {
	if !r.complete.Swap(true) {
		r.notify()
	}
}

// checkLost returns an error if the directory has lost all its documents, or if one of its files has and RefuseEmptied is set.
// Lost documents count as unread, so that no access token ends because of them.
func (r *Reconciler) checkLost(documents *config.Config) error {
	if r.Resources != nil && documents.Documents == 0 && r.documents.Documents > 0 {
		documents.Unread.All = true
		return diagnostic.List{{
			Severity: diagnostic.Error, Source: r.Dir, Message: "the directory has lost all its documents",
			Hint: "restore the documents; to use only custom resources, start without --config",
		}}
	}
	if !r.RefuseEmptied {
		return nil
	}
	emptied := r.Current.emptiedBy(documents)
	documents.Unread.Paths = append(documents.Unread.Paths, emptied...)
	return emptiedFiles(diagnostic.Error, emptied).Err()
}

// withdraw ends access tokens that are deleted or revoked in custom resources that are not activated yet.
func (r *Reconciler) withdraw(resources []*config.Resource) {
	r.Current.withdraw(r.merge(r.documents, resources))
}

// merge returns documents together with the custom resources that have no errors.
func (r *Reconciler) merge(documents *config.Config, resources []*config.Resource) *config.Config {
	if r.Resources == nil {
		return documents
	}
	usable := make([]*config.Resource, 0, len(resources))
	for _, one := range resources {
		if one.Found.Err() == nil && one.Value != nil && (!one.Deleting || !resolve.Permits(one.Kind)) {
			usable = append(usable, one)
		}
	}
	merged, _ := documents.With(usable)
	return merged
}

// activate resolves and compiles documents with the custom resources that were read last, and activates the result. With an
// error the active configuration stays. Tolerant is that of resolve.Input.
func (r *Reconciler) activate(ctx context.Context, documents *config.Config, tolerant bool) error {
	limitGarbage()
	defer setGCPercent()
	began := time.Now()
	defer func() { r.restUntil = time.Now().Add(min(restFactor*time.Since(began), maxRest)) }()
	var prepared lookups
	next, err := r.resolver.Resolve(resolve.Input{
		Documents: documents, Resources: r.resources, Clustered: r.Resources != nil, Tolerant: tolerant,
		Prepare: func(merged *config.Config) (err error) {
			prepared, err = r.prepare(ctx, merged, documents != r.documents)
			return err
		},
	})
	started := r.Current.Snapshot.Load() != nil
	if err != nil && !started {
		return err // there is no configuration whose lookups must go on
	}
	if err == nil {
		r.lookups = prepared
	}
	if r.Cluster != nil {
		r.Cluster.Keep(r.lookups.cluster) // it stops watching what the active configuration does not look up
	}
	r.Providers.release(r.lookups.identities)
	if err != nil {
		return err
	}
	if r.Resources != nil {
		r.documents, r.active = documents, next
		r.resolver.Remember(next)
	}
	r.Current.activate(next)
	r.Current.Problems.activate()
	r.checkParams()
	r.notify()
	return nil
}

// prepare connects a configuration with what it looks up. NewServices is false if its identity providers are those of the
// active configuration, so that nothing has to be waited for.
func (r *Reconciler) prepare(ctx context.Context, merged *config.Config, newServices bool) (lookups, error) {
	view := r.provideCluster(ctx, merged)
	identities, err := r.Providers.provide(ctx, merged, newServices)
	if err != nil {
		return lookups{}, err
	}
	if before := r.Current.Snapshot.Load(); before != nil {
		merged.Policy.Previous, merged.Mutation.Previous = before.Policy, before.Mutation
	}
	merged.Policy.KeepBroken, merged.Policy.FollowsParams = true, true
	merged.Authn.ScopesEnforced = r.ScopesEnforced
	return lookups{cluster: view, identities: identities}, nil
}

// provideCluster connects a configuration with the cluster, and waits for the objects that it names to be read. At a start no
// review comes before they are.
func (r *Reconciler) provideCluster(ctx context.Context, c *config.Config) *cluster.View {
	if r.Cluster == nil {
		return nil
	}
	view := r.Cluster.Provide(&c.Policy, &c.Mutation, &c.Sidecar) //nolint:contextcheck // what is watched lives longer than this call
	ctx, cancel := context.WithTimeout(ctx, maxLookupWait)
	defer cancel()
	_ = view.Wait(ctx)
	return view
}

// clusterReady returns an error that names what has not been read since the start.
func (r *Reconciler) clusterReady() error {
	if r.Cluster == nil {
		return nil
	}
	return r.Cluster.Ready()
}

// notify reports what became of the custom resources.
func (r *Reconciler) notify() {
	if r.Report == nil || r.active == nil {
		return
	}
	var notSent func(object any) (notSent, warnings []string)
	if r.NotSent != nil {
		notSent = r.NotSent(r.active.Config)
	}
	r.Report(report(r.active, notSent, &r.Current.Problems, r.Native))
}
