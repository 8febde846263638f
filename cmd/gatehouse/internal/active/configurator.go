package active

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/status"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/source/cluster"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Reconciler brings one configuration after the other into use: from documents of
// a directory, from custom resources, or from both.
type Reconciler struct {
	Dir       string
	Current   *Active
	World     *ClusterLookup
	Providers *IdentityProviders
	// Resources is nil without custom resources.
	Resources customResources
	settling  resolver
	// Report is told what is in use of the custom resources. It may be nil.
	Report func(status.Report)
	// NotSent is what makes remarks on what objects are about and is not sent, for one
	// Report. It may be nil.
	NotSent func(*config.Config) func(object any) []string
	// Renotify are told when something else is to be reported about the same resources.
	// There are two of them, or none.
	Renotify []<-chan struct{}

	// RefuseEmptied makes a file that has lost all its documents an error.
	RefuseEmptied bool

	// base is the last configuration of the directory that could be used.
	base *config.Config
	// read are the custom resources that were read last, and failed tells that they
	// could not be brought into use.
	read   []*config.Resource
	failed bool
	// rest is until when custom resources are left alone.
	rest time.Time
	// last is what is in use, nil without custom resources.
	last *Resolution
	// identities are of the configuration in use.
	identities provided
	// complete tells that what is in use has everything that was there at the start.
	complete atomic.Bool
}

// customResources are those of a cluster, as cluster.Resources has them.
type customResources interface {
	Changed() <-chan struct{}
	All() []*config.Resource
	Wait(ctx context.Context) error
}

// Somebody who changes resources without end must not keep the processors from
// reviews: between two settlings is a rest of several times what the one before took.
const (
	restAfterSettling = 5
	restAtMost        = 5 * time.Second
)

// Resources are taken together that change within settleResources of each other, as
// those of one kubectl apply do, but nobody waits longer than settleAtMost for one
// that follows another.
const (
	settleResources = 100 * time.Millisecond
	settleAtMost    = 500 * time.Millisecond
)

// Inspect reads the directory for the first time.
func (c *Reconciler) Inspect() (*config.Config, diagnostic.List) {
	if c.Resources != nil {
		return config.InspectBeside(c.Dir)
	}
	return config.Inspect(c.Dir)
}

// Start brings the first configuration into use. There is none that could serve on
// in its place, so that what does not compile in it is kept where that is possible.
func (c *Reconciler) Start(ctx context.Context, loaded *config.Config, found diagnostic.List) error {
	compiling()
	defer pace()
	if found.Err() != nil {
		_, found = Compile(loaded, found)
		return InvalidError(c.Dir, found.Err())
	}
	if c.Resources == nil {
		view := c.World.provide(ctx, loaded)
		identities, err := c.Providers.provide(ctx, loaded)
		if err != nil {
			return err
		}
		snapshot, err := first(loaded, found)
		if err != nil {
			return InvalidError(c.Dir, err)
		}
		c.World.keep(view)
		c.identities = identities
		c.Providers.keep(identities)
		c.Current.use(loaded, snapshot)
		return nil
	}
	const moment = 5 * time.Second
	waiting, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	_ = c.Resources.Wait(waiting) // what is missing is logged, and keeps this from being ready
	read := c.World.ready() == nil
	c.read = c.Resources.All()
	if err := c.settle(ctx, loaded, true); err != nil {
		return InvalidError(c.Dir, err)
	}
	if c.Dir != "" && loaded.Documents == 0 {
		c.Current.Log.Warn("the directory has no document: custom resources alone are in use", "dir", c.Dir)
	}
	c.complete.Store(read)
	return nil
}

