package telemetry

import "github.com/prometheus/client_golang/prometheus/promauto"

// CustomResources sets the number of custom resources, by kind and by which version is
// active: current, previous or unused. The series begin with the first call.
func (t *Telemetry) CustomResources(counts map[string]map[string]int) {
	if t.resources == nil {
		t.resources = factory{promauto.With(t.Registry)}.gauges("gatehouse_custom_resources",
			"Custom resources by kind and active version: current, previous (the last one without errors) or unused (none).", "kind", "state")
	}
	for kind, states := range counts {
		for state, n := range states {
			t.resources.WithLabelValues(kind, state).Set(float64(n))
		}
	}
}
