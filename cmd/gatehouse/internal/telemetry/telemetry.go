// Package telemetry turns a finished review into one observation, and into one
// log line where somebody may have to act on it.
package telemetry

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/time/rate"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Telemetry observes reviews and configurations. It is safe for concurrent use.
type Telemetry struct {
	// Registry holds all metrics of the process.
	Registry *prometheus.Registry

	log *slog.Logger
	// limiter is for reviews that end in no answer, decisions for those that do.
	limiter, decisions limiter
	// audits tells whether token reviews that end in a yes are logged at level info.
	audits   bool
	duration *prometheus.HistogramVec
	reviews  *prometheus.CounterVec
	waited   *prometheus.HistogramVec
	size     *prometheus.HistogramVec
	warnings *prometheus.CounterVec
	patched  prometheus.Counter
	profiles *prometheus.CounterVec
	policies *policies
	// authentications are token reviews and logins.
	authentications *authentications
	reloads         *prometheus.CounterVec
	loaded          *prometheus.GaugeVec
	loadedAt        prometheus.Gauge
	// successful is of the configuration that was read last.
	successful   prometheus.Gauge
	emptied      prometheus.Gauge
	certificates *certificates
	// resources is nil without custom resources.
	resources *prometheus.GaugeVec
}

// New makes the metrics and registers them with a registry of their own.
func New(log *slog.Logger, version string) *Telemetry {
	// From half a millisecond, where a healthy answer lies, to the 30 seconds
	// that the API server waits at most.
	seconds := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	t := &Telemetry{
		Registry: prometheus.NewRegistry(),
		log:      log,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gatehouse_review_duration_seconds",
			Help:    "Time from a review's header to the end of its answer, by endpoint and decision.",
			Buckets: seconds,
		}, []string{"endpoint", "decision"}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_reviews_total",
			Help: "Finished reviews by endpoint, decision (allowed, denied, unknown, refused, shed) and reason.",
		}, []string{"endpoint", "decision", "reason"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gatehouse_review_wait_seconds",
			Help:    "Time that a review waited for its turn.",
			Buckets: seconds,
		}, []string{"endpoint"}),
		size: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gatehouse_review_size_bytes",
			Help:    "Size of a review's body.",
			Buckets: prometheus.ExponentialBuckets(1<<10, 4, 8), // 1 KiB to 16 MiB
		}, []string{"endpoint"}),
		warnings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_review_warnings_total",
			Help: "Warnings given to users.",
		}, []string{"endpoint"}),
		patched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gatehouse_patches_total",
			Help: "Mutating reviews that were answered with a patch.",
		}),
		profiles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_sidecar_profiles_total",
			Help: "What became of sidecar profiles that select a pod, by profile and reason. A dry run is not counted.",
		}, []string{"profile", "reason"}),
		policies:        newPolicies(),
		authentications: newAuthentications(),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_config_loads_total",
			Help: "Configurations read, by result: ok, or error for one that was not used, or was but for what does not compile.",
		}, []string{"result"}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_config_last_load_successful",
			Help: "1 if all of the configuration that was read last is in use, 0 if an older one is, or if policies in use do not compile.",
		}),
		emptied: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_config_emptied_files",
			Help: "Files of the configuration in use that hold no document and held some before, since the start.",
		}),
		loaded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gatehouse_config_info",
			Help: "1 for the digest of the configuration in use.",
		}, []string{"digest"}),
		loadedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_config_loaded_timestamp_seconds",
			Help: "When the configuration in use was read.",
		}),
		certificates: newCertificates(),
	}
	t.limiter = limiter{aSecond: linesASecond, atOnce: linesAtOnce, report: t.linesLeftOut}
	t.decisions = limiter{
		aSecond: decisionsASecond, atOnce: decisionsAtOnce, all: rate.NewLimiter(allDecisionsASecond, allDecisionsAtOnce), report: t.linesLeftOut,
	}
	t.authentications.refusals.report = t.linesLeftOut
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gatehouse_build_info",
		Help: "1 for the version of this program.",
	}, []string{"version", "go"})
	build.WithLabelValues(version, goVersion()).Set(1)
	t.Registry.MustRegister(t.duration, t.reviews, t.waited, t.size, t.warnings, t.patched, t.profiles,
		t.reloads, t.successful, t.emptied, t.loaded, t.loadedAt, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.Registry.MustRegister(t.policies.collectors()...)
	t.Registry.MustRegister(t.authentications.collectors()...)
	t.Registry.MustRegister(t.certificates.collectors()...)
	return t
}

// AuditAuthentication has every token review logged at level info, those that end
// in a yes too. It is called before anything is observed.
func (t *Telemetry) AuditAuthentication() { t.audits = true }

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
}

// reasonLabel bounds the label: a reason that comes from a policy's author must
// not make a time series each.
func reasonLabel(o *review.Outcome) string {
	switch o.Decision {
	case review.Denied:
		switch o.Reason {
		case "", "Forbidden", "Invalid", "RequestEntityTooLarge":
			return o.Reason
		default:
			if isAuthn(o.Reason) {
				return o.Reason
			}
			return other
		}
	case review.Allowed:
		return ""
	case review.Unknown, review.Refused, review.Shed:
		return o.Reason // words of this program
	default:
		return ""
	}
}

