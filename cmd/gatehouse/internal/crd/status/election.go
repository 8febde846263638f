package status

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// leaseTime is how long after its last sign of life a leader is replaced,
	// renewTime how long a leader tries to give one before it stops, and tryPause what
	// comes between two tries.
	leaseTime, renewTime, tryPause = 15 * time.Second, 10 * time.Second, 4 * time.Second
)

// elect is a candidate until the context ends. The Lease is given up only once
// nothing is written any more.
func (c *Controller) elect(ctx context.Context) {
	reporter := &failureReporter{log: c.cfg.Log}
	for failures := 0; ctx.Err() == nil; {
		t := &term{c: c}
		// The election outlives the context for as long as it takes to stop.
		election, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
		stop := context.AfterFunc(ctx, func() {
			t.end()
			cancel()
		})
		lock := &lock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: c.electionLease()},
				Client:     c.cfg.Leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.lease},
			},
			c: c, reporter: reporter, ctx: ctx, giveUp: cancel,
		}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: c.electionLease(), ReleaseOnCancel: true,
			LeaseDuration: leaseTime, RenewDeadline: renewTime, RetryPeriod: tryPause,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: t.begin, OnStoppedLeading: func() {}},
		})
		if err == nil {
			elector.Run(election)
		} else {
			reporter.failed(ctx, "take part in the election of who writes status", apierr.Invalid, err, "report it: the times of the election do not fit together")
			lock.failure = apierr.Invalid
		}
		stop()
		t.end()
		cancel()
		if lock.failure == apierr.None {
			failures = 0
			sleep.Context(ctx, time.Second)
			continue
		}
		failures++
		sleep.Context(ctx, retryDelay(lock.failure, failures))
	}
}

func (c *Controller) electionLease() string {
	return shortenName(c.cfg.Group+"-status", maxLeaseName)
}

// term is the time in which this replica may be elected, once at most.
type term struct {
	c *Controller

	mu    sync.Mutex
	ended bool
	stop  context.CancelFunc // nil until it is elected
	done  chan struct{}
}

// begin is called once the replica is elected. It returns when it is not any more.
func (t *term) begin(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.stop, t.done = cancel, make(chan struct{})
	t.mu.Unlock()
	defer close(t.done)
	t.c.lead(ctx)
}

// end returns when nothing is written any more, and nothing will be.
func (t *term) end() {
	t.mu.Lock()
	t.ended = true
	stop, done := t.stop, t.done
	t.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// lock is the Lease of the election. It reports errors, which the election ignores.
type lock struct {
	resourcelock.Interface

	c        *Controller
	reporter *failureReporter
	ctx      context.Context //nolint:containedctx // of the Controller: the election goes on for a moment when it ended
	// giveUp ends the election, to try again later than it would.
	giveUp context.CancelFunc
	// failure is why it was given up.
	failure apierr.Class
}

func (l *lock) what(verb string) string {
	return fmt.Sprintf("%s Lease %s, by which it is elected which replica writes status", verb, l.Describe())
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) {
		l.note("get", err)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := l.Interface.Create(ctx, record)
	if !apierrors.IsAlreadyExists(err) {
		l.note("create", err)
	}
	return err
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := l.Interface.Update(ctx, record)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.note("update", err)
	}
	return err
}

// note logs an error, and ends the election if the next try would end alike.
func (l *lock) note(verb string, err error) {
	if err == nil {
		l.reporter.recovered(l.what(verb))
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	class := classify(err)
	l.reporter.failed(l.ctx, l.what(verb), class, err, l.c.leaseHint(class, "nobody may write status; everything else goes on"))
	if class != apierr.Unreachable {
		l.failure = class
		l.giveUp()
	}
}
