package telemetry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Anyone who reaches the port can cause log lines. The metrics count suppressed ones too.
const (
	// linesPerSecond and lineBurst bound the lines of reviews without an answer, for each
	// endpoint and reason.
	linesPerSecond = 1
	lineBurst      = 20
	// decisionsPerSecond and decisionBurst bound the lines of denials, and of reviews that
	// could not be decided, of each client without a certificate. They are higher because
	// an API server may be such a client. The others bound those of all such clients.
	decisionsPerSecond, allDecisionsPerSecond = 10, 50
	decisionBurst, allDecisionsBurst          = 100, 500
	// maxKeys bounds the keys that have a rate of their own.
	maxKeys = 256
	// reportAfter is how long after a line was suppressed that is reported, if no line of
	// the same key was written meanwhile.
	reportAfter = 10 * time.Second
)

// lineLimiter allows log lines at a bounded rate and counts the others. It is safe for
// concurrent use.
type lineLimiter struct {
	// perSecond and burst are the rate of each key.
	perSecond rate.Limit
	burst     int
	// all, if set, is the rate of all keys together.
	all *rate.Limiter
	// report gets the number of suppressed lines that allow has not returned.
	report func(suppressed int)

	mu    sync.Mutex
	lines map[string]*line
	// removed are the suppressed lines of keys that were removed. A report is pending from
	// the first suppressed line.
	removed int
	pending bool
}

type line struct {
	rate       *rate.Limiter
	suppressed int
}

// allow reports whether a line may be written now and, if so, returns how many of its key
// were suppressed since the last.
func (l *lineLimiter) allow(key string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.line(key, now)
	if !entry.rate.AllowN(now, 1) || l.all != nil && !l.all.AllowN(now, 1) {
		entry.suppressed++
		if !l.pending {
			l.pending = true
			time.AfterFunc(reportAfter, l.reportSuppressed)
		}
		return 0, false
	}
	suppressed, entry.suppressed = entry.suppressed, 0
	return suppressed, true
}

// line returns the line of a key. If there are too many keys, those at their full burst are
// removed, or else new ones share one. The limiter is locked.
func (l *lineLimiter) line(key string, now time.Time) *line {
	const shared = ""
	if l.lines == nil {
		l.lines = make(map[string]*line)
	}
	if l.lines[key] == nil && len(l.lines) >= maxKeys {
		for other, entry := range l.lines {
			if entry.rate.TokensAt(now) >= float64(l.burst) {
				l.removed += entry.suppressed
				delete(l.lines, other)
			}
		}
		if len(l.lines) >= maxKeys {
			key = shared
		}
	}
	entry := l.lines[key]
	if entry == nil {
		entry = &line{rate: rate.NewLimiter(l.perSecond, l.burst)}
		l.lines[key] = entry
	}
	return entry
}

func (l *lineLimiter) reportSuppressed() {
	l.mu.Lock()
	n := l.removed
	l.removed, l.pending = 0, false
	for _, entry := range l.lines {
		n += entry.suppressed
		entry.suppressed = 0
	}
	l.mu.Unlock()
	if n > 0 {
		l.report(n)
	}
}

// limiterFor returns the limiter and the key for the line of a review, nil if its lines are
// not limited. That depends on whether anyone can cause such a review without permission in
// the cluster: forged tokens arrive here too.
func (t *Telemetry) limiterFor(o *review.Outcome) (lines *lineLimiter, key string) {
	switch o.Decision {
	case review.Refused, review.Shed:
		return &t.failures, o.Endpoint + " " + o.Reason
	case review.Denied, review.Unknown:
		if o.Endpoint == t.authentications.endpoint {
			if isForgeable(o.Reason) {
				return &t.failures, o.Endpoint + " " + o.Reason
			}
			return nil, ""
		}
	case review.Allowed: // by an exception
	}
	if o.Caller.Certified || o.Endpoint == t.authentications.endpoint {
		return nil, ""
	}
	return &t.decisions, o.Caller.Address.String()
}
