package status

import "github.com/prometheus/client_golang/prometheus"

// result is what became of a write of a status.
type result string

const (
	written result = "written"
	// conflict is an object that changed in between; it is reconciled again.
	conflict result = "conflict"
	// contested is a field that somebody else keeps.
	contested result = "contested"
	failed    result = "failed"
)

type metrics struct {
	leader prometheus.Gauge
	writes *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_status_leader",
			Help: "1 in the replica that writes the status of custom resources, else 0.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_status_writes_total",
			Help: "Writes of the status of custom resources by outcome (written, conflict, contested, failed).",
		}, []string{"outcome"}),
	}
	// A rate needs the zero that it begins with.
	for _, r := range []result{written, conflict, contested, failed} {
		m.writes.WithLabelValues(string(r))
	}
	return m
}

func (m *metrics) count(r result) { m.writes.WithLabelValues(string(r)).Inc() }

// Describe implements prometheus.Collector.
func (c *Controller) Describe(ch chan<- *prometheus.Desc) {
	c.metrics.leader.Describe(ch)
	c.metrics.writes.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Controller) Collect(ch chan<- prometheus.Metric) {
	c.metrics.leader.Collect(ch)
	c.metrics.writes.Collect(ch)
}
