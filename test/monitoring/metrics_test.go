package monitoring

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/reference"
)

// series are the labels of metrics, by name.
type series map[string]map[string]bool

func (s series) add(name string, labels ...string) {
	if s[name] == nil {
		s[name] = map[string]bool{}
	}
	for _, label := range labels {
		s[name][label] = true
	}
}

// others are metrics of what else runs in a cluster, as far as the files may use them, with their labels: of Prometheus itself, of
// kube-state-metrics and of the kubelet's cAdvisor. None is here to ask.
func others() series {
	s := series{}
	s.add("up")
	for _, name := range []string{"kube_deployment_status_replicas_available", "kube_deployment_status_replicas_unavailable"} {
		s.add(name, "namespace", "deployment")
	}
	for _, name := range []string{"container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"} {
		s.add(name, "namespace", "pod", "container")
	}
	return s
}

var (
	metricType = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	metricLine = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? [-+0-9.eEINFna]+`)
	metricPair = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
)

// exposed are the metrics that a program answers with, in Prometheus' text format.
func exposed(text string) series {
	s := series{}
	for _, m := range metricType.FindAllStringSubmatch(text, -1) {
		if m[2] != "histogram" && m[2] != "summary" {
			s.add(m[1])
		}
	}
	for _, m := range metricLine.FindAllStringSubmatch(text, -1) {
		s.add(m[1])
		for _, pair := range metricPair.FindAllStringSubmatch(m[2], -1) {
			s.add(m[1], pair[1])
		}
	}
	return s
}

// declared are the metrics in the program's source: a vector has no series before something happens.
func declared(t *testing.T) series {
	t.Helper()
	all, err := reference.Metrics(root+"/cmd", root+"/certs")
	must(t, err)
	s := series{}
	for _, m := range all {
		if m.Type != "histogram" {
			s.add(m.Name, m.Labels...)
			continue
		}
		s.add(m.Name+"_bucket", append(m.Labels, "le")...)
		s.add(m.Name+"_sum", m.Labels...)
		s.add(m.Name+"_count", m.Labels...)
	}
	return s
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
