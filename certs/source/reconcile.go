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
	hurryTime      = 5 * time.Minute
	// tidyInterval is how often reports are read that nobody needs now: those of
	// replicas that are gone for good are removed with that.
	tidyInterval = time.Hour
	// rescueTime is how long a replica that remembers nothing waits for one that
	// does, before it makes a CA in the place of one that was lost.
	rescueTime = 15 * time.Second
	// lateTime is after how long without a look at the store somebody who remembers
	// is no better than one who does not: others may have gone on.
	lateTime = 30 * time.Second
)

// keeper keeps the state of a rotation: it reads what is stored, heals it from
// memory, takes the steps that are due, and tells the other replicas what this
// one serves. Any number of replicas do so at the same time; each change is
// written with compare and swap, so that there is nobody to elect.
type keeper struct {
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
	// news is sent to when that is another one, and has room for one. Nil where
	// nothing is offered.
	news chan struct{}
	// use takes a state into use before it is reported.
	use func(*rotation.State, time.Time) error
	// serving is what is served, nil if nothing is.
	serving func() *tls.Certificate

	// state is what was written or read last, and nothing else: what is served is
	// never ahead of what others can know.
	state atomic.Pointer[rotation.State]
	// away tells that the store could not be read last, and refused that this was
	// an answer.
	away, refused atomic.Bool
	// reported is until when others wait for what this replica serves, nil before
	// it was ever reported.
	reported atomic.Pointer[time.Time]
	// told tells that the state was read once after the others knew of this replica, or
	// where nothing can be written by which they would know.
	told atomic.Bool

	problems, steps certs.Reporter
	// doubted is when a CA was last seen not to be trusted, or seen for the first
	// time. It and watched are times by which to measure how much has passed, which
	// no setting of a clock changes.
	doubted map[string]time.Time
	// watched is since when the state has been in its phase, for the state that
	// phase names.
	watched time.Time
	phase   string
	// confirmed is when the store was last read, and lost since when nothing is
	// stored.
	confirmed, lost time.Time
	// tidied is when all reports were last read.
	tidied time.Time
	last   rotation.Report
	heard  time.Time

	mu      sync.Mutex
	changed chan struct{}
	trouble error
}

// look is one round: read, heal, step, use, report. Whatever goes wrong, what is
// in use stays so, and is renewed from memory.
func (k *keeper) look(ctx context.Context) {
	now := clock.Wall(k.now)
	if state := k.state.Load(); state != nil {
		k.watchTrust(state)
	}
	err := k.settleAndUse(ctx, now)
	if state := k.state.Load(); state != nil {
		before := k.reported.Load()
		err = errors.Join(err, k.report(ctx, now))
		if until := k.reported.Load(); before == nil && until != nil {
			// Until now nobody waited for this replica, and others may have gone on.
			again := k.settleAndUse(ctx, now)
			err = errors.Join(err, again, k.report(ctx, now))
			if again == nil || store.OnlyUnwritten(again) {
				k.told.Store(true)
			}
		} else if until != nil && err == nil || store.OnlyUnwritten(err) {
			// Where nothing can be written nobody can be told, and what is read is followed
			// all the same: one that starts goes on as one that runs would.
			k.told.Store(true)
		}
	}
	if k.tidied.IsZero() || k.elapsed(k.tidied) >= tidyInterval {
		k.tidied = k.clock()
		_, _ = k.replicas.List(ctx) // whoever needs the list reads it, and tells what is wrong
	}
	k.mu.Lock()
	k.trouble = err
	k.mu.Unlock()
	k.tell(now, err)
}

func (k *keeper) settleAndUse(ctx context.Context, now time.Time) error {
	err := k.settle(ctx, now)
	if state := k.state.Load(); state != nil {
		err = errors.Join(err, k.use(state, now))
	}
	return err
}

// settle makes what is stored what it should be, and takes it into memory.
func (k *keeper) settle(ctx context.Context, now time.Time) error {
	for i := range store.MaxConflicts {
		err := k.settleOnce(ctx, now)
		switch {
		case errors.Is(err, errRescue) && i == 0: // Those that live may have written by now.
		case !errors.Is(err, store.ErrConflict):
			return err
		}
	}
	return fmt.Errorf("%s: %w, %d times in a row: it is tried again", k.store, store.ErrConflict, store.MaxConflicts)
}

