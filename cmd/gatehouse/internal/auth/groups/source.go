package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// result is the end of a look-up, for metrics.
type result string

const (
	answered result = "answered"
	// unreachable is a source that does not answer, or with an error of its own.
	unreachable result = "unreachable"
	// invalid is an answer that is no use, which may be about one user alone.
	invalid result = "invalid"
)

// outageError is a failure of the source and not of one look-up.
type outageError struct {
	cause error
	// retryAfter is how long the source asks to be left alone, 0 for no wish.
	retryAfter time.Duration
}

func (e *outageError) Error() string { return e.cause.Error() }

func (e *outageError) Unwrap() error { return e.cause }

// The errors of Lookup for which the source is not asked.
var (
	errOpen    = errors.New("the source has failed several times and is not asked for a while")
	errCrowded = errors.New("too many look-ups of the source are in progress")
	errTime    = errors.New("the source did not answer in time")
	errPanic   = errors.New("the answer cannot be read")
)

// backend asks a service for the names of a user's groups, without the prefix. No names and no
// error are those of a user who certainly has none. The error names no secret. It is safe for
// concurrent use.
type backend interface {
	ask(ctx context.Context, q *authn.GroupQuery, limit int) ([]string, error)
}

const (
	// callsPerSlot bounds the look-ups that wait for others.
	callsPerSlot = 16
	// maxWait is how long a look-up waits for others: a token review has less than eight
	// seconds.
	maxWait = 7 * time.Second
)

// source is a group source.
type source struct {
	groups    *Groups
	settings  config.GroupSource
	directory authn.Directory
	backend   backend

	issuer, name, prefix    string
	timeout, ttl, outageTTL time.Duration
	limit                   int

	breaker breaker
	// slots bounds the look-ups in progress.
	slots chan struct{}
	count counters
	log   *slog.Logger

	mu    sync.Mutex
	calls map[cacheKey]*call
}

var _ authn.GroupLookup = (*source)(nil)

// call is a look-up for all who wait for it. Answer and err may be read when done is closed.
type call struct {
	done   chan struct{}
	answer authn.GroupAnswer
	err    error
}

func (s *source) key(q *authn.GroupQuery) cacheKey { return cacheKey{s, q.Subject, q.User} }

// Cached implements authn.GroupLookup.
func (s *source) Cached(q *authn.GroupQuery) (authn.GroupAnswer, bool) {
	answer, ok := s.groups.cache.get(s.key(q))
	if !ok || time.Since(answer.At) >= s.ttl {
		return authn.GroupAnswer{}, false
	}
	s.count.cache.Inc()
	return answer, true
}

// Lookup implements authn.GroupLookup.
func (s *source) Lookup(ctx context.Context, q *authn.GroupQuery) (authn.GroupAnswer, error) {
	c, err := s.join(*q) //nolint:contextcheck // others may wait for the same look-up
	if err == nil {
		select {
		case <-c.done:
			err = c.err
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", errTime, context.Cause(ctx))
		}
	}
	if err == nil {
		s.count.source.Inc()
		return c.answer, nil
	}
	// Nobody has fewer groups than a moment ago because a source is away.
	if answer, ok := s.groups.cache.get(s.key(q)); ok && time.Since(answer.At) < s.outageTTL {
		s.count.stale.Inc()
		answer.Stale = time.Since(answer.At) >= s.ttl
		return answer, nil
	}
	s.count.unknown.Inc()
	return authn.GroupAnswer{}, err
}

// join returns the look-up of the user that is in progress, or a new one.
func (s *source) join(q authn.GroupQuery) (*call, error) {
	key := s.key(&q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.calls[key]; ok {
		return c, nil
	}
	switch {
	case s.groups.ctx.Err() != nil:
		return nil, context.Canceled
	case len(s.calls) >= callsPerSlot*cap(s.slots):
		return nil, errCrowded
	case !s.breaker.allow(time.Now()):
		return nil, errOpen
	}
	c := &call{done: make(chan struct{})}
	s.calls[key] = c
	s.groups.work.Go(func() { s.run(key, &q, c) })
	return c, nil
}

// run makes a look-up, for nobody's context: who began it may be gone before others who wait.
func (s *source) run(key cacheKey, q *authn.GroupQuery, c *call) {
	defer close(c.done)
	defer func() {
		s.mu.Lock()
		delete(s.calls, key)
		s.mu.Unlock()
	}()
	waiting, cancel := context.WithTimeout(s.groups.ctx, maxWait)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-waiting.Done():
		c.err = errCrowded
		s.breaker.skip()
		return
	}
	began := time.Now()
	names, err := s.try(q)
	s.record(err, time.Since(began))
	if err != nil {
		c.err = err
		return
	}
	for i, name := range names {
		if name != "" { // An empty name stays empty, for the guard to reject.
			names[i] = s.prefix + name
		}
	}
	slices.Sort(names)
	c.answer = s.groups.cache.put(key, authn.GroupAnswer{Groups: slices.Compact(names), At: began.Round(0)})
}

// try asks within the time of a look-up, and recovers from panics: answers go through parsers
// of others.
func (s *source) try(q *authn.GroupQuery) (names []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			names, err = nil, errPanic
		}
	}()
	ctx, cancel := context.WithTimeout(s.groups.ctx, s.timeout)
	defer cancel()
	names, err = s.backend.ask(ctx, q, s.limit)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &outageError{cause: fmt.Errorf("%w: %w", errTime, context.Cause(ctx))}
	case err != nil:
		return nil, err
	case len(names) > s.limit:
		return nil, groupsource.TooManyError(s.limit)
	}
	return names, nil
}

// record notes the end of a look-up.
func (s *source) record(err error, took time.Duration) {
	outage, isOutage := errors.AsType[*outageError](err)
	r, retryAfter := answered, time.Duration(0)
	switch {
	case isOutage:
		r, retryAfter = unreachable, outage.retryAfter
	case err != nil:
		r = invalid
	}
	s.count.duration[r].Observe(took.Seconds())
	opened, closed := s.breaker.done(isOutage, retryAfter, time.Now())
	switch {
	case opened:
		s.log.Warn("a group source does not answer", "error", truncate.Bytes(err.Error(), 1000), "hint", "cached groups are used for at most "+s.outageTTL.String()+"; onUnknown decides about other users")
	case closed:
		s.log.Info("a group source answers again")
	}
}

// inProgress returns the number of look-ups in progress.
func (s *source) inProgress() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}
