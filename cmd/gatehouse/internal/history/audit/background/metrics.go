package background

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
)

// runResult is what became of an audit.
type runResult string

const (
	published runResult = "published"
	// incomplete is an audit that was dropped because the API server could not be read to the end.
	incomplete runResult = "incomplete"
	failed     runResult = "failed"
	// stopped is one that ended with the election of this replica.
	stopped runResult = "stopped"
)

// metrics are those of audits. The gauges of the last audit exist only in the replica that audits:
// the numbers of a replica that did so before would be old.
type metrics struct {
	interval prometheus.Gauge
	runs     *prometheus.CounterVec
	writes   *prometheus.CounterVec

	violations                               *prometheus.GaugeVec
	objects, last, duration, skipped, unread prometheus.Gauge

	mu               sync.Mutex
	leading, audited bool
}

func newMetrics(every time.Duration) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		interval: gauge("gatehouse_audit_interval_seconds", "Time between two audits, which --audit-every sets."),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_audit_runs_total", Help: "Audits by outcome (published, incomplete, failed, stopped).",
		}, []string{"outcome"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_audit_report_writes_total", Help: "Writes of reports by outcome (written, removed, failed).",
		}, []string{"outcome"}),
		violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gatehouse_audit_violations", Help: "Results of the last audit by policy and status (fail, warn, error, change, skip).",
		}, []string{"kind", "policy", "status"}),
		objects:  gauge("gatehouse_audit_objects", "Objects that the last audit evaluated."),
		last:     gauge("gatehouse_audit_last_success_timestamp_seconds", "Time when the last audit ended whose results were published, as a Unix timestamp."),
		duration: gauge("gatehouse_audit_duration_seconds", "Duration of the last audit, pauses included."),
		skipped:  gauge("gatehouse_audit_skipped_rules", "Rules that the last audit did not evaluate, because they depend on the request."),
		unread:   gauge("gatehouse_audit_unread_resources", "Resources of which the last audit did not read all objects."),
	}
	m.interval.Set(every.Seconds())
	// A rate needs the zero that it begins with.
	for _, r := range []runResult{published, incomplete, failed, stopped} {
		m.runs.WithLabelValues(string(r))
	}
	for _, outcome := range []string{"written", "removed", "failed"} {
		m.writes.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) ran(r runResult) { m.runs.WithLabelValues(string(r)).Inc() }

func (m *metrics) lead()   { m.setLeading(true) }
func (m *metrics) resign() { m.setLeading(false) }

func (m *metrics) setLeading(leading bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading, m.audited = leading, false
}

// result is what metrics say about an audit.
type result struct {
	policies []openreports.Policy
	counts   map[openreports.Policy]openreports.Counts
	outcome  *audit.Outcome
	objects  int64
	took     time.Duration
	at       time.Time
	changes  openreports.Changes
}

// publish sets the metrics of an audit. Wrote reports whether all reports were written, or the cluster has none.
func (m *metrics) publish(r result, wrote bool) {
	m.ran(published)
	m.writes.WithLabelValues("written").Add(float64(r.changes.Written))
	m.writes.WithLabelValues("removed").Add(float64(r.changes.Removed))
	if !wrote {
		m.writes.WithLabelValues("failed").Inc()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations.Reset()
	set := func(of openreports.Policy, n openreports.Counts) {
		for status, count := range map[audit.Status]int64{audit.Fail: n.Fail, audit.Warn: n.Warn, audit.Error: n.Error, audit.Change: n.Change, audit.Skip: n.Skip} {
			m.violations.WithLabelValues(of.Kind, of.Name, string(status)).Set(float64(count))
		}
	}
	for _, of := range r.policies {
		set(of, r.counts[of])
	}
	if n, found := r.counts[openreports.Policy{}]; found {
		set(openreports.Policy{}, n) // errors that no policy causes
	}
	m.objects.Set(float64(r.objects))
	m.last.Set(float64(r.at.Unix()))
	m.duration.Set(r.took.Seconds())
	m.skipped.Set(float64(len(r.outcome.Skipped)))
	m.unread.Set(float64(len(openreports.IncompleteOf(r.outcome))))
	m.audited = true
}

// ofAudit returns the collectors of the last audit.
func (m *metrics) ofAudit() []prometheus.Collector {
	return []prometheus.Collector{m.violations, m.objects, m.last, m.duration, m.skipped, m.unread}
}

// Describe implements prometheus.Collector.
func (c *Controller) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range append(c.metrics.ofAudit(), c.metrics.interval, c.metrics.runs, c.metrics.writes) {
		one.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Controller) Collect(ch chan<- prometheus.Metric) {
	m := c.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range []prometheus.Collector{m.interval, m.runs, m.writes} {
		one.Collect(ch)
	}
	if m.leading && m.audited {
		for _, one := range m.ofAudit() {
			one.Collect(ch)
		}
	}
}
