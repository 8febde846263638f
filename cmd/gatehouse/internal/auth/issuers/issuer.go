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

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const (
	// askEvery and askBurst bound how often tokens make an issuer be asked. A new
	// key is found at once, and a flood of forged key ids is six fetches a
	// minute.
	askEvery = 10 * time.Second
	askBurst = 3
	// fetchTime bounds one fetch with all its calls. Together with the longest
	// pause after a failure it is less than a minute, which is how late it may
	// be noticed that an issuer is back.
	fetchTime = 10 * time.Second
)

// The errors of Find are for who holds the token, too, and a forged token gets
// one easily. What is wrong with an issuer is for the operator and in the log.
var (
	errUnreachable = errors.New("the issuer's keys cannot be fetched")
	errInvalid     = errors.New("the issuer's response has no usable keys")
	errRefused     = errors.New("the issuer had no such key a moment ago")
	errCrowded     = errors.New("unknown key, and too many requests wait for the issuer")
	errStopped     = errors.New("the issuer is no longer configured")
	errStatic      = errors.New("the issuer's keys file cannot be used")
)

var _ jwt.Keys = (*issuer)(nil)

// issuer has the keys of one issuer.
type issuer struct {
	settings
	// fetch gets the keys anew, with a fetchError if it cannot. Nil is for keys that
	// are static.
	fetch func(context.Context) (*jwt.KeySet, error)
	log   *slog.Logger
	count counters
	limit *rate.Limiter
	// waiting is that of the Issuers.
	waiting chan struct{}

	// resolved is closed when there are keys, or it is known that there are none for
	// now.
	resolved chan struct{}
	resolve  sync.Once

	// ctx ends when the issuer is stopped.
	ctx    context.Context
	cancel context.CancelFunc
	group  *sync.WaitGroup

	mu sync.Mutex
	// sharedFetch is the fetch in progress. None is begun when ctx is done.
	sharedFetch *sharedFetch

	// begun counts fetches. It is written with the lock.
	begun atomic.Int64

	// state is written by the fetch, of which there is one at a time.
	state atomic.Pointer[state]
}

// state is what is known of an issuer. It never changes.
type state struct {
	// set is nil as long as no fetch was good.
	set *jwt.KeySet
	// fetched is when the fetch of the set was begun, and number is that of its
	// fetch. It is by the wall clock alone, because the other stands still while
	// the machine is suspended.
	fetched time.Time
	number  int64
	// last is what became of the last fetch.
	last result
	// over means that it failed, and that there was no set to go on with.
	over bool
}

// sharedFetch is one fetch, for all who wait for it. Set and err may be read when done
// is closed.
type sharedFetch struct {
	// number counts the fetches of an issuer, from 1.
	number int64
	began  time.Time
	done   chan struct{}
	set    *jwt.KeySet
	err    error
}

func newIssuer(ctx context.Context, s settings, fetch func(context.Context) (*jwt.KeySet, error), log *slog.Logger, count counters, group *sync.WaitGroup) *issuer {
	i := &issuer{
		settings: s, fetch: fetch, log: log, count: count, group: group,
		limit: rate.NewLimiter(rate.Every(askEvery), askBurst), resolved: make(chan struct{}),
	}
	i.ctx, i.cancel = context.WithCancel(ctx)
	i.state.Store(&state{last: fine})
	return i
}

// newStatic returns an issuer that is never asked.
func newStatic(s settings, log *slog.Logger) *issuer {
	i := &issuer{settings: s, log: log, cancel: func() {}, resolved: make(chan struct{})}
	close(i.resolved)
	set, err := jwt.ParseKeySet([]byte(s.keys))
	if err != nil {
		log.Error("the keys file of an issuer cannot be used", "error", err.Error(), "hint", "tokens of this issuer are rejected")
	}
	i.state.Store(&state{set: set, last: fine})
	return i
}

// begin fetches in the background until the issuer is stopped. What is known
// already may be nil.
func (i *issuer) begin(known *state) {
	if known != nil {
		s := &state{set: known.set, fetched: known.fetched, last: fine}
		i.state.Store(s)
		if i.isUsable(s, time.Now()) {
			i.resolve.Do(func() { close(i.resolved) })
		}
	}
	i.group.Go(i.run)
}

