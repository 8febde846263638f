package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CustomResources sets the number of custom resources, by kind and by which version is
// active: current, previous or unused. The series begin with the first call.
func (t *Telemetry) CustomResources(counts map[string]map[string]int) {
	if t.resources == nil {
		t.resources = prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gatehouse_custom_resources",
			Help: "Custom resources by kind and by which version of them is in use: current, previous (the last one without errors) or unused.",
		}, []string{"kind", "state"})
		t.Registry.MustRegister(t.resources)
	}
	for kind, states := range counts {
		for state, n := range states {
			t.resources.WithLabelValues(kind, state).Set(float64(n))
		}
	}
}
