package groups

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The origins of answers, for metrics.
const (
	fromCache  = "cache"
	fromSource = "source"
	fromStale  = "stale"
	unknown    = "unknown"
)

// metrics show how well group sources answer. Labels are of the configuration.
type metrics struct {
	answers          *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	open, inProgress *prometheus.Desc
	entries, bytes   *prometheus.Desc
}

func newMetrics() *metrics {
	labels := []string{"issuer", "source"}
	return &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_group_answers_total",
			Help: "Groups of users of group sources, by where they came from: cache, source, stale (cached, because the source does not answer), unknown.",
		}, append(labels, "from")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gatehouse_group_lookup_duration_seconds", Help: "Time of the look-ups of a group source, by result (answered, unreachable, invalid).",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5},
		}, append(labels, "result")),
		open:       prometheus.NewDesc("gatehouse_group_source_open", "1 while a group source is not asked because it failed again and again.", labels, nil),
		inProgress: prometheus.NewDesc("gatehouse_group_lookups_in_progress", "Look-ups of a group source that are in progress, or wait for others.", labels, nil),
		entries:    prometheus.NewDesc("gatehouse_group_cache_entries", "Cached answers of all group sources.", nil, nil),
		bytes:      prometheus.NewDesc("gatehouse_group_cache_bytes", "Memory of the cached answers of all group sources.", nil, nil),
	}
}

// counters are those of one source, made at once so that a hot path need not find them.
type counters struct {
	cache, source, stale, unknown prometheus.Counter
	duration                      map[result]prometheus.Observer
}

func (m *metrics) of(issuer, name string) counters {
	c := counters{
		cache: m.answers.WithLabelValues(issuer, name, fromCache), source: m.answers.WithLabelValues(issuer, name, fromSource),
		stale: m.answers.WithLabelValues(issuer, name, fromStale), unknown: m.answers.WithLabelValues(issuer, name, unknown),
		duration: map[result]prometheus.Observer{},
	}
	for _, r := range []result{answered, unreachable, invalid} {
		c.duration[r] = m.duration.WithLabelValues(issuer, name, string(r))
	}
	return c
}

// drop forgets a source.
func (m *metrics) drop(issuer, name string) {
	labels := prometheus.Labels{"issuer": issuer, "source": name}
	m.answers.DeletePartialMatch(labels)
	m.duration.DeletePartialMatch(labels)
}

func (m *metrics) describe(ch chan<- *prometheus.Desc) {
	m.answers.Describe(ch)
	m.duration.Describe(ch)
	for _, d := range []*prometheus.Desc{m.open, m.inProgress, m.entries, m.bytes} {
		ch <- d
	}
}

// collect takes the later of two sources of the same name: while a configuration replaces
// another, there may be both.
func (m *metrics) collect(ch chan<- prometheus.Metric, known []*source, c *cache) {
	m.answers.Collect(ch)
	m.duration.Collect(ch)
	type labels struct{ issuer, name string }
	latest := map[labels]*source{}
	for _, one := range known {
		latest[labels{one.issuer, one.name}] = one
	}
	for at, one := range latest {
		open := 0.0
		if one.breaker.isOpen(time.Now()) {
			open = 1
		}
		ch <- prometheus.MustNewConstMetric(m.open, prometheus.GaugeValue, open, at.issuer, at.name)
		ch <- prometheus.MustNewConstMetric(m.inProgress, prometheus.GaugeValue, float64(one.inProgress()), at.issuer, at.name)
	}
	entries, bytes := c.size()
	ch <- prometheus.MustNewConstMetric(m.entries, prometheus.GaugeValue, float64(entries))
	ch <- prometheus.MustNewConstMetric(m.bytes, prometheus.GaugeValue, float64(bytes))
}
