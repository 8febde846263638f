package telemetry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Anybody who reaches the port can cause log lines. The metrics count all that is left
// out.
const (
	// linesASecond and linesAtOnce bound the lines of reviews that end in no answer, for
	// each endpoint and reason.
	linesASecond = 1
	linesAtOnce  = 20
	// decisionsASecond and decisionsAtOnce bound the lines of denials, and of
	// reviews that could not be decided, of each client without a certificate: an API server
	// is one too, so that there are more of them. The others bound those of all such clients.
	decisionsASecond, allDecisionsASecond = 10, 50
	decisionsAtOnce, allDecisionsAtOnce   = 100, 500
	// maxKeys bounds the clients that are told apart at one time.
	maxKeys = 256
	// reportAfter is how long after a line was left out that is reported, if no line like
	// it was written in between.
	reportAfter = 10 * time.Second
)

// limiter lets lines pass at a bounded rate and counts the others. It is safe
// for concurrent use.
type limiter struct {
	// aSecond and atOnce are the rate of each key.
	aSecond rate.Limit
	atOnce  int
	// all, if set, is the rate of all keys together.
	all *rate.Limiter
	// report is told how many lines have been left out that pass has not told of.
	report func(leftOut int)

	mu    sync.Mutex
	lines map[string]*line
	// leftOut are those of keys that were forgotten. A report is pending from the first
	// line that is left out.
	leftOut int
	pending bool
}

type line struct {
	rate       *rate.Limiter
	suppressed int
}

// pass reports whether a line may be written now and, if so, how many like it
// have not been since the last.
func (l *limiter) pass(key string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.line(key, now)
	if !entry.rate.AllowN(now, 1) || l.all != nil && !l.all.AllowN(now, 1) {
		entry.suppressed++
		if !l.pending {
			l.pending = true
			time.AfterFunc(reportAfter, l.reportLeftOut)
		}
		return 0, false
	}
	suppressed, entry.suppressed = entry.suppressed, 0
	return suppressed, true
}

// line is that of a key. Keys are forgotten when there are too many, but for those whose
// rate is in use; where that does not help, the new ones share one. The limiter is locked.
func (l *limiter) line(key string, now time.Time) *line {
	const shared = ""
	if l.lines == nil {
		l.lines = make(map[string]*line)
	}
	if l.lines[key] == nil && len(l.lines) >= maxKeys {
		for other, entry := range l.lines {
			if entry.rate.TokensAt(now) >= float64(l.atOnce) {
				l.leftOut += entry.suppressed
				delete(l.lines, other)
			}
		}
		if len(l.lines) >= maxKeys {
			key = shared
		}
	}
	entry := l.lines[key]
	if entry == nil {
		entry = &line{rate: rate.NewLimiter(l.aSecond, l.atOnce)}
		l.lines[key] = entry
	}
	return entry
}

func (l *limiter) reportLeftOut() {
	l.mu.Lock()
	n := l.leftOut
	l.leftOut, l.pending = 0, false
	for _, entry := range l.lines {
		n += entry.suppressed
		entry.suppressed = 0
	}
	l.mu.Unlock()
	if n > 0 {
		l.report(n)
	}
}

// limit is what bounds the lines about a review, and by which key, nil if nothing does.
// Whether a review needs a right in the cluster to bring about depends on the caller, and
// on how it ended: tokens that nobody was given arrive here too.
func (t *Telemetry) limit(o *review.Outcome) (lines *limiter, key string) {
	switch o.Decision {
	case review.Refused, review.Shed:
		return &t.limiter, o.Endpoint + " " + o.Reason
	case review.Denied, review.Unknown:
		if o.Endpoint == t.authentications.endpoint {
			if proofless(o.Reason) {
				return &t.limiter, o.Endpoint + " " + o.Reason
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
