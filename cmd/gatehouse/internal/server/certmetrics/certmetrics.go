// Package certmetrics has the metrics of certificates, CAs and TLS handshakes.
package certmetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
)

// Metrics are the metrics of certificates, and of handshakes that fail. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	notAfter   *prometheus.GaugeVec
	refused    prometheus.Gauge
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
		handshakes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_tls_handshake_errors_total",
			Help: "TLS handshakes that failed by reason: untrusted (the client does not trust the serving certificate), client-certificate (it is expired or not from a CA of --client-ca), protocol (no TLS, or an unsupported version), abandoned (the client disconnected, as load balancers do) or other.",
		}, []string{"reason"}),
	}
	// rates need the initial zero
	for _, reason := range handshakes {
		m.handshakes.WithLabelValues(string(reason))
	}
	return m
}

// Certificate counts an event of a certificate, a CA or a bundle. It can be Notify of
// sources and writers.
func (m *Metrics) Certificate(e certs.Event) {
	if !e.NotAfter.IsZero() {
		m.notAfter.WithLabelValues(e.Subject).Set(float64(e.NotAfter.Unix()))
	}
	if e.Subject == certs.ServingCertificate {
		m.refused.Set(oneIf(e.Err != nil && !errors.Is(e.Err, certs.ErrWaiting)))
	}
}

// Writer registers the metrics of a writer of registrations. It is called once at most.
func (m *Metrics) Writer(w *registration.Writer) {
	counter := func(name, help string, count func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(count()) })
	}
	m.registry.MustRegister(
		counter("gatehouse_registration_overwritten_total", "Changes of other clients to webhook configurations that this replica undid.", w.Overwritten),
		counter("gatehouse_registration_write_failures_total", "Failed attempts to write webhook configurations.", w.Failed),
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

// CA registers the metrics of an own CA: its state, nil if there is none, and whether it could be read and written the last
// time. It is called once at most.
func (m *Metrics) CA(state func() *certs.State, ok func() bool) {
	phaseDesc := prometheus.NewDesc("gatehouse_ca_rotation_phase",
		"1 for the phase of the CA rotation, 0 for the other phases.", []string{"phase"}, nil)
	storeDesc := prometheus.NewDesc("gatehouse_ca_store_last_successful",
		"1 if the CA could be read, and written if necessary, the last time, 0 otherwise.", nil, nil)
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
		to <- prometheus.MustNewConstMetric(storeDesc, prometheus.GaugeValue, oneIf(ok()))
		s := state()
		if s == nil {
			return
		}
		for _, phase := range certs.Phases() {
			to <- prometheus.MustNewConstMetric(phaseDesc, prometheus.GaugeValue, oneIf(phase == s.Phase()), string(phase))
		}
	}))
}

// Registrations registers a metric of which webhook configurations trust the serving certificate.
// The function is safe for concurrent use. Registrations is called once at most.
func (m *Metrics) Registrations(trust func() []registration.Verdict) {
	desc := prometheus.NewDesc("gatehouse_ca_bundle_trusted",
		"1 if the CA bundle of the webhook configuration verifies the serving certificate, 0 otherwise.", []string{"kind", "name"}, nil)
	m.registry.MustRegister(collector(func(to chan<- prometheus.Metric) {
		for _, b := range trust() {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, oneIf(b.Err == nil), string(b.Kind), b.Name)
		}
	}))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
