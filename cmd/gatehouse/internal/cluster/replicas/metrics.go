package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxMetrics bounds the metrics of a replica, in bytes.
const maxMetrics = 16 << 20

// metricsPath is where the listener has metrics.
const metricsPath = "/metrics"

// Metrics are what a replica has measured at one time. They are immutable.
type Metrics struct{ families map[string]*dto.MetricFamily }

// Series is one value of a metric.
type Series struct {
	Labels map[string]string
	Value  float64
}

// Metrics returns the metrics of the replica.
func (r *Replica) Metrics(ctx context.Context) (*Metrics, error) {
	body, done, err := r.get(ctx, metricsPath, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	return ReadMetrics(body)
}

// ReadMetrics reads the text format of Prometheus, up to 16 MiB of it.
func ReadMetrics(in io.Reader) (*Metrics, error) {
	limited := &io.LimitedReader{R: in, N: maxMetrics + 1}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(limited)
	if limited.N <= 0 {
		return nil, fmt.Errorf("the metrics are larger than %d MiB", maxMetrics>>20)
	}
	if _, invalid := errors.AsType[expfmt.ParseError](err); invalid {
		return nil, errors.New("the answer has no metrics in the format of Prometheus")
	}
	if err != nil {
		return nil, fmt.Errorf("the metrics are incomplete: %w", err)
	}
	return &Metrics{families}, nil
}

// Series returns the series of a counter or gauge with these values of labels, in pairs of name and value.
func (m *Metrics) Series(name string, labels ...string) []Series {
	family := m.families[name]
	if family == nil {
		return nil
	}
	var out []Series
	for _, metric := range family.GetMetric() {
		one := Series{Labels: map[string]string{}}
		switch {
		case metric.GetGauge() != nil:
			one.Value = metric.GetGauge().GetValue()
		case metric.GetCounter() != nil:
			one.Value = metric.GetCounter().GetValue()
		case metric.GetUntyped() != nil:
			one.Value = metric.GetUntyped().GetValue()
		default:
			continue
		}
		for _, label := range metric.GetLabel() {
			one.Labels[label.GetName()] = label.GetValue()
		}
		if one.has(labels) {
			out = append(out, one)
		}
	}
	return out
}

func (s *Series) has(labels []string) bool {
	for pair := range slices.Chunk(labels, 2) {
		if s.Labels[pair[0]] != pair[1] {
			return false
		}
	}
	return true
}

// Value returns the value of the first such series, and false if there is none.
func (m *Metrics) Value(name string, labels ...string) (float64, bool) {
	series := m.Series(name, labels...)
	if len(series) == 0 {
		return 0, false
	}
	return series[0].Value, true
}

// SumBy returns the sums of such series by the value of a label.
func (m *Metrics) SumBy(name, label string, labels ...string) map[string]float64 {
	sums := map[string]float64{}
	for _, one := range m.Series(name, labels...) {
		sums[one.Labels[label]] += one.Value
	}
	return sums
}
