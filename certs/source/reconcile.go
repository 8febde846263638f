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
	// tidyInterval is how often reports are read that nobody needs now: those of
	// replicas that are gone for good are removed with that.
	tidyInterval = time.Hour
	// recoveryTime is how long a replica that remembers nothing waits for one that
	// does, before it makes a CA in the place of one that was lost.
	recoveryTime = 15 * time.Second
	// staleTime is after how long without a look at the store somebody who remembers
	// is no better than one who does not: others may have gone on.
	staleTime = 30 * time.Second
)

// reconciler keeps the state of a rotation: it reads what is stored, heals it from
// memory, takes the steps that are due, and tells the other replicas what this
// one serves. Any number of replicas do so at the same time; each change is
// written with compare and swap, so that there is nobody to elect.
type reconciler struct {
	// subject is that of the events.
	subject  string
	store    store.Store
	replicas store.Replicas
	replica  string
	version  string
	trust    certs.Trust
	policy   rotation.Policy
	// interval is the longest time between two looks.
	interval time.Duration
	now      func() time.Time
	ticks    <-chan time.Time
	// offered is the CA of the newest certificate, where somebody else issues
	// them. Nil where this process does.
	offered func() *x509.Certificate
	// offeredChanged is sent to when that is another one, and has room for one. Nil where
	// nothing is offered.
	offeredChanged chan struct{}
	// use takes a state into use before it is reported.
	use func(*rotation.State, time.Time) error
	// serving is what is served, nil if nothing is.
	serving func() *tls.Certificate

	// state is what was written or read last, and nothing else: what is served is
	// never ahead of what others can know.
	state atomic.Pointer[rotation.State]
	// unreachable tells that the store could not be read last, and refused that this was
	// an answer.
	unreachable, forbidden atomic.Bool
	// awaitedUntil is until when others wait for what this replica serves, nil before
	// it was ever reported.
	awaitedUntil atomic.Pointer[time.Time]
	// joined tells that the state was read once after the others knew of this replica, or
	// where nothing can be written by which they would know.
	joined atomic.Bool

	problems, steps certs.Reporter
	// untrusted is when a CA was last seen not to be trusted, or seen for the first
	// time. It and watched are times by which to measure how much has passed, which
	// no setting of a clock changes.
	untrusted map[string]time.Time
	// phaseSince is since when the state has been in its phase, for the state that
	// phase names.
	phaseSince time.Time
	phaseKey   string
	// lastRead is when the store was last read, and lost since when nothing is
	// stored.
	lastRead, lostSince time.Time
	// lastTidied is when all reports were last read.
	lastTidied    time.Time
	lastReport    rotation.Report
	lastHeartbeat time.Time

	mu      sync.Mutex
	changed chan struct{}
	problem error
}