// Review observes one finished review. It fits review.Options.Observe.
func (t *Telemetry) Review(o *review.Outcome) {
	decision, reason := string(o.Decision), reasonLabel(o)
	t.duration.WithLabelValues(o.Endpoint, decision).Observe(o.Took.Seconds())
	t.reviews.WithLabelValues(o.Endpoint, decision, reason).Inc()
	t.authentications.authenticated(o, reason)
	t.waited.WithLabelValues(o.Endpoint).Observe(o.Waited.Seconds())
	t.size.WithLabelValues(o.Endpoint).Observe(float64(o.Bytes))
	if o.Warnings > 0 {
		t.warnings.WithLabelValues(o.Endpoint).Add(float64(o.Warnings))
	}
	if o.Patched {
		t.patched.Inc()
	}
	level := slog.LevelDebug
	switch o.Decision {
	case review.Allowed:
		if o.Audit[policy.ExceptedByKey] != "" {
			level = slog.LevelInfo // It would have been denied.
		}
		if t.audits && o.Endpoint == t.authentications.endpoint {
			level = slog.LevelInfo
		}
	case review.Denied:
		level = slog.LevelInfo
	case review.Refused, review.Shed:
		level = slog.LevelWarn
	case review.Unknown:
		level = slog.LevelError
		if notLoaded(o.Reason) {
			level = slog.LevelWarn // Anybody who can reach the API server can cause these.
		}
	}
	ctx := context.Background()
	if !t.log.Enabled(ctx, level) {
		return
	}
	suppressed := 0
	if lines, key := t.limit(o); lines != nil && level > slog.LevelDebug {
		var ok bool
		if suppressed, ok = lines.pass(key, o.Started.Add(o.Took)); !ok {
			return
		}
	}
	attrs := attributes(o)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	t.log.LogAttrs(ctx, level, "review", attrs...)
}

// linesLeftOut logs that lines were left out which no later line tells of.
func (t *Telemetry) linesLeftOut(n int) {
	t.log.Warn("log lines left out", "lines", n, "hint", "the metrics count everything")
}

// Profiles counts what became of the sidecar profiles that select a pod. Labels
// come from the configuration and from this program, never from a request.
func (t *Telemetry) Profiles(verdicts []sidecar.Verdict) {
	for i := range verdicts {
		if v := &verdicts[i]; v.Reason.Selected() {
			t.profiles.WithLabelValues(v.Profile, string(v.Reason)).Inc()
		}
	}
}

// attributes names what a review was about and how it ended. Nothing of an
// object's content and nothing of a token is among them.
func attributes(o *review.Outcome) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("endpoint", o.Endpoint),
		slog.String("decision", string(o.Decision)),
	}
	for _, a := range []struct{ key, value string }{
		{"reason", o.Reason},
		{"detail", o.Detail},
		{"uid", string(o.UID)},
		{"operation", o.Operation},
		{"resource", resource(o)},
		{"namespace", o.Namespace},
		{"name", o.Object},
		{"user", o.User},
		{"backend", o.Backend},
		{"source", o.Source},
		{"tokenID", o.TokenID},
		{"client", client(o)},
	} {
		if a.value == "" {
			continue
		}
		most := maxValue
		if a.key == "detail" {
			most = maxDetail
		}
		attrs = append(attrs, slog.String(a.key, clip(a.value, most)))
	}
	if o.DryRun {
		attrs = append(attrs, slog.Bool("dryRun", true))
	}
	// Other audit annotations are written by policies and may repeat an object.
	for _, key := range []string{sidecar.AuditKey, sidecar.AuditKeyAgain, policy.DeniedByKey, policy.ExceptedByKey} {
		if value := o.Audit[key]; value != "" {
			attrs = append(attrs, slog.String(key, clip(value, maxDetail)))
		}
	}
	return append(attrs, slog.Int("bytes", o.Bytes), slog.Float64("seconds", o.Took.Seconds()))
}

func resource(o *review.Outcome) string {
	parts := []string{o.Resource.Resource}
	if o.Resource.Group != "" {
		parts[0] += "." + o.Resource.Group
	}
	if o.Subresource != "" {
		parts = append(parts, o.Subresource)
	}
	return strings.Join(parts, "/")
}

// client is the address of a caller without a certificate. That of others is an API
// server's.
func client(o *review.Outcome) string {
	switch address := o.Caller.Address; {
	case o.Caller.Certified || !address.IsValid():
		return ""
	case address.IsSingleIP():
		return address.Addr().String()
	default:
		return address.String()
	}
}

const (
	// maxValue bounds what a line repeats of a request, in bytes. No name in Kubernetes
	// has more than 253.
	maxValue = 256
	// maxDetail bounds what this program says itself. A stack is the longest.
	maxDetail = 4 << 10
)

// clip keeps one line of a log from becoming a page.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// ConfigLoaded notes that a configuration is in use from now on: whole, or but for
// policies and exceptions in it that do not compile.
func (t *Telemetry) ConfigLoaded(digest string, at time.Time, whole bool) {
	t.loaded.Reset()
	t.loaded.WithLabelValues(digest).Set(1)
	t.loadedAt.Set(float64(at.Unix()))
	if !whole {
		t.ConfigFailed()
		return
	}
	t.reloads.WithLabelValues("ok").Inc()
	t.successful.Set(1)
}

// ConfigEmptiedFiles notes how many files the configuration in use has without
// documents that held some before.
func (t *Telemetry) ConfigEmptiedFiles(n int) { t.emptied.Set(float64(n)) }

// ConfigFailed notes that a configuration could not be used.
func (t *Telemetry) ConfigFailed() {
	t.reloads.WithLabelValues("error").Inc()
	t.successful.Set(0)
}
