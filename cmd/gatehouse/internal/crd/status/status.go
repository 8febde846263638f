package status

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// PolicyCount is what this replica has counted of one AdmissionPolicy since it
// started, dry runs left out.
type PolicyCount struct {
	// Evaluations is how often the policy was evaluated, and Refusals how many of
	// its rules refused.
	Evaluations, Refusals int64
}

// PodCounter counts the pods that profiles are about.
type PodCounter interface {
	// Run counts until the context ends. It is called whenever this replica begins
	// to write status, and never while it runs.
	Run(ctx context.Context)
	// Counts are the last ones by name of the SidecarProfile. A profile that has not
	// been counted is not in them. The caller does not change them.
	Counts() map[string]v1alpha1.SidecarPodCounts
	// Changed has a value to receive after Counts changed.
	Changed() <-chan struct{}
}

// PolicyAuditor audits existing objects.
type PolicyAuditor interface {
	// Run audits until the context ends. It is called whenever this replica begins
	// to write status, and never while it runs.
	Run(ctx context.Context)
	// Counts are those of the last audit by name of the AdmissionPolicy, nil before the
	// first. The caller does not change them.
	Counts() map[string]v1alpha1.PolicyAudit
	// Changed has a value to receive after Counts changed.
	Changed() <-chan struct{}
}

// Config is what a Controller is made of. What is not said to be optional is
// required.
type Config struct {
	// Client reads and writes custom resources. Its own rate limit, if it has one,
	// comes on top of ours.
	Client dynamic.Interface
	// Leases are where replicas report and elect one.
	Leases typedcoordinationv1.LeasesGetter
	// Namespace is that of the Leases, and Group is the name of the install in it:
	// its replicas have both in common.
	Namespace, Group string
	// Replica is the name of this process: that of its pod.
	Replica string
	// Record writes an Event, of type Warning or Normal. It does not block. It may
	// be nil.
	Record func(object corev1.ObjectReference, warning bool, reason, note string)
	// Policies are the counts of this replica by name of the AdmissionPolicy. It is
	// called once a minute or so. It may be nil.
	Policies func() map[string]PolicyCount
	// Pods may be nil.
	Pods PodCounter
	// Audit may be nil: then the status of policies has no audit.
	Audit PolicyAuditor
	// Log is told what is wrong, once for as long as it lasts, and what to do.
	Log *slog.Logger
	// Now is the time by the clock on the wall; nil is time.Now. It must be safe for
	// concurrent use.
	Now func() time.Time
}

// Controller reports what this replica uses, and writes the status of custom
// resources if this replica is the one that is elected. It is safe for concurrent
// use.
//
// Each process keeps a Lease of its own in the namespace, and each is a candidate
// for the Lease Group-status. The elected one follows the reports and writes
// status, by server-side apply under a field manager of this install. It
// never takes a field from another manager that still writes, so that two installs
// do not fight over an object.
//
// The rights that it needs: in the namespace, create, delete, get, list, patch,
// update and watch of leases in coordination.k8s.io; in the cluster, get and list of
// the kinds of gatehouse.dev and patch of their status.
type Controller struct {
	cfg     Config
	manager string
	metrics *metrics
	started time.Time
	lease   string // the name of our own Lease
	history *history
	// reported and decided are told that there is a new report: each has one
	// receiver, and room for one value.
	reported, decided chan struct{}
	// begun is closed with the first report.
	begun     chan struct{}
	beginOnce sync.Once
}

// New asks nothing yet.
func New(cfg Config) *Controller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Record == nil {
		cfg.Record = func(corev1.ObjectReference, bool, string, string) {}
	}
	if cfg.Policies == nil {
		cfg.Policies = func() map[string]PolicyCount { return nil }
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // it never fails
	return &Controller{
		cfg: cfg, manager: managerOf(cfg.Namespace, cfg.Group), metrics: newMetrics(), started: cfg.Now().Truncate(time.Second),
		lease:   shortenName(cfg.Group+"-report-"+cfg.Replica, maxLeaseName) + "-" + hex.EncodeToString(random),
		history: newHistory(), reported: make(chan struct{}, 1), decided: make(chan struct{}, 1), begun: make(chan struct{}),
	}
}

// Use sets what this replica uses from now on. It does not wait for anything. The
// caller does not change the report afterwards.
func (c *Controller) Use(r Report) {
	c.history.add(&r, time.Now())
	poke(c.reported)
	poke(c.decided)
	c.beginOnce.Do(func() { close(c.begun) })
}

// Run reports and, while this replica is elected, writes, until the context ends.
// It begins with the first Use. At the end it gives up its election and removes its
// report, which takes ten seconds at most. Its error is nil: whatever fails is
// logged and tried again. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	select {
	case <-c.begun:
	case <-ctx.Done():
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.report(ctx) })
	wg.Go(func() { c.elect(ctx) })
	wg.Wait()
	return nil
}

// poke leaves a value for a receiver, unless there is one already.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