// reconcile is one round: read, heal, step, use, report. Whatever goes wrong, what is
// in use stays so, and is renewed from memory.
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
			// Until now nobody waited for this replica, and others may have gone on.
			again := k.syncAndUse(ctx, now)
			err = errors.Join(err, again, k.sendHeartbeat(ctx, now))
			if again == nil || store.OnlyUnwritten(again) {
				k.joined.Store(true)
			}
		} else if until != nil && err == nil || store.OnlyUnwritten(err) {
			// Where nothing can be written nobody can be told, and what is read is followed
			// all the same: one that starts goes on as one that runs would.
			k.joined.Store(true)
		}
	}
	if k.lastTidied.IsZero() || k.elapsed(k.lastTidied) >= tidyInterval {
		k.lastTidied = k.monotonic()
		_, _ = k.replicas.List(ctx) // whoever needs the list reads it, and tells what is wrong
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

// sync makes what is stored what it should be, and takes it into memory.
func (k *reconciler) sync(ctx context.Context, now time.Time) error {
	for i := range store.MaxConflicts {
		err := k.syncOnce(ctx, now)
		switch {
		case errors.Is(err, errAwaitingRecovery) && i == 0: // Those that live may have written by now.
		case !errors.Is(err, store.ErrConflict):
			return err
		}
	}
	return fmt.Errorf("%s: %w, %d times in a row: it is tried again", k.store, store.ErrConflict, store.MaxConflicts)
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
	usable := found
	if damage != nil {
		found = nil
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
			k.reportChange(certs.ReasonRecovered, rotation.KeyBundle+" was damaged, and was written again", found)
			return store.ErrConflict // what was written is read again before the next step
		}
	case want != nil:
		what = k.recoveryMessage(found, damage)
	default:
		if want, what, err = k.newState(usable, damage, now); err != nil {
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

// monotonic is a time from which to measure how much has passed.
func (k *reconciler) monotonic() time.Time { return clock.Monotonic(k.now) }

// elapsed is how much time has passed since a time of clock.
func (k *reconciler) elapsed(since time.Time) time.Duration { return k.monotonic().Sub(since) }

// step takes the steps that are due.
func (k *reconciler) step(ctx context.Context, record store.Record, s *rotation.State, now time.Time) error {
	k.trackTrust(s)
	o := rotation.Observation{Now: now, Watched: now.Add(-k.elapsed(k.phaseSince))}
	if k.trust != nil {
		o.Trusts = func(ca *x509.Certificate) (time.Time, bool) {
			return now.Add(-k.elapsed(k.untrusted[rotation.ID(ca)])), k.trust.Holds(ca) == nil
		}
	}
	if k.offered != nil {
		o.Offered = k.offered()
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

// remember takes a state into memory.
func (k *reconciler) remember(s *rotation.State) {
	old := k.state.Swap(s)
	if old == nil || old.Generation != s.Generation || old.Lineage != s.Lineage {
		k.notifyChanged()
	}
}

// trackTrust notes since when the state is what it is, and since when every
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

// hasBeenHeld tells whether the current CA of the state has been trusted by every
// registration for as long as a hold lasts, as far as this process knows.
func (k *reconciler) hasBeenHeld(s *rotation.State) bool {
	if k.trust == nil {
		return true
	}
	since, seen := k.untrusted[s.Current.ID()]
	return seen && k.trust.Holds(s.Current.Cert) == nil && k.elapsed(since) >= k.policy.HoldFor(s.Cause)
}

// run looks until the context ends.
func (k *reconciler) run(ctx context.Context) {
	stored := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		k.store.Watch(ctx, func() {
			select {
			case stored <- struct{}{}:
			default:
			}
		})
	})
	for {
		var trust <-chan struct{}
		if k.trust != nil {
			trust = k.trust.Changed() // before the look, so that no change falls in between
		}
		k.reconcile(ctx)
		ticks, stop := filewatch.TickOr(k.ticks, k.nextInterval())
		select {
		case <-ctx.Done():
			stop()
			return
		case <-ticks:
		case <-stored:
		case <-trust:
		case <-k.offeredChanged:
		}
		stop()
	}
}

// nextInterval is how long to wait for the next look.
func (k *reconciler) nextInterval() time.Duration {
	s := k.state.Load()
	if s == nil || s.Phase != rotation.Stable && k.elapsed(k.phaseSince) < fastTime {
		return min(k.interval, rotateInterval)
	}
	return k.interval
}

// notifyChanged tells who waits for Changed.
func (k *reconciler) notifyChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

// Changed implements Authorities.
func (k *reconciler) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return k.changed
}

// Bundle implements Authorities.
func (k *reconciler) Bundle(ctx context.Context) ([]*x509.Certificate, error) {
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
		return nil, fmt.Errorf("%s: %w, and is being put right", k.store, errOlder)
	}
	return s.Trusted(now), nil
}

// Kept tells whether the last look found everything as it should be, or as it is
// before an issuer has issued anything. It is safe for concurrent use.
func (k *reconciler) Kept() bool {
	err := k.lastError()
	return err == nil || errors.Is(err, errNotOffered)
}

// State is the state in use, nil if there is none yet. It must not be changed.
func (k *reconciler) State() *rotation.State { return k.state.Load() }

// lastError is what the last look found wrong.
func (k *reconciler) lastError() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}