// Run follows the directory and the custom resources until ctx ends.
func (c *Reconciler) Run(ctx context.Context, loaded *config.Config) {
	if c.Resources == nil {
		config.Watch(ctx, c.Dir, loaded.State, func(read *config.Config, found error) { c.ReplaceDirectory(ctx, read, found) })
		return
	}
	type reading struct {
		config *config.Config
		found  error
	}
	readings := make(chan reading)
	go config.WatchBeside(ctx, c.Dir, loaded.State, func(read *config.Config, found error) {
		select {
		case readings <- reading{read, found}:
		case <-ctx.Done():
		}
	})
	var retell [2]<-chan struct{}
	copy(retell[:], c.Renotify)
	incomplete := time.NewTicker(time.Second)
	defer incomplete.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-readings:
			c.documents(ctx, r.config, r.found)
		case <-c.Resources.Changed():
			if all := c.Resources.All(); time.Now().Before(c.rest) && !sameResources(all, c.read) {
				c.withdraw(all)
			}
			c.quiet(ctx)
			c.reconcileResources(ctx)
		case <-retell[0]:
			c.notify()
		case <-retell[1]:
			c.notify()
		case <-incomplete.C:
			if c.complete.Load() {
				incomplete.Stop()
				continue
			}
			c.reconcileResources(ctx)
		}
	}
}

// reconcileResources brings custom resources into use if there are others than before.
func (c *Reconciler) reconcileResources(ctx context.Context) {
	read := c.World.ready() == nil
	if all := c.Resources.All(); !sameResources(all, c.read) {
		c.read = all
		if c.failed = c.changed(ctx) != nil; c.failed {
			return
		}
	}
	if read && !c.failed {
		c.complete.Store(true)
	}
}

// Ready tells what keeps this from being asked: that not all custom resources were
// read since the start and are in use.
func (c *Reconciler) Ready() error {
	if err := c.World.ready(); err != nil {
		return err
	}
	return c.Whole()
}

// Whole is why nothing can be decided: what is in use lacks what was there at the
// start, and would admit what that refuses. Whoever is asked all the same, because an
// API server came back that takes this for ready as it was before, could not tell.
func (c *Reconciler) Whole() error {
	if c.Resources != nil && !c.complete.Load() {
		return errNotInUse
	}
	return nil
}

// quiet waits until nothing more changes, and not for long. Access tokens that are
// gone or revoked end while it rests.
func (c *Reconciler) quiet(ctx context.Context) {
	rested := time.NewTimer(time.Until(c.rest))
	defer rested.Stop()
	changed, again := c.Resources.Changed(), (<-chan time.Time)(nil)
	for resting := true; resting; {
		select {
		case <-changed:
			began := time.Now()
			c.withdraw(c.Resources.All())
			changed, again = nil, time.After(max(settleResources, restAfterSettling*time.Since(began)))
		case <-again:
			changed, again = c.Resources.Changed(), nil
		case <-rested.C:
			resting = false
		case <-ctx.Done():
			return
		}
	}
	longest := time.NewTimer(settleAtMost)
	defer longest.Stop()
	for {
		still := time.NewTimer(settleResources)
		select {
		case <-c.Resources.Changed():
			still.Stop()
		case <-still.C:
			return
		case <-longest.C:
			still.Stop()
			return
		case <-ctx.Done():
			still.Stop()
			return
		}
	}
}

// ReplaceDirectory brings a configuration into use that has no custom resources.
func (c *Reconciler) ReplaceDirectory(ctx context.Context, read *config.Config, found error) {
	compiling()
	defer pace()
	found = c.lost(read, found)
	c.Current.withdraw(read) // Services are waited for below.
	var s *webhooks.Snapshot
	err := found
	if err == nil {
		view := c.World.provide(ctx, read)
		var of provided
		of, err = c.Providers.provide(ctx, read)
		if err == nil {
			read.Policy.Previous = c.Current.Snapshot.Load().Policy
			s, err = webhooks.Compile(webhooks.Spec{Sidecar: read.Sidecar, Policy: read.Policy, Authn: read.Authn})
		}
		if err == nil {
			c.World.keep(view)
			c.identities = of
		}
		c.World.clean()
		defer c.Providers.keep(c.identities)
	}
	if err != nil {
		c.Current.keep(read, err)
		return
	}
	c.Current.use(read, s)
}

