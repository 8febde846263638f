package issuers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics show which keys there are and how well they are kept up to date. The
// label is the issuer's URL in the configuration.
type metrics struct {
	keys, timestamp *prometheus.Desc
	fetches         *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		keys: prometheus.NewDesc("gatehouse_issuer_keys",
			"Keys of an issuer that are in use. 0 while no token of the issuer can be checked.", []string{"issuer"}, nil),
		timestamp: prometheus.NewDesc("gatehouse_issuer_keys_fetched_timestamp_seconds",
			"When the keys that are known of an issuer were fetched. Absent before, and for keys that come from a file.", []string{"issuer"}, nil),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_issuer_key_fetches_total",
			Help: "Fetches of the keys of an issuer, by result (ok, unreachable, invalid). All but the first leave the keys as they were.",
		}, []string{"issuer", "result"}),
	}
}

// counters are those of one issuer. They are made at once, so that each is there
// before it counts, and so that an issuer that is gone does not come back by
// counting.
type counters map[result]prometheus.Counter

func (m *metrics) of(url string) counters {
	c := counters{}
	for _, r := range []result{fine, unreachable, invalid} {
		c[r] = m.fetches.WithLabelValues(url, string(r))
	}
	return c
}

// drop forgets an issuer.
func (m *metrics) drop(url string) {
	m.fetches.DeletePartialMatch(prometheus.Labels{"issuer": url})
}

func (m *metrics) describe(ch chan<- *prometheus.Desc) {
	ch <- m.keys
	ch <- m.timestamp
	m.fetches.Describe(ch)
}

// collect takes the best of those that have the same URL: while a configuration
// replaces another, there may be two.
func (m *metrics) collect(ch chan<- prometheus.Metric, all []*issuer) {
	now := time.Now()
	keys, at := map[string]int{}, map[string]time.Time{}
	for _, i := range all {
		n, s := 0, i.state.Load()
		if i.isUsable(s, now) {
			n = len(s.set.All())
		}
		keys[i.url] = max(keys[i.url], n)
		if s.fetched.After(at[i.url]) {
			at[i.url] = s.fetched
		}
	}
	for url, n := range keys {
		ch <- prometheus.MustNewConstMetric(m.keys, prometheus.GaugeValue, float64(n), url)
	}
	for url, t := range at {
		ch <- prometheus.MustNewConstMetric(m.timestamp, prometheus.GaugeValue, float64(t.UnixMilli())/1000, url)
	}
	m.fetches.Collect(ch)
}
