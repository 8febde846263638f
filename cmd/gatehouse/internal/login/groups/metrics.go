package groups

import "github.com/prometheus/client_golang/prometheus"

// metrics show how well group sources answer. Labels are of the configuration.
type metrics struct {
	*prometheus.Registry

	answers          *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	open, inProgress *prometheus.GaugeVec
}

func newMetrics(c *cache) *metrics {
	labels := []string{"issuer", "source"}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		Registry: prometheus.NewRegistry(),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_group_answers_total",
			Help: "Groups of users of group sources, by where they came from: cache, source, stale (cached, because the source does not answer), unknown.",
		}, append(labels, "from")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gatehouse_group_lookup_duration_seconds", Help: "Time of the look-ups of a group source, by result (answered, unreachable, invalid).",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5},
		}, append(labels, "result")),
		open:       gauges("gatehouse_group_source_open", "1 while a group source is not asked because it failed again and again."),
		inProgress: gauges("gatehouse_group_lookups_in_progress", "Look-ups of a group source that are in progress, or wait for others."),
	}
	m.MustRegister(
		m.answers, m.duration, m.open, m.inProgress,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gatehouse_group_cache_entries", Help: "Cached answers of all group sources."}, func() float64 {
			entries, _ := c.size()
			return float64(entries)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gatehouse_group_cache_bytes", Help: "Memory of the cached answers of all group sources."}, func() float64 {
			_, bytes := c.size()
			return float64(bytes)
		}),
	)
	return m
}

// counters are those of one source, made at once so that a hot path need not find them.
type counters struct {
	cache, source, stale, unknown prometheus.Counter
	open, inProgress              prometheus.Gauge
	duration                      map[result]prometheus.Observer
}

func (m *metrics) of(issuer, name string) counters {
	c := counters{
		cache: m.answers.WithLabelValues(issuer, name, "cache"), source: m.answers.WithLabelValues(issuer, name, "source"),
		stale: m.answers.WithLabelValues(issuer, name, "stale"), unknown: m.answers.WithLabelValues(issuer, name, "unknown"),
		open: m.open.WithLabelValues(issuer, name), inProgress: m.inProgress.WithLabelValues(issuer, name),
		duration: map[result]prometheus.Observer{},
	}
	c.open.Set(0) // a source of the same name may have been replaced
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
	m.open.Delete(labels)
	m.inProgress.Delete(labels)
}
