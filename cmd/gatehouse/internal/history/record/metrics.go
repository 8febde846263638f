package record

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collector has the metrics of a Recorder.
type Collector struct {
	recorder                         *Recorder
	reviews, dropped, bytes, failing *prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns the metrics of a Recorder.
func NewCollector(r *Recorder) *Collector {
	return &Collector{
		recorder: r,
		reviews: prometheus.NewDesc("gatehouse_record_reviews_total",
			"Reviews by result: recorded, or skipped: by the rules of --record-config, because they hold a token, or because Gatehouse asks by them whether scopes are enforced.", []string{"result"}, nil),
		dropped: prometheus.NewDesc("gatehouse_record_dropped_total",
			"Reviews that were answered but not recorded, by reason: queue (they came too fast), disk (they could not be written) or size (they are too large).", []string{"reason"}, nil),
		bytes: prometheus.NewDesc("gatehouse_record_bytes", "Size of the recording in the directory, as of the last minute.", nil, nil),
		failing: prometheus.NewDesc("gatehouse_record_failing_since_timestamp_seconds",
			"Time since when nothing can be recorded, as a Unix timestamp, 0 if the recording works.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.reviews, c.dropped, c.bytes, c.failing} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	s := c.recorder.Stats()
	counter := func(desc *prometheus.Desc, n int64, label string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), label)
	}
	counter(c.reviews, s.Recorded, "recorded")
	counter(c.reviews, s.Skipped, "skipped")
	for reason, n := range s.Dropped {
		counter(c.dropped, n, reason)
	}
	to <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(s.Bytes))
	since := 0.0
	if s.Err != nil {
		since = float64(s.Since.Unix())
	}
	to <- prometheus.MustNewConstMetric(c.failing, prometheus.GaugeValue, since)
}
