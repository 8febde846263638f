package cluster

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

// metrics show how much is kept in memory and how well it is kept up to date.
// Labels come from the configuration and from this program.
type metrics struct {
	objects, synced *prometheus.Desc
	errors, reviews *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		objects: prometheus.NewDesc("gatehouse_cluster_objects",
			"Objects of the cluster in memory, by kind.", []string{"kind"}, nil),
		synced: prometheus.NewDesc("gatehouse_cluster_synced",
			"1 if the kind has been read from the cluster, 0 while reviews that look it up cannot be decided.", []string{"kind"}, nil),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_cluster_watch_errors_total",
			Help: "Errors while reading from the cluster, by kind and reason (forbidden, unserved, unreachable).",
		}, []string{"kind", "reason"}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_cluster_access_checks_total",
			Help: "Checks of the authorizer in policies, by result (allowed, denied, error), repeated ones included.",
		}, []string{"result"}),
	}
}

// counter counts the errors of a kind.
func (m *metrics) counter(kind schema.GroupVersionKind) func(apierr.Class) {
	label := kindLabel(kind)
	return func(class apierr.Class) { m.errors.WithLabelValues(label, string(class)).Inc() }
}

func (m *metrics) describe(ch chan<- *prometheus.Desc) {
	ch <- m.objects
	ch <- m.synced
	m.errors.Describe(ch)
	m.reviews.Describe(ch)
}

func (m *metrics) collect(ch chan<- prometheus.Metric, all []*follower) {
	objects, synced := map[string]float64{}, map[string]float64{}
	for _, f := range all {
		label := kindLabel(f.Kind)
		all, read := f.list()
		if _, seen := synced[label]; !seen {
			synced[label] = 1
		}
		if !read {
			synced[label] = 0
		}
		objects[label] += float64(len(all))
	}
	for label, value := range synced {
		ch <- prometheus.MustNewConstMetric(m.objects, prometheus.GaugeValue, objects[label], label)
		ch <- prometheus.MustNewConstMetric(m.synced, prometheus.GaugeValue, value, label)
	}
	m.errors.Collect(ch)
	m.reviews.Collect(ch)
}
