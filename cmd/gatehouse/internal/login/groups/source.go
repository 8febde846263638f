package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"

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
type outageError struct{ cause error }

func (e *outageError) Error() string { return e.cause.Error() }

func (e *outageError) Unwrap() error { return e.cause }

// The errors of Lookup for which the source is not asked.
var (
	errOpen    = errors.New("the source has failed several times and is not asked for a while")
	errCrowded = errors.New("too many look-ups of the source are in progress")
	errTime    = errors.New("the source did not answer in time")
	errPanic   = errors.New("the answer cannot be read")
	// errNotAccepted is no outage: the issuer has the last word on a token.
	errNotAccepted = errors.New("the UserInfo endpoint does not accept the token")
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
	// GroupSource is the configuration with defaults, and given the one without.
	config.GroupSource

	given     config.GroupSource
	groups    *Groups
	directory authn.Directory
	backend   backend

	breaker breaker
	// calls are the look-ups in progress, one for each user.
	calls singleflight.Group
	// slots bounds the look-ups that ask, and queue those and the ones that wait for a slot.
	slots, queue chan struct{}
	count        counters
}

var _ authn.GroupLookup = (*source)(nil)

func (s *source) key(q *authn.GroupQuery) cacheKey { return cacheKey{s, q.Subject, q.User} }

// Cached implements authn.GroupLookup.
func (s *source) Cached(q *authn.GroupQuery) (authn.GroupAnswer, bool) {
	answer, ok := s.groups.cache.get(s.key(q))
	if !ok || time.Since(answer.At) >= s.Config.CacheTTL.Duration {
		return authn.GroupAnswer{}, false
	}
	s.count.cache.Inc()
	return answer, true
}

// Lookup implements authn.GroupLookup.
func (s *source) Lookup(ctx context.Context, q *authn.GroupQuery) (authn.GroupAnswer, error) {
	answer, err := s.wait(ctx, *q)
	if err == nil {
		s.count.source.Inc()
		return answer, nil
	}
	// Nobody has fewer groups than a moment ago because a source is away.
	answer, ok := s.groups.cache.get(s.key(q))
	if ok && time.Since(answer.At) < s.Config.OutageTTL.Duration && !errors.Is(err, errNotAccepted) {
		s.count.stale.Inc()
		answer.Stale = time.Since(answer.At) >= s.Config.CacheTTL.Duration
		return answer, nil
	}
	s.count.unknown.Inc()
	return authn.GroupAnswer{}, err
}

// wait waits for the look-up of the user that is in progress, or for a new one. That is for
// nobody's context: who began it may be gone before others who wait.
func (s *source) wait(ctx context.Context, q authn.GroupQuery) (authn.GroupAnswer, error) {
	// A quoted string ends where it is seen to end, so that no two users have one key.
	done := s.calls.DoChan(strconv.Quote(q.Subject)+q.User, func() (any, error) { return s.run(&q) }) //nolint:contextcheck // see above
	select {
	case r := <-done:
		answer, _ := r.Val.(authn.GroupAnswer)
		return answer, r.Err
	case <-ctx.Done():
		return authn.GroupAnswer{}, fmt.Errorf("%w: %w", errTime, context.Cause(ctx))
	}
}

// run makes a look-up, and caches the answer.
func (s *source) run(q *authn.GroupQuery) (authn.GroupAnswer, error) {
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		return authn.GroupAnswer{}, errCrowded
	}
	s.count.inProgress.Inc()
	defer s.count.inProgress.Dec()
	waiting, cancel := context.WithTimeout(s.groups.ctx, maxWait)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-waiting.Done():
		return authn.GroupAnswer{}, errCrowded
	}
	began := time.Now()
	if !s.breaker.allow(began) {
		return authn.GroupAnswer{}, errOpen
	}
	names, err := s.try(q)
	s.record(err, time.Since(began))
	if err != nil {
		return authn.GroupAnswer{}, err
	}
	for i, name := range names {
		if name != "" { // An empty name stays empty, for the guard to reject.
			names[i] = s.Prefix + name
		}
	}
	slices.Sort(names)
	return s.groups.cache.put(s.key(q), authn.GroupAnswer{Groups: slices.Compact(names), At: began.Round(0)}), nil
}

// try asks within the time of a look-up, and recovers from panics: answers go through parsers
// of others.
func (s *source) try(q *authn.GroupQuery) (names []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			names, err = nil, errPanic
		}
	}()
	ctx, cancel := context.WithTimeout(s.groups.ctx, s.Config.Timeout.Duration)
	defer cancel()
	names, err = s.backend.ask(ctx, q, s.Config.MaxGroups)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &outageError{cause: fmt.Errorf("%w: %w", errTime, context.Cause(ctx))}
	case err != nil:
		return nil, err
	case len(names) > s.Config.MaxGroups:
		return nil, groupsource.TooMany(s.Config.MaxGroups)
	}
	return names, nil
}

// record notes the end of a look-up.
func (s *source) record(err error, took time.Duration) {
	_, isOutage := errors.AsType[*outageError](err)
	r := answered
	switch {
	case isOutage:
		r = unreachable
	case err != nil:
		r = invalid
	}
	s.count.duration[r].Observe(took.Seconds())
	switch open := s.breaker.done(isOutage, time.Now()); {
	case open:
		s.count.open.Set(1)
		s.groups.problems.Report(s.name(), "open", "group source "+s.name()+" does not answer: "+truncate.Bytes(err.Error(), 1000),
			"cached groups are used for at most "+s.Config.OutageTTL.Duration.String()+"; onUnknown decides about other users")
	case !isOutage:
		s.count.open.Set(0)
		s.groups.problems.Recover(s.name())
	}
}

// name names the source in the log.
func (s *source) name() string { return fmt.Sprintf("%q of %s", s.Config.Name, s.Issuer) }