// lost returns the errors of a reading, found or else what it has lost: all documents
// of the directory, or those of a file that is still there. What is lost so counts as
// not read, so that nothing ends by it.
func (c *Reconciler) lost(read *config.Config, found error) error {
	if found != nil {
		return found
	}
	if c.Resources != nil && read.Documents == 0 && c.base.Documents > 0 {
		read.Unread.All = true
		return diagnostic.List{{
			Severity: diagnostic.Error, Source: c.Dir, Message: "there is no document in this directory any more",
			Hint: "put the documents back; to go on with custom resources alone, start without --config",
		}}
	}
	if !c.RefuseEmptied {
		return nil
	}
	emptied := c.Current.emptiedBy(read)
	read.Unread.Paths = append(read.Unread.Paths, emptied...)
	return emptiedFiles(diagnostic.Error, emptied).Err()
}

// documents brings changed documents into use, beside the custom resources.
func (c *Reconciler) documents(ctx context.Context, read *config.Config, found error) {
	found = c.lost(read, found)
	merged := c.merged(read)
	c.Current.withdraw(merged)
	err := found
	if err == nil {
		err = c.settle(ctx, read, false)
	}
	if err != nil {
		c.Current.keep(merged, err)
	}
}

// changed brings changed custom resources into use, beside the documents.
func (c *Reconciler) changed(ctx context.Context) error {
	c.Current.withdraw(c.merged(c.base)) // What is looked up for policies is waited for below.
	err := c.settle(ctx, c.base, true)
	if err != nil {
		// The documents were usable with others, and are with none.
		c.Current.keep(c.merged(c.base), err)
	}
	return err
}

// withdraw ends access tokens that are gone or revoked in what was read, before it is
// brought into use.
func (c *Reconciler) withdraw(read []*config.Resource) {
	c.Current.withdraw(c.mergedWith(c.base, read))
}

// merged are documents with the custom resources as they were read.
func (c *Reconciler) merged(base *config.Config) *config.Config { return c.mergedWith(base, c.read) }

func (c *Reconciler) mergedWith(base *config.Config, read []*config.Resource) *config.Config {
	usable := make([]*config.Resource, 0, len(read))
	for _, r := range read {
		if r.Found.Err() == nil && r.Value != nil && (!r.Deleting || !permits(r.Kind)) {
			usable = append(usable, r)
		}
	}
	merged, _ := base.With(usable)
	return merged
}

// settle brings the documents and the custom resources into use.
func (c *Reconciler) settle(ctx context.Context, base *config.Config, tolerant bool) error {
	var (
		view       *cluster.View
		identities provided
	)
	compiling()
	defer pace()
	began := time.Now()
	defer func() { c.rest = time.Now().Add(min(restAfterSettling*time.Since(began), restAtMost)) }()
	sameServices := base == c.base
	c.settling.prepare = func(merged *config.Config) error {
		view = c.World.provide(ctx, merged)
		var err error
		if identities, err = c.Providers.provideWithin(ctx, merged, !sameServices); err != nil {
			return err
		}
		if before := c.Current.Snapshot.Load(); before != nil {
			merged.Policy.Previous = before.Policy
		}
		merged.Policy.KeepBroken = true
		return nil
	}
	of, err := c.settling.settle(base, c.read, tolerant)
	if err != nil && c.last == nil {
		return err // Nothing is in use that anything could be kept for.
	}
	if err == nil {
		c.World.keep(view)
		c.identities = identities
	}
	c.World.clean()
	c.Providers.keep(c.identities)
	if err != nil {
		return err
	}
	c.base, c.last = base, of
	c.settling.keep(of)
	c.Current.useWith(of.config, of.snapshot, of)
	c.notify()
	return nil
}

// notify reports what is in use of the custom resources.
func (c *Reconciler) notify() {
	if c.Report != nil && c.last != nil {
		var notSent func(object any) []string
		if c.NotSent != nil {
			notSent = c.NotSent(c.last.config)
		}
		c.Report(c.last.report(notSent))
	}
}

// errNotInUse keeps a server from being ready before its custom resources are.
var errNotInUse = errors.New("not all custom resources are in use yet")
