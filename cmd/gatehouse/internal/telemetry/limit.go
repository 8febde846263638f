package telemetry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// linesASecond and linesAtOnce bound the log lines that anybody who reaches
	// the port can cause, for each endpoint and reason. The metrics count all.
	linesASecond = 1
	linesAtOnce  = 20
)

// limiter lets lines pass at a bounded rate and counts the others. It is safe
// for concurrent use.
type limiter struct {
	// aSecond and atOnce are the rate.
	aSecond rate.Limit
	atOnce  int

	mu sync.Mutex
	// lines has an entry for each endpoint and reason, which are words of this
	// program, so that there are few.
	lines map[string]*line
}

type line struct {
	rate       *rate.Limiter
	suppressed int
}

// pass tells whether a line may be written now and, if so, how many like it
// have not been since the last.
func (l *limiter) pass(key string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = make(map[string]*line)
	}
	entry := l.lines[key]
	if entry == nil {
		entry = &line{rate: rate.NewLimiter(l.aSecond, l.atOnce)}
		l.lines[key] = entry
	}
	if !entry.rate.AllowN(now, 1) {
		entry.suppressed++
		return 0, false
	}
	suppressed, entry.suppressed = entry.suppressed, 0
	return suppressed, true
}

// byAnybody tells whether a review ended in a way that needs no right in the
// cluster to bring about: tokens that nobody was given arrive here too.
func (t *Telemetry) byAnybody(o *review.Outcome) bool {
	switch o.Decision {
	case review.Refused, review.Shed:
		return true
	case review.Denied, review.Unknown:
		return o.Endpoint == t.authentications.endpoint && proofless(o.Reason)
	case review.Allowed:
		return false
	default:
		return false
	}
}
