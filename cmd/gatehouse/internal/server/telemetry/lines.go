package telemetry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// lines limits the log lines that anyone who reaches the port can cause. Metrics count what has no line. It is safe for concurrent use.
type lines struct {
	mu sync.Mutex
	// reasons limit the lines of calls without an answer. Their keys are words of this program.
	reasons map[string]*rate.Limiter
	// strangers limits the decisions for all clients without a certificate together. The account of each limits them too. They have
	// higher limits, because an API server may be such a client.
	strangers *rate.Limiter
	// suppressed counts the lines that are missing before the next one.
	suppressed int
}

func newLines() *lines {
	return &lines{reasons: make(map[string]*rate.Limiter), strangers: rate.NewLimiter(50, 500)}
}

// allowReason reports whether a call that ended for a reason may have a line now, and how many are missing before it.
func (l *lines) allowReason(endpoint, reason string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := endpoint + " " + reason
	limit := l.reasons[key]
	if limit == nil {
		limit = rate.NewLimiter(1, 20)
		if reason == string(authn.ReasonCredentials) {
			limit = rate.NewLimiter(10, 100) // as many as login allows unknown clients: every wrong password has its line
		}
		l.reasons[key] = limit
	}
	return l.count(limit.AllowN(now, 1))
}

// count returns how many lines are missing before one that is allowed. The lines are locked.
func (l *lines) count(allowed bool) (suppressed int, ok bool) {
	if !allowed {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}

// allow reports whether a review may have a line now, and how many are missing before it. That depends on whether anyone can cause such
// a review without permission in the cluster: forged tokens arrive here too.
func (t *Telemetry) allow(o *review.Outcome, now time.Time) (suppressed int, ok bool) {
	isToken := o.Endpoint == t.authentications.endpoint
	switch {
	case o.Decision == review.Refused, o.Decision == review.Shed, isToken && o.Decision != review.Allowed && (isForgeable(o.Reason) || o.Reason == string(authn.ReasonScopeNotEnforced)):
		return t.lines.allowReason(o.Endpoint, o.Reason, now)
	case isToken, o.Client == nil, o.Client.Certified:
		return 0, true
	}
	allowed := o.Client.Lines.AllowN(now, 1) && t.lines.strangers.AllowN(now, 1)
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	return t.lines.count(allowed)
}
