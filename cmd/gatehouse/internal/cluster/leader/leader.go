// Package leader elects the replica that does the background work of an install: it rotates the CA, writes webhook
// configurations and the status of custom resources and audits the cluster. No decision about a request
// depends on the election.
package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// leaseTime is how long after its last renewal a leader is replaced, renewTime how long a
	// leader tries to renew before it stops, and tryPause the time between two attempts.
	leaseTime, renewTime, tryPause = 15 * time.Second, 10 * time.Second, 4 * time.Second
	// restart is the time from a lost election to the next candidacy.
	restart = time.Second
	// maxError bounds text of other programs in the log, in bytes.
	maxError = 500
)

// Config is the configuration of a Candidate. Every field is required.
type Config struct {
	// Leases has the Lease of the election. Its requests need a timeout.
	Leases typedcoordinationv1.LeasesGetter
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Replica is the name of this process, which the Lease shows.
	Replica string
	Log     *slog.Logger
}

// Candidate takes part in the election. It needs the rights to create, get and update leases.
type Candidate struct {
	cfg      Config
	identity string
	problems *problemlog.Log
	leads    prometheus.Gauge
	// mayNotWrite is true after the API server refused to write the Lease. Only the elector uses it.
	mayNotWrite bool
}

// New returns a Candidate. It sends no request yet.
func New(cfg Config) *Candidate {
	return &Candidate{
		cfg: cfg, identity: cfg.Replica + "_" + string(uuid.NewUUID()), problems: problemlog.New(cfg.Log, "election"),
		leads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_leader",
			Help: "1 in the replica that is elected to rotate the CA, write webhook configurations and status, and audit, else 0.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (c *Candidate) Describe(ch chan<- *prometheus.Desc) { c.leads.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *Candidate) Collect(ch chan<- prometheus.Metric) { c.leads.Collect(ch) }

// Run takes part in the election until the context ends. Whenever this replica is elected, it calls each function in a
// goroutine of its own. Their context ends with the election, and no other replica is elected before all of them have
// returned.
func (c *Candidate) Run(ctx context.Context, work ...func(context.Context)) {
	for ctx.Err() == nil {
		c.stand(ctx, work)
		sleep.Context(ctx, restart)
	}
}

// stand is a candidate until it has lost an election that it had won, or the context ends.
func (c *Candidate) stand(ctx context.Context, work []func(context.Context)) {
	// The election outlives the context for as long as the work takes to stop.
	election, resign := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer resign()
	working := make(chan struct{}, 1) // has a value while there is work
	wait := func() {
		working <- struct{}{}
		<-working
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{c: c, LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: c.cfg.Name},
			Client:     c.cfg.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.identity},
		}},
		Name: c.cfg.Name, ReleaseOnCancel: true, LeaseDuration: leaseTime, RenewDeadline: renewTime, RetryPeriod: tryPause,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(elected context.Context) {
				working <- struct{}{}
				defer func() { <-working }()
				elected, cancel := context.WithCancel(elected)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				if elected.Err() == nil && ctx.Err() == nil {
					c.lead(elected, work)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		// Logged when the Lease of the election cannot be read or written.
		c.cfg.Log.Error("election", "error", err.Error(), "hint", "this is a bug of Gatehouse, please report it: the times of the election do not fit together")
		<-ctx.Done()
		return
	}
	defer context.AfterFunc(ctx, func() {
		wait()
		resign() // which releases the Lease
	})()
	elector.Run(election)
	wait()
}

func (c *Candidate) lead(ctx context.Context, work []func(context.Context)) {
	// Logged when this replica becomes the one that writes to the cluster: the CA, webhook configurations, status, reports.
	c.cfg.Log.Info("elected", "replica", c.cfg.Replica)
	c.leads.Set(1)
	defer c.leads.Set(0)
	var group sync.WaitGroup
	for _, run := range work {
		group.Go(func() { run(ctx) })
	}
	group.Wait()
}

// lock is the Lease of the election. It reports errors, which the election ignores.
type lock struct {
	*resourcelock.LeaseLock

	c *Candidate
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	return record, raw, l.note(err, false)
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(l.LeaseLock.Create(ctx, record), true)
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(l.LeaseLock.Update(ctx, record), true)
}

// note logs an error, and returns it. Reading the Lease does not show that a missing right to write it is there now.
func (l *lock) note(err error, writes bool) error {
	what := "election by Lease " + l.Describe()
	switch class := apierr.Classify(err).Coarse(); {
	case err == nil && (writes || !l.c.mayNotWrite):
		l.c.mayNotWrite = false
		l.c.problems.Recover(what)
	case err == nil:
	case errors.Is(err, context.Canceled), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		// They are part of an election.
	default:
		const cost = "until a replica is elected, none rotates the CA, writes webhook configurations and status, or audits; everything else goes on"
		hint := cost
		if class == apierr.Forbidden {
			l.c.mayNotWrite = writes
			hint = apierr.GrantHint("a Role in namespace \""+l.c.cfg.Namespace+"\"", "create, get and update", "leases in coordination.k8s.io; until then, "+cost)
		}
		l.c.problems.Report(what, string(class), "cannot take part in the "+what+": "+truncate.Bytes(err.Error(), maxError), hint)
	}
	return err
}
