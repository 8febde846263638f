// Package telemetry has the metrics of the server, and logs finished reviews: denials, failures, and at level debug every
// review.
package telemetry

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Telemetry observes reviews and configurations. It is safe for concurrent use.
type Telemetry struct {
	// Registry holds all metrics of the process.
	Registry *prometheus.Registry

	log   *slog.Logger
	lines *lines
	// audits reports whether authenticated token reviews are logged at level info.
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
	// successful is about the configuration that was read last.
	successful prometheus.Gauge
	emptied    prometheus.Gauge
	// resources is nil without custom resources.
	resources *prometheus.GaugeVec
}

// New returns a Telemetry with a registry of its own.
func New(log *slog.Logger, version string) *Telemetry {
	// From half a millisecond, an ordinary answer, to 30 seconds, the longest timeout of the
	// API server.
	seconds := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	registry := prometheus.NewRegistry()
	f := factory{promauto.With(registry)}
	t := &Telemetry{
		Registry: registry,
		log:      log,
		lines:    newLines(),
		duration: f.histograms("gatehouse_review_duration_seconds",
			"Time from a review's header to the end of its answer, by endpoint and decision.", seconds, "endpoint", "decision"),
		reviews: f.counters("gatehouse_reviews_total",
			"Finished reviews by endpoint, decision (allowed, denied, no-opinion, unknown, refused, shed) and reason.", "endpoint", "decision", "reason"),
		waited: f.histograms("gatehouse_review_wait_seconds", "Time that reviews waited for their turn.", seconds, "endpoint"),
		// 1 KiB to 16 MiB
		size:     f.histograms("gatehouse_review_size_bytes", "Size of a review's body.", prometheus.ExponentialBuckets(1<<10, 4, 8), "endpoint"),
		warnings: f.counters("gatehouse_review_warnings_total", "Warnings given to users.", "endpoint"),
		patched:  f.counter("gatehouse_patches_total", "Mutating reviews that were answered with a patch."),
		profiles: f.counters("gatehouse_sidecar_profiles_total",
			"Outcomes of sidecar profiles that select a pod, by profile and reason. Dry runs are not counted.", "profile", "reason"),
		policies:        newPolicies(f),
		authentications: newAuthentications(f),
		reloads: f.counters("gatehouse_config_loads_total",
			"Configurations read, by result: ok, or error for one that was rejected or that has policies with errors.", "result"),
		successful: f.gauge("gatehouse_config_last_load_successful",
			"1 if the configuration that was read last is active without errors, 0 if an older one is active or if active policies do not compile."),
		emptied:  f.gauge("gatehouse_config_emptied_files", "Files of the active configuration that have lost all their documents since the start."),
		loaded:   f.gauges("gatehouse_config_info", "1 for the digest of the active configuration.", "digest"),
		loadedAt: f.gauge("gatehouse_config_loaded_timestamp_seconds", "Time when the active configuration was read, as a Unix timestamp."),
	}
	f.gauges("gatehouse_build_info", "1 for the version of this program.", "version", "go").WithLabelValues(version, goVersion()).Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return t
}

// factory makes metrics and registers them.
type factory struct{ promauto.Factory }

func (f factory) counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// gaugeFunc makes one time series, with one label, that is computed when it is read.
func (f factory) gaugeFunc(name, help, label, of string, value func() float64) {
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: of}}, value)
}

func (f factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// AuditAuthentication has every token review logged at level info, authenticated ones too.
// It is called before anything is observed.
func (t *Telemetry) AuditAuthentication() { t.audits = true }

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
}

// reasonLabel returns the label for the reason of a review, which is a word of this program or one
// of the reasons that a policy may give.
func reasonLabel(o *review.Outcome) string {
	if o.Decision == review.Allowed {
		return ""
	}
	return o.Reason
}