func (i *issuer) stop() {
	// With the lock, so that no fetch begins afterwards.
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel()
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
		f, err := i.joinFetch()
		if err != nil {
			return
		}
		<-f.done // it ends soon when ctx does
		// Replicas do not all come at the same time, and none later than the
		// interval.
		next := time.Until(f.began.Add(wait.Jitter(i.interval*9/10, 1.0/9)))
		if f.err != nil {
			next = pause.Step()
		} else {
			pause = pauses()
		}
		timer := time.NewTimer(next)
		select {
		case <-i.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// joinFetch returns the fetch in progress, or a new one.
func (i *issuer) joinFetch() (*sharedFetch, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.sharedFetch != nil:
		return i.sharedFetch, nil
	case i.ctx.Err() != nil:
		return nil, errStopped
	default:
		return i.startFetch(), nil
	}
}

// joinFetchFor is joinFetch for a key that was not in memory when so many fetches had been
// begun. A fetch that has ended since is as good as a new one, which is not always
// to be had.
func (i *issuer) joinFetchFor(id string, arrived int64) (*sharedFetch, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.state.Load(); i.isUsable(s, time.Now()) && (s.number > arrived || len(s.set.Find(id)) > 0) {
		return completedFetch(s), nil
	}
	switch {
	case i.sharedFetch != nil:
		return i.sharedFetch, nil
	case i.ctx.Err() != nil:
		return nil, errStopped
	case !i.limit.Allow():
		return nil, errRefused
	default:
		return i.startFetch(), nil
	}
}

// startFetch begins a fetch. The caller holds the lock, there is none in progress, and
// the issuer is not stopped.
func (i *issuer) startFetch() *sharedFetch {
	f := &sharedFetch{number: i.begun.Add(1), began: time.Now(), done: make(chan struct{})}
	i.sharedFetch = f
	i.group.Go(func() { i.complete(f) })
	return f
}

// completedFetch returns a fetch that has ended.
func completedFetch(s *state) *sharedFetch {
	f := &sharedFetch{number: s.number, set: s.set, done: make(chan struct{})}
	close(f.done)
	return f
}

// complete fetches, for nobody's context but the issuer's own: who began it may
// be gone before others who wait.
func (i *issuer) complete(f *sharedFetch) {
	ctx, cancel := context.WithTimeout(i.ctx, fetchTime)
	defer cancel()
	f.set, f.err = i.try(ctx)
	if i.ctx.Err() == nil {
		i.record(f)
	}
	i.mu.Lock()
	i.sharedFetch = nil
	i.mu.Unlock()
	close(f.done)
	i.resolve.Do(func() { close(i.resolved) })
}

// try fetches and recovers from panics: what an issuer answers goes through parsers
// of others, and must not end the program.
func (i *issuer) try(ctx context.Context) (set *jwt.KeySet, err error) {
	defer func() {
		if p := recover(); p != nil {
			set, err = nil, &fetchError{invalid, errors.New("the response cannot be read")}
		}
	}()
	return i.fetch(ctx)
}

// record keeps what came of a fetch, and logs what has changed by it.
func (i *issuer) record(f *sharedFetch) {
	before := i.state.Load()
	next := &state{set: before.set, fetched: before.fetched, number: before.number, last: resultOf(f.err)}
	i.count[next.last].Inc()
	if f.err == nil {
		next.set, next.fetched, next.number = f.set, f.began.Round(0), f.number
		i.state.Store(next)
		i.logKeys(before, next)
		return
	}
	next.over = !i.isUsable(next, time.Now())
	i.state.Store(next)
	if next.last == before.last && next.over == before.over {
		return
	}
	level, hint := slog.LevelWarn, "Gatehouse tries again; until "+next.fetched.Add(i.maxAge).UTC().Format(time.RFC3339)+" the last valid keys are used"
	if next.over {
		level, hint = slog.LevelError, "Gatehouse tries again; until then, tokens of this issuer are rejected"
	}
	if next.last == invalid {
		level = slog.LevelError
	}
	i.log.Log(i.ctx, level, "cannot fetch the keys of an issuer", "result", string(next.last), "error", f.err.Error(), "hint", hint)
}

func (i *issuer) logKeys(before, next *state) {
	attrs := []any{"keys", len(next.set.All())}
	if next.set.Ignored != "" {
		attrs = append(attrs, "ignored", next.set.Ignored)
	}
	switch {
	case before.set == nil || before.last != fine:
		i.log.Info("keys of an issuer fetched", attrs...)
	case !before.set.Equal(next.set):
		i.log.Info("keys of an issuer changed", attrs...)
	}
}

// isStale reports whether keys that were fetched cannot be relied on any more.
func (i *issuer) isStale(s *state, now time.Time) bool {
	return !i.static && now.Sub(s.fetched) > i.maxAge
}

// isUsable reports whether there is a set that can be relied on at a moment.
func (i *issuer) isUsable(s *state, now time.Time) bool { return s.set != nil && !i.isStale(s, now) }

// Find implements jwt.Keys. A key that is in memory costs nobody anything. For
// another the issuer is asked, if it may be asked now, and ctx bounds only how
// long the caller waits for that.
//
// That there is no such key is only said by an answer that was asked for after
// Find was called: an older one may be from before the key was made.
func (i *issuer) Find(ctx context.Context, id string) ([]jwt.Key, error) {
	s := i.state.Load()
	if i.isUsable(s, time.Now()) {
		if keys := s.set.Find(id); len(keys) > 0 {
			return keys, nil
		}
	}
	switch {
	case !i.static:
		return i.findFetched(ctx, id)
	case s.set == nil:
		return nil, errStatic
	default:
		return nil, nil
	}
}

// findFetched finds a key that was not in memory.
func (i *issuer) findFetched(ctx context.Context, id string) ([]jwt.Key, error) {
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
		f, err := i.joinFetchFor(id, arrived) //nolint:contextcheck // others may wait for the same fetch
		if err != nil {
			return nil, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("the issuer did not respond in time: %w", context.Cause(ctx))
		}
		switch {
		case resultOf(f.err) == invalid:
			return nil, errInvalid
		case f.err != nil:
			return nil, errUnreachable
		}
		// One that was in progress was begun too early for a no. The next is not.
		if keys := f.set.Find(id); len(keys) > 0 || f.number > arrived {
			return keys, nil
		}
	}
}
