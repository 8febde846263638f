package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/filewatch"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

const (
	rotateInterval = 2 * time.Second
	fastTime       = 5 * time.Minute
	// tidyInterval is how often all heartbeats are listed, which removes stale ones.
	tidyInterval = time.Hour
	// recoveryTime is how long a replica that remembers nothing waits for one that does,
	// before it replaces a CA that was lost.
	recoveryTime = 15 * time.Second
	// staleTime is after how long without reading the store a remembered state counts for
	// nothing: others may have rotated.
	staleTime = 30 * time.Second
)

// reconciler keeps the state of a rotation: it reads the store, repairs it from
// memory, takes the steps that are due, and reports to the other replicas what this
// one serves. Any number of replicas do so at the same time: every change is written
// with compare and swap, so no leader is needed.
type reconciler struct {
	store    store.Store
	replicas store.Replicas
	replica  string
	version  string
	trust    certs.Trust
	policy   rotation.Policy
	// interval is the longest time between two rounds.
	interval time.Duration
	now      func() time.Time
	ticks    <-chan time.Time
	// use activates a state before it is reported.
	use func(*rotation.State, time.Time) error
	// serving returns the serving certificate, nil if there is none.
	serving func() *tls.Certificate

	// state is what was written or read last, and nothing else: what is served is
	// never ahead of what others can know.
	state atomic.Pointer[rotation.State]
	// unreachable reports whether the last read of the store failed, and forbidden
	// whether it was refused.
	unreachable, forbidden atomic.Bool
	// awaitedUntil is until when other replicas wait for this one, nil before its first
	// heartbeat.
	awaitedUntil atomic.Pointer[time.Time]
	// joined reports whether the state was read after the first heartbeat of this
	// replica, or at all where no heartbeat can be written.
	joined atomic.Bool

	problems, steps certs.Reporter
	// untrusted is, by the ID of a CA, when it was last seen not to be trusted, or first
	// seen. It and phaseSince are monotonic.
	untrusted map[string]time.Time
	// phaseSince is since when the state has been in its phase, which phaseKey
	// identifies.
	phaseSince time.Time
	phaseKey   string
	// lastRead is when the store was last read, and lostSince since when its state is
	// missing.
	lastRead, lostSince time.Time
	// lastTidied is when all heartbeats were last read.
	lastTidied    time.Time
	lastReport    rotation.Report
	lastHeartbeat time.Time

	mu      sync.Mutex
	changed chan struct{}
	problem error
}

// reconcile is one round: read, repair, step, activate, report. Whatever goes wrong,
// the active certificate stays and is renewed from memory.
func (k *reconciler) reconcile(ctx context.Context) {
	now := clock.Wall(k.now)
	if state := k.state.Load(); state != nil {
		k.trackTrust(state)
	}
	err := k.syncAndUse(ctx, now)
	if state := k.state.Load(); state != nil {
		before := k.awaitedUntil.Load()
		err = errors.Join(err, k.sendHeartbeat(ctx, now))
		if until := k.awaitedUntil.Load(); before == nil && until != nil {
			// Until now the others did not wait for this replica: the others may have rotated.
			again := k.syncAndUse(ctx, now)
			err = errors.Join(err, again, k.sendHeartbeat(ctx, now))
			if again == nil || errors.Is(again, store.ErrUnwritten) {
				k.joined.Store(true)
			}
		} else if until != nil && err == nil || errors.Is(err, store.ErrUnwritten) {
			// Where nothing can be written, no other replica can begin a rotation either.
			k.joined.Store(true)
		}
	}
	if k.lastTidied.IsZero() || k.elapsed(k.lastTidied) >= tidyInterval {
		k.lastTidied = k.monotonic()
		_, _ = k.replicas.List(ctx) // it removes stale reports; an error matters to who needs the list
	}
	k.mu.Lock()
	k.problem = err
	k.mu.Unlock()
	k.reportProblem(now, err)
}

func (k *reconciler) syncAndUse(ctx context.Context, now time.Time) error {
	err := k.sync(ctx, now)
	if state := k.state.Load(); state != nil {
		err = errors.Join(err, k.use(state, now))
	}
	return err
}

// sync repairs the store, takes a step that is due, and remembers the result. It
// tries again at once if another replica was faster.
func (k *reconciler) sync(ctx context.Context, now time.Time) error {
	for i := range store.MaxConflicts {
		err := k.syncOnce(ctx, now)
		switch {
		case errors.Is(err, errAwaitingRecovery) && i == 0: // Those that live may have written by now.
		case !errors.Is(err, store.ErrConflict):
			return err
		}
	}
	return fmt.Errorf("%s: %w, %d times in a row: Gatehouse retries", k.store, store.ErrConflict, store.MaxConflicts)
}