// Review observes one finished review. It can be review.Options.Observe.
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
		if o.Audit[policy.ExceptedByKey] != "" || o.Audit[policy.BaselinedByKey] != "" {
			level = slog.LevelInfo // it would have been denied
		}
		if t.audits && o.Endpoint == t.authentications.endpoint {
			level = slog.LevelInfo
		}
	case review.Denied:
		level = slog.LevelInfo
	case review.NoOpinion:
	case review.Refused, review.Shed:
		level = slog.LevelWarn
	case review.Unknown:
		level = slog.LevelError
		if isNotLoaded(o.Reason) {
			level = slog.LevelWarn // anyone who reaches the API server can cause these
		}
	}
	if o.Reason == string(authz.ReasonProbe) {
		level = slog.LevelDebug // each replica asks periodically
	}
	ctx := context.Background()
	if !t.log.Enabled(ctx, level) {
		return
	}
	suppressed := 0
	if level > slog.LevelDebug {
		var ok bool
		if suppressed, ok = t.allow(o, o.Started.Add(o.Took)); !ok {
			return
		}
	}
	attrs := attributes(o)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	t.log.LogAttrs(ctx, level, "review", attrs...)
}

// Profiles counts the verdicts of sidecar profiles that select a pod. Labels come from the
// configuration and from this program, never from a request.
func (t *Telemetry) Profiles(verdicts []sidecar.Verdict) {
	for i := range verdicts {
		if v := &verdicts[i]; v.Reason.Selected() {
			t.profiles.WithLabelValues(v.Profile, string(v.Reason)).Inc()
		}
	}
}

// attributes returns the subject and the outcome of a review: nothing of an object's
// content and nothing of a token.
func attributes(o *review.Outcome) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("endpoint", o.Endpoint),
		slog.String("decision", string(o.Decision)),
	}
	attrs = appendFields(attrs, []field{
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
	})
	if o.DryRun {
		attrs = append(attrs, slog.Bool("dryRun", true))
	}
	// Other audit annotations are written by policies and may repeat an object.
	for _, key := range []string{sidecar.AuditKey, sidecar.AuditKeyAgain, webhooks.MutatedByKey, webhooks.MutationIgnoredKey, policy.DeniedByKey, policy.ExceptedByKey, policy.BaselinedByKey} {
		if value := o.Audit[key]; value != "" {
			attrs = append(attrs, slog.String(key, truncate.Bytes(value, maxDetail)))
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

// client returns the address of a client without a certificate. Others are API servers.
func client(o *review.Outcome) string {
	switch {
	case o.Client == nil || !o.Client.Address.IsValid():
		return ""
	case o.Client.Address.IsSingleIP():
		return o.Client.Address.Addr().String()
	default:
		return o.Client.Address.String()
	}
}

const (
	// maxValue bounds what a line repeats of a request, in bytes. No name in Kubernetes
	// has more than 253.
	maxValue = 256
	// maxDetail bounds messages of this program, of which a stack is the longest.
	maxDetail = 4 << 10
)

// field is a key of a log line and its value.
type field struct{ key, value string }

// appendFields appends the fields that are not empty, with bounded values.
func appendFields(attrs []slog.Attr, fields []field) []slog.Attr {
	for _, f := range fields {
		limit := maxValue
		if f.key == "detail" {
			limit = maxDetail
		}
		if f.value != "" {
			attrs = append(attrs, slog.String(f.key, truncate.Bytes(f.value, limit)))
		}
	}
	return attrs
}

// ConfigLoaded notes that a configuration is active from now on. It is complete unless
// policies and exceptions in it do not compile.
func (t *Telemetry) ConfigLoaded(digest string, at time.Time, complete bool) {
	t.loaded.Reset()
	t.loaded.WithLabelValues(digest).Set(1)
	t.loadedAt.Set(float64(at.Unix()))
	if !complete {
		t.ConfigFailed()
		return
	}
	t.reloads.WithLabelValues("ok").Inc()
	t.successful.Set(1)
}

// ConfigEmptiedFiles notes the number of files of the active configuration that have lost
// all their documents.
func (t *Telemetry) ConfigEmptiedFiles(n int) { t.emptied.Set(float64(n)) }

// ConfigFailed notes that a configuration was invalid.
func (t *Telemetry) ConfigFailed() {
	t.reloads.WithLabelValues("error").Inc()
	t.successful.Set(0)
}
