// Package certmetrics has the metrics of certificates, CAs and TLS handshakes.
package certmetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/source"
)

// Metrics are the metrics of certificates, and of handshakes that fail. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	notAfter   *prometheus.GaugeVec
	refused    prometheus.Gauge
	recovered  prometheus.Counter
	handshakes *prometheus.CounterVec
}

// New registers the metrics. Handshakes are the reasons why handshakes can fail.
func New[Reason ~string](registry *prometheus.Registry, handshakes []Reason) *Metrics {
	f := promauto.With(registry)
	m := &Metrics{
		registry: registry,
		notAfter: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gatehouse_certificate_not_after_timestamp_seconds",
			Help: "Expiry of the active certificates as a Unix timestamp, by subject (serving certificate, self-signed CA, client CA).",
		}, []string{"subject"}),
		refused: f.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_certificate_renewal_refused",
			Help: "1 if the newest serving certificate is rejected, or cannot be read or issued; 0 otherwise, also while it waits to be trusted.",
		}),
		recovered: f.NewCounter(prometheus.CounterOpts{
			Name: "gatehouse_ca_recovered_total",
			Help: "CA states that were deleted, damaged or overwritten, and that this replica restored.",
		}),
		handshakes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_tls_handshake_errors_total",
			Help: "TLS handshakes that failed by reason (untrusted, client-certificate, protocol, abandoned, other).",
		}, []string{"reason"}),
	}
	// rates need the initial zero
	for _, reason := range handshakes {
		m.handshakes.WithLabelValues(string(reason))
	}
	return m
}

// Certificate counts an event of a certificate, a CA or a bundle. It can be Notify of
// sources and publishers.
func (m *Metrics) Certificate(e certs.Event) {
	// Published bundles have no expiry here: one of several replicas publishes, and would
	// never update the metric.
	if !e.NotAfter.IsZero() && e.Subject != cabundle.Subject {
		m.notAfter.WithLabelValues(e.Subject).Set(float64(e.NotAfter.Unix()))
	}
	if e.Subject == certs.ServingCertificate {
		m.refused.Set(oneIf(e.Err != nil && !errors.Is(e.Err, source.ErrWaiting)))
	}
	if e.Reason == certs.ReasonRecovered {
		m.recovered.Inc()
	}
}

// CAStore registers a metric of whether the last reconciliation of the CAs succeeded. The
// function is safe for concurrent use. CAStore is called once at most.
func (m *Metrics) CAStore(ok func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_ca_store_last_successful",
		Help: "1 if the last reconciliation of the CA state succeeded, 0 otherwise.",
	}, func() float64 { return oneIf(ok()) }))
}

// Publisher registers the metrics of a publisher of CA bundles. The function is safe for
// concurrent use. Publisher is called once at most.
func (m *Metrics) Publisher(stats func() cabundle.Stats) {
	counter := func(name, help string, count func(cabundle.Stats) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(count(stats())) })
	}
	m.registry.MustRegister(
		counter("gatehouse_ca_bundle_published_total", "CA bundles written into webhook configurations.",
			func(s cabundle.Stats) int64 { return s.Published }),
		counter("gatehouse_ca_bundle_overwritten_total", "CA bundles in webhook configurations that another client changed, and that Gatehouse restored.",
			func(s cabundle.Stats) int64 { return s.Overwritten }),
		counter("gatehouse_ca_bundle_publish_failures_total", "Failed attempts to write CA bundles into webhook configurations.",
			func(s cabundle.Stats) int64 { return s.Failed }),
	)
}

// HandshakeFailed counts a TLS handshake that failed.
func (m *Metrics) HandshakeFailed(reason string) {
	m.handshakes.WithLabelValues(reason).Inc()
}

// collector is a Collector whose time series come and go.
type collector func(to chan<- prometheus.Metric)

// Describe implements prometheus.Collector. Without a description the series are not
// checked when the collector is registered.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// Rotation registers the metrics of the state of the CAs. The function returns nil if there
// is no state, and is safe for concurrent use. Rotation is called once at most.
func (m *Metrics) Rotation(state func() *rotation.State) {
	phaseDesc := prometheus.NewDesc("gatehouse_ca_rotation_phase",
		"1 for the phase of the CA rotation, 0 for the other phases.", []string{"phase"}, nil)
	generationDesc := prometheus.NewDesc("gatehouse_ca_generation",
		"Generation of the CA state, which is the same for all replicas that agree.", nil, nil)
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
		s := state()
		if s == nil {
			return
		}
		for _, phase := range []rotation.Phase{rotation.Stable, rotation.Publish, rotation.Hold, rotation.Activate} {
			to <- prometheus.MustNewConstMetric(phaseDesc, prometheus.GaugeValue, oneIf(phase == s.Phase), string(phase))
		}
		to <- prometheus.MustNewConstMetric(generationDesc, prometheus.GaugeValue, float64(s.Generation))
	}))
}

// Bundles registers a metric of which webhook configurations trust the serving certificate.
// The function is safe for concurrent use. Bundles is called once at most.
func (m *Metrics) Bundles(trust func() []cabundle.Verdict) {
	desc := prometheus.NewDesc("gatehouse_ca_bundle_trusted",
		"1 if the CA bundle of the webhook configuration verifies the serving certificate, 0 otherwise.", []string{"kind", "name"}, nil)
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
		// A duplicate would fail the collection of all metrics.
		type registration struct{ kind, name string }
		trusted := make(map[registration]bool)
		for _, b := range trust() {
			r := registration{b.Kind, b.Name}
			before, known := trusted[r]
			trusted[r] = b.Trusted && (before || !known)
		}
		for r, ok := range trusted {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, oneIf(ok), r.kind, r.name)
		}
	}))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