func (k *keeper) settleOnce(ctx context.Context, now time.Time) error {
	record, err := k.store.Load(ctx)
	k.refused.Store(refused(err))
	k.away.Store(err != nil)
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
	if want == nil || want != found && k.elapsed(k.confirmed) > lateTime {
		if err := k.waitForRescue(ctx, want); err != nil {
			return fmt.Errorf("%s: %w: %w", k.store, cmp.Or(damage, errOlder), err)
		}
	}
	switch {
	case want == found && want != nil:
		k.lost = time.Time{}
		if !hasBundle(record.Data, found, now) {
			k.keep(found) // which is stored already
			if err := k.save(ctx, record, found, now); err != nil {
				return err
			}
			k.announce(certs.ReasonRecovered, rotation.KeyBundle+" was damaged, and was written again", found)
			return store.ErrConflict // what was written is read again before the next step
		}
	case want != nil:
		what = k.recovery(found, damage)
	default:
		if want, what, err = k.begin(usable, damage, now); err != nil {
			return err
		}
		if reason = certs.ReasonReplaced; errors.Is(damage, rotation.ErrEmpty) {
			reason = certs.ReasonCreated
		}
	}
	k.confirmed = k.clock()
	if want != found {
		if err := k.save(ctx, record, want, now); err != nil {
			return err
		}
		k.announce(reason, what, want)
		k.keep(want)
		return store.ErrConflict // what was written is read again before the next step
	}
	k.keep(want)
	return k.step(ctx, record, want, now)
}

// clock is a time from which to measure how much has passed.
func (k *keeper) clock() time.Time { return clock.Monotonic(k.now) }

// elapsed is how much time has passed since a time of clock.
func (k *keeper) elapsed(since time.Time) time.Duration { return k.clock().Sub(since) }

// step takes the steps that are due.
func (k *keeper) step(ctx context.Context, record store.Record, s *rotation.State, now time.Time) error {
	k.watchTrust(s)
	o := rotation.Observation{Now: now, Watched: now.Add(-k.elapsed(k.watched))}
	if k.trust != nil {
		o.Trusts = func(ca *x509.Certificate) (time.Time, bool) {
			return now.Add(-k.elapsed(k.doubted[rotation.ID(ca)])), k.trust.Holds(ca) == nil
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
	k.announce(certs.ReasonRotation, what, next)
	k.keep(next)
	return store.ErrConflict // what was written is read again before the next step
}

func (k *keeper) save(ctx context.Context, record store.Record, s *rotation.State, now time.Time) error {
	data, err := rotation.Encode(s, now)
	if err != nil {
		return err
	}
	return k.store.Save(ctx, record, data)
}

// keep takes a state into memory.
func (k *keeper) keep(s *rotation.State) {
	old := k.state.Swap(s)
	if old == nil || old.Generation != s.Generation || old.Lineage != s.Lineage {
		k.wake()
	}
}

// watchTrust notes since when the state is what it is, and since when every
// registration trusts its CAs.
func (k *keeper) watchTrust(s *rotation.State) {
	now := k.clock()
	phase := strings.Join([]string{s.Lineage, string(s.Phase), string(s.Cause), s.Current.ID()}, " ")
	if phase != k.phase {
		k.phase, k.watched = phase, now
	}
	if k.trust == nil {
		return
	}
	known := map[string]time.Time{}
	for _, a := range s.Authorities() {
		since, seen := k.doubted[a.ID()]
		if !seen || k.trust.Holds(a.Cert) != nil {
			since = now
		}
		known[a.ID()] = since
	}
	k.doubted = known
}

// held tells whether the current CA of the state has been trusted by every
// registration for as long as a hold lasts, as far as this process knows.
func (k *keeper) held(s *rotation.State) bool {
	if k.trust == nil {
		return true
	}
	since, seen := k.doubted[s.Current.ID()]
	return seen && k.trust.Holds(s.Current.Cert) == nil && k.elapsed(since) >= k.policy.HoldFor(s.Cause)
}

// run looks until the context ends.
func (k *keeper) run(ctx context.Context) {
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
		k.look(ctx)
		ticks, stop := filewatch.TickOr(k.ticks, k.every())
		select {
		case <-ctx.Done():
			stop()
			return
		case <-ticks:
		case <-stored:
		case <-trust:
		case <-k.news:
		}
		stop()
	}
}

// every is how long to wait for the next look.
func (k *keeper) every() time.Duration {
	s := k.state.Load()
	if s == nil || s.Phase != rotation.Stable && k.elapsed(k.watched) < hurryTime {
		return min(k.interval, rotateInterval)
	}
	return k.interval
}

// wake tells who waits for Changed.
func (k *keeper) wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

// Changed implements Authorities.
func (k *keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return k.changed
}

// Bundle implements Authorities.
func (k *keeper) Bundle(ctx context.Context) ([]*x509.Certificate, error) {
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
func (k *keeper) Kept() bool {
	err := k.wrong()
	return err == nil || errors.Is(err, errNotOffered)
}

// State is the state in use, nil if there is none yet. It must not be changed.
func (k *keeper) State() *rotation.State { return k.state.Load() }

// wrong is what the last look found wrong.
func (k *keeper) wrong() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}
