package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// authentications counts token reviews and logins. Sources and directories are those of a
// configuration, and reasons words of this program.
type authentications struct {
	// endpoint is the name of the endpoint that answers token reviews.
	endpoint string
	total    *prometheus.CounterVec
	logins   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	whoamis  *prometheus.CounterVec
	logouts  *prometheus.CounterVec

	// sources are those of the active configuration, directories included.
	sources atomic.Pointer[map[string]bool]
	// grants has the Grants of the active configuration, nil without one.
	grants atomic.Pointer[authn.Set]
}

func newAuthentications(f factory) *authentications {
	a := &authentications{
		total: f.counters("gatehouse_authentications_total",
			"Answered token reviews by authenticator, source of the identity, decision (allowed, denied, unknown) and reason.", "backend", "source", "decision", "reason"),
		logins: f.counters("gatehouse_logins_total",
			"Calls of /login by directory (the URL of the issuer if its token is exchanged), decision (allowed, denied, unknown, refused, shed) and reason.", "directory", "decision", "reason"),
		duration: f.histograms("gatehouse_login_duration_seconds",
			"Time from the header of a call of /login to the end of its answer, by directory (the URL of the issuer if its token is exchanged) and decision.", []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "directory", "decision"),
		whoamis: f.counters("gatehouse_whoami_total", "Calls of /whoami by decision (allowed, denied, unknown, refused, shed) and reason.", "decision", "reason"),
		logouts: f.counters("gatehouse_logouts_total", "Calls of /logout by source, decision (allowed, denied, unknown, refused, shed) and reason.", "source", "decision", "reason"),
	}
	for _, e := range webhooks.Endpoints() {
		if e.Token != nil {
			a.endpoint = e.Name
		}
	}
	a.sources.Store(&map[string]bool{})
	for _, phase := range []v1alpha1.GrantPhase{v1alpha1.GrantNotYet, v1alpha1.GrantActive, v1alpha1.GrantExpired} {
		f.gaugeFunc("gatehouse_grants", "Grants without errors, by phase (NotYet, Active, Expired).", "phase", string(phase), func() float64 {
			if set := a.grants.Load(); set != nil {
				return float64(set.GrantPhases(time.Now())[phase])
			}
			return 0
		})
	}
	return a
}

// GrantsLoaded notes the Grants that are active from now on.
func (t *Telemetry) GrantsLoaded(set *authn.Set) { t.authentications.grants.Store(set) }

// AuthenticationLoaded notes the sources of identities that are active from now on. The
// time series of others end.
func (t *Telemetry) AuthenticationLoaded(spec *authn.Spec) {
	sources := map[string]bool{v1alpha1.AccessTokensSource: true}
	for i := range spec.Directories {
		sources[spec.Directories[i].Config.Name] = true
	}
	for i := range spec.Issuers {
		sources[spec.Issuers[i].Config.Issuer.URL] = true
	}
	a := t.authentications
	for gone := range *a.sources.Swap(&sources) {
		if !sources[gone] {
			a.total.DeletePartialMatch(prometheus.Labels{"source": gone})
			a.logouts.DeletePartialMatch(prometheus.Labels{"source": gone})
			a.logins.DeletePartialMatch(prometheus.Labels{"directory": gone})
			a.duration.DeletePartialMatch(prometheus.Labels{"directory": gone})
		}
	}
}

// authenticated counts a token review, if it is one that has an answer.
func (a *authentications) authenticated(o *review.Outcome, reason string) {
	switch o.Decision {
	case review.Allowed, review.Denied, review.Unknown:
		if o.Endpoint == a.endpoint {
			a.total.WithLabelValues(o.Backend, o.Source, string(o.Decision), reason).Inc()
		}
	case review.NoOpinion, review.Refused, review.Shed:
	}
}

// isNotLoaded reports whether a token could not be decided on because its document or key is
// not loaded, or not yet. Forged tokens have none either.
func isNotLoaded(reason string) bool {
	switch authn.Reason(reason) { //nolint:exhaustive // the others are of what is here
	case authn.ReasonUnknownID, authn.ReasonUnknownKey, authn.ReasonSourceGone, authn.ReasonVersion, authn.ReasonUnknownScope, authn.ReasonScopeNotEnforced:
		return true
	default:
		return false
	}
}

// isForgeable reports whether a forged token can be rejected for a reason too.
func isForgeable(reason string) bool {
	switch authn.Reason(reason) { //nolint:exhaustive // the others are of authentic tokens
	case authn.ReasonForeign, authn.ReasonMalformed, authn.ReasonTooLarge, authn.ReasonUnknownID, authn.ReasonWrongSecret,
		authn.ReasonUnknownKey, authn.ReasonSignature, authn.ReasonAlgorithm, authn.ReasonKeys, authn.ReasonDeadline:
		return true
	default:
		return false
	}
}

// The paths of Calls that are about tokens.
const (
	whoamiPath = "/whoami"
	logoutPath = "/logout"
)

// Login observes one finished call of /login, /whoami or /logout.
func (t *Telemetry) Login(e *Call) {
	a := t.authentications
	decision, reason := string(e.Decision), e.Reason
	if e.Decision == review.Allowed {
		reason = ""
	}
	switch e.Path {
	case whoamiPath:
		a.whoamis.WithLabelValues(decision, reason).Inc()
	case logoutPath:
		a.logouts.WithLabelValues(e.Source, decision, reason).Inc()
	default:
		a.logins.WithLabelValues(e.Directory, decision, reason).Inc()
		a.duration.WithLabelValues(e.Directory, decision).Observe(e.Took.Seconds())
	}
	ctx, level := context.Background(), loginLevel(e)
	if !t.log.Enabled(ctx, level) {
		return
	}
	attrs := loginAttributes(e)
	// Anyone who reaches the port can cause the others.
	if e.Decision != review.Allowed {
		suppressed, ok := t.lines.allowReason(e.Path, reason, e.Started.Add(e.Took))
		if !ok {
			return
		}
		if suppressed > 0 {
			attrs = append(attrs, slog.Int("suppressed", suppressed))
		}
	}
	t.log.LogAttrs(ctx, level, strings.TrimPrefix(e.Path, "/"), attrs...)
}

// loginLevel returns the level of a call's line. Logins are few; whoami adds nothing to the
// review of the same token.
func loginLevel(e *Call) slog.Level {
	switch e.Decision {
	case review.Allowed, review.Denied:
		if e.Path == whoamiPath {
			return slog.LevelDebug
		}
		return slog.LevelInfo
	case review.NoOpinion, review.Refused, review.Shed:
		return slog.LevelWarn
	case review.Unknown:
		if isNotLoaded(e.Reason) {
			return slog.LevelWarn
		}
		return slog.LevelError
	default:
		return slog.LevelError
	}
}

// loginAttributes returns the caller, the subject and the outcome of a call: nothing of a
// password and nothing of a token.
func loginAttributes(e *Call) []slog.Attr {
	attrs := appendFields([]slog.Attr{slog.String("decision", string(e.Decision))}, []field{
		{"reason", e.Reason},
		{"detail", e.Detail},
		{"directory", e.Directory},
		{"backend", string(e.Backend)},
		{"source", e.Source},
		{"user", e.User},
		{"tokenID", e.TokenID},
		{"client", e.Client},
	})
	if e.Renewal {
		attrs = append(attrs, slog.Bool("renewal", true))
	}
	return append(attrs, slog.Float64("seconds", e.Took.Seconds()))
}