func (k *reconciler) syncOnce(ctx context.Context, now time.Time) error {
	record, err := k.store.Load(ctx)
	k.forbidden.Store(isRefusal(err))
	k.unreachable.Store(err != nil)
	if err != nil {
		return err
	}
	remembered := k.state.Load()
	found, damage := rotation.Decode(record.Data)
	if errors.Is(damage, rotation.ErrNewer) {
		return fmt.Errorf("%s: %w", k.store, damage)
	}
	want := rotation.Merge(remembered, found, now)
	what, reason := "", certs.ReasonRecovered
	if want == nil || want != found && k.elapsed(k.lastRead) > staleTime {
		if err := k.waitForRecovery(ctx, want); err != nil {
			return fmt.Errorf("%s: %w: %w", k.store, cmp.Or(damage, errOlder), err)
		}
	}
	switch {
	case want == found && want != nil:
		k.lostSince = time.Time{}
		if !isBundleCurrent(record.Data, found, now) {
			k.remember(found) // which is stored already
			if err := k.save(ctx, record, found, now); err != nil {
				return err
			}
			k.reportChange(certs.ReasonRecovered, rotation.KeyBundle+" was damaged, and Gatehouse restored it", found)
			return store.ErrConflict // what was written is read again before the next step
		}
	case want != nil:
		what = k.recoveryMessage(found, damage)
	default:
		if want, what, err = k.newState(damage, now); err != nil {
			return err
		}
		if reason = certs.ReasonReplaced; errors.Is(damage, rotation.ErrEmpty) {
			reason = certs.ReasonCreated
		}
	}
	k.lastRead = k.monotonic()
	if want != found {
		if err := k.save(ctx, record, want, now); err != nil {
			return err
		}
		k.reportChange(reason, what, want)
		k.remember(want)
		return store.ErrConflict // what was written is read again before the next step
	}
	k.remember(want)
	return k.step(ctx, record, want, now)
}

// monotonic returns a time for elapsed.
func (k *reconciler) monotonic() time.Time { return clock.Monotonic(k.now) }

// elapsed returns how much time has passed since a time of monotonic.
func (k *reconciler) elapsed(since time.Time) time.Duration { return k.monotonic().Sub(since) }

// step takes the next step of a rotation if it is due.
func (k *reconciler) step(ctx context.Context, record store.Record, s *rotation.State, now time.Time) error {
	k.trackTrust(s)
	o := rotation.Observation{Now: now, Watched: now.Add(-k.elapsed(k.phaseSince))}
	if k.trust != nil {
		o.Trusts = func(ca *x509.Certificate) (time.Time, bool) {
			return now.Add(-k.elapsed(k.untrusted[rotation.ID(ca)])), k.trust.Holds(ca) == nil
		}
	}
	var unknown error
	if s.Phase == rotation.Activate || s.Previous != nil {
		o.Replicas, unknown = k.replicas.List(ctx)
		o.Unknown = unknown != nil
	}
	next, what, err := rotation.Step(s, &o, &k.policy)
	if err != nil || next == nil {
		return errors.Join(err, unknown)
	}
	if err := k.save(ctx, record, next, now); err != nil {
		return err
	}
	k.reportChange(certs.ReasonRotation, what, next)
	k.remember(next)
	return store.ErrConflict // what was written is read again before the next step
}

func (k *reconciler) save(ctx context.Context, record store.Record, s *rotation.State, now time.Time) error {
	data, err := rotation.Encode(s, now)
	if err != nil {
		return err
	}
	return k.store.Save(ctx, record, data)
}

// remember keeps a state in memory.
func (k *reconciler) remember(s *rotation.State) {
	old := k.state.Swap(s)
	if old == nil || old.Generation != s.Generation || old.Lineage != s.Lineage {
		k.notifyChanged()
	}
}

// trackTrust records since when the state is in its phase, and since when every
// registration trusts its CAs.
func (k *reconciler) trackTrust(s *rotation.State) {
	now := k.monotonic()
	phase := strings.Join([]string{s.Lineage, string(s.Phase), string(s.Cause), s.Current.ID()}, " ")
	if phase != k.phaseKey {
		k.phaseKey, k.phaseSince = phase, now
	}
	if k.trust == nil {
		return
	}
	known := map[string]time.Time{}
	for _, a := range s.Authorities() {
		since, seen := k.untrusted[a.ID()]
		if !seen || k.trust.Holds(a.Cert) != nil {
			since = now
		}
		known[a.ID()] = since
	}
	k.untrusted = known
}

// hasBeenHeld reports whether the current CA of the state has been trusted by every
// registration for as long as a hold lasts, as far as this process knows.
func (k *reconciler) hasBeenHeld(s *rotation.State) bool {
	if k.trust == nil {
		return true
	}
	since, seen := k.untrusted[s.Current.ID()]
	return seen && k.trust.Holds(s.Current.Cert) == nil && k.elapsed(since) >= k.policy.HoldFor(s.Cause)
}

// run reconciles until the context ends.
func (k *reconciler) run(ctx context.Context) {
	stored := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		k.store.Watch(ctx, func() { wake(stored) })
	})
	for {
		var trust <-chan struct{}
		if k.trust != nil {
			trust = k.trust.Changed() // before the round, so that no change falls in between
		}
		k.reconcile(ctx)
		select {
		case <-ctx.Done():
			return
		case <-filewatch.TickOr(k.ticks, k.nextInterval()):
		case <-stored:
		case <-trust:
		}
	}
}

// wake sends to a channel with a buffer of one, unless that is full.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// nextInterval returns the time until the next round.
func (k *reconciler) nextInterval() time.Duration {
	s := k.state.Load()
	if s == nil || s.Phase != rotation.Stable && k.elapsed(k.phaseSince) < fastTime {
		return min(k.interval, rotateInterval)
	}
	return k.interval
}

// notifyChanged closes the channel of nextChange.
func (k *reconciler) notifyChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

// nextChange returns a channel that is closed with the next change.
func (k *reconciler) nextChange() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return k.changed
}

// bundle reads the CAs that clients should trust from the store. It returns an error if the
// state there is older than the remembered one.
func (k *reconciler) bundle(ctx context.Context) ([]*x509.Certificate, error) {
	record, err := k.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	s, err := rotation.Decode(record.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.store, err)
	}
	now := clock.Wall(k.now)
	if rotation.Merge(k.state.Load(), s, now) != s {
		return nil, fmt.Errorf("%s: %w, and is being restored", k.store, errOlder)
	}
	return s.Trusted(now), nil
}

// lastError returns the problem of the last round.
func (k *reconciler) lastError() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}
