package issuers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const (
	// askEvery and askBurst bound how often tokens make an issuer be asked. A new
	// key is found at once, and a flood of forged key ids is six fetches a
	// minute.
	askEvery = 10 * time.Second
	askBurst = 3
)

// The errors of Find are for who holds the token, too, and a forged token gets
// one easily. What is wrong with an issuer is for the operator and in the log.
var (
	errUnreachable = errors.New("the issuer's keys cannot be fetched")
	errRefused     = errors.New("the issuer had no such key a moment ago")
	errCrowded     = errors.New("unknown key, and too many requests wait for the issuer")
	errStopped     = errors.New("the issuer is no longer configured")
)

var _ jwt.Keys = (*issuer)(nil)

// issuer has the keys of one issuer, and fetches them until it is stopped.
type issuer struct {
	*Issuers
	origin

	// fetch gets the keys anew.
	fetch func(context.Context) (*jwt.KeySet, error)
	log   *slog.Logger
	limit *rate.Limiter
	ages  atomic.Pointer[ages]
	// changed has a value when the ages have changed.
	changed chan struct{}

	// resolved is closed when there are keys, or it is known that there are none for
	// now.
	resolved chan struct{}
	resolve  sync.Once

	// ctx ends when the issuer is stopped.
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// inProgress is the fetch in progress, and begun counts fetches.
	inProgress *fetch
	begun      atomic.Int64

	// state is written by the fetch, of which there is one at a time.
	state atomic.Pointer[state]
}

// state is the result of the last good fetch. It never changes.
type state struct {
	// set is nil as long as no fetch was good.
	set *jwt.KeySet
	// fetched is when the fetch was begun, and number is that of the fetch. It is by the
	// wall clock alone, because the other stands still while the machine is suspended.
	fetched time.Time
	number  int64
}

// fetch is one fetch, for all who wait for it. Err may be read when done is closed.
type fetch struct {
	number int64
	began  time.Time
	done   chan struct{}
	err    error
}

// newIssuer returns an issuer whose keys are fetched in the background.
func (i *Issuers) newIssuer(from origin, a ages) *issuer {
	f := &fetcher{origin: from, agent: i.agent, connect: i.connect}
	of := &issuer{
		Issuers: i, origin: from, fetch: f.fetch, log: i.log.With("issuer", from.url),
		limit: rate.NewLimiter(rate.Every(askEvery), askBurst), resolved: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	of.ages.Store(&a)
	of.state.Store(&state{})
	of.ctx, of.cancel = context.WithCancel(i.ctx)
	i.group.Go(of.run)
	return of
}

// halt stops the fetches: none is begun afterwards.
func (i *issuer) halt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel()
}

// setAges makes other intervals apply.
func (i *issuer) setAges(a ages) {
	if before := i.ages.Swap(&a); *before != a {
		select {
		case i.changed <- struct{}{}:
		default:
		}
	}
}

// pauses returns the pauses after failed fetches: soon at first, and 30 to 45 seconds
// in the end.
func pauses() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: 30 * time.Second}
}

// run fetches until the issuer is stopped.
func (i *issuer) run() {
	pause := pauses()
	for {
		f, err := i.join(func() error { return nil })
		if err != nil {
			return
		}
		<-f.done // it ends soon when ctx does
		// Replicas do not all come at the same time, and none later than the
		// interval.
		next := time.Until(f.began.Add(wait.Jitter(i.ages.Load().interval*9/10, 1.0/9)))
		if f.err != nil {
			next = pause.Step()
		} else {
			pause = pauses()
		}
		select {
		case <-i.ctx.Done():
			return
		case <-i.changed:
		case <-time.After(next):
		}
	}
}

// join returns the fetch in progress, or a new one if that is allowed.
func (i *issuer) join(allow func() error) (*fetch, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.inProgress != nil:
		return i.inProgress, nil
	case i.ctx.Err() != nil:
		return nil, errStopped
	}
	if err := allow(); err != nil {
		return nil, err
	}
	f := &fetch{number: i.begun.Add(1), began: time.Now(), done: make(chan struct{})}
	i.inProgress = f
	i.group.Go(func() { i.complete(f) })
	return f, nil
}

// complete fetches, for nobody's context but the issuer's own: who began it may
// be gone before others who wait.
func (i *issuer) complete(f *fetch) {
	ctx, cancel := context.WithTimeout(i.ctx, fetchTime)
	defer cancel()
	set, err := i.try(ctx)
	if f.err = err; i.ctx.Err() == nil {
		i.record(f, set)
	}
	i.mu.Lock()
	i.inProgress = nil
	i.mu.Unlock()
	close(f.done)
	i.resolve.Do(func() { close(i.resolved) })
}

// try fetches and recovers from panics: what an issuer answers goes through parsers
// of others, and must not end the program.
func (i *issuer) try(ctx context.Context) (set *jwt.KeySet, err error) {
	defer func() {
		if p := recover(); p != nil {
			set, err = nil, errors.New("the response cannot be read")
		}
	}()
	return i.fetch(ctx)
}

// record keeps what came of a fetch, and logs what has changed by it.
func (i *issuer) record(f *fetch, set *jwt.KeySet) {
	before := i.state.Load()
	if f.err != nil {
		i.metrics.fetches.WithLabelValues(i.url, "failed").Inc()
		kind, hint := "old keys", "Gatehouse tries again; until "+before.fetched.Add(i.ages.Load().maxAge).UTC().Format(time.RFC3339)+" the last valid keys are used"
		if !i.isUsable(before) {
			i.metrics.keys.WithLabelValues(i.url).Set(0)
			kind, hint = "no keys", "Gatehouse tries again; until then, tokens of this issuer are rejected"
		}
		// The issuer may have written parts of the error.
		i.problems.Report(problemOf(i.url), kind, "cannot fetch the keys of "+i.url+": "+truncate.Bytes(f.err.Error(), 1000), hint)
		return
	}
	i.state.Store(&state{set: set, fetched: f.began.Round(0), number: f.number})
	i.metrics.fetches.WithLabelValues(i.url, "ok").Inc()
	i.metrics.keys.WithLabelValues(i.url).Set(float64(len(set.All())))
	i.metrics.timestamp.WithLabelValues(i.url).Set(float64(f.began.UnixMilli()) / 1000)
	i.problems.Recover(problemOf(i.url))
	if before.set != nil && before.set.Equal(set) {
		return
	}
	attrs := []any{"keys", len(set.All())}
	if set.Ignored != "" {
		attrs = append(attrs, "ignored", set.Ignored)
	}
	// Logged when the keys of a JWT issuer have changed.
	i.log.Info("new keys of an issuer", attrs...)
}

// problemOf names the keys of an issuer in the log.
func problemOf(url string) string { return "keys of " + url }

// isUsable reports whether a state has keys that can be relied on now.
func (i *issuer) isUsable(s *state) bool {
	return s.set != nil && time.Since(s.fetched) <= i.ages.Load().maxAge
}

// known returns the keys of an id that are in memory. It is certain that there are no others
// if they are of a fetch that was begun after so many.
func (i *issuer) known(id string, begun int64) (keys []jwt.Key, certain bool) {
	s := i.state.Load()
	if !i.isUsable(s) {
		return nil, false
	}
	keys = s.set.Keys(id)
	return keys, len(keys) > 0 || s.number > begun
}

// Find implements jwt.Keys. A key that is in memory causes no request. For another key the issuer is asked, unless it was
// asked too recently; ctx bounds only how long the caller waits for the answer. Find says that there is no such key only
// after an answer to a request that was sent after the call, because the key may be newer than an earlier one.
func (i *issuer) Find(ctx context.Context, id string) ([]jwt.Key, error) {
	if keys, certain := i.known(id, math.MaxInt64); certain {
		return keys, nil
	}
	arrived := i.begun.Load()
	if i.waiting != nil {
		select {
		case i.waiting <- struct{}{}:
			defer func() { <-i.waiting }()
		default:
			return nil, errCrowded
		}
	}
	for {
		var (
			keys    []jwt.Key
			certain bool
		)
		f, err := i.join(func() error { //nolint:contextcheck // others may wait for the same fetch
			// An answer that has come in between is as good as a new one.
			if keys, certain = i.known(id, arrived); !certain && i.limit.Allow() {
				return nil
			}
			return errRefused
		})
		switch {
		case certain:
			return keys, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("the issuer did not respond in time: %w", context.Cause(ctx))
		}
		if f.err != nil {
			return nil, errUnreachable
		}
	}
}
