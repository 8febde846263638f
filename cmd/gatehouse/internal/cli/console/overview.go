package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
)

// addOverview adds the page.
func (c *console) addOverview() {
	var parts []part
	if !c.isOffline() {
		parts = append(parts,
			part{"attention", "Needs attention", "60s", "attention", c.showAttention},
			part{"replicas", "Replicas", "30s", "replicas", c.showReplicas},
			c.commandPart("certificates", "Certificates", slices.Concat([]string{"certs", "status"}, c.ClusterFlags.Arguments())...),
		)
	}
	if c.config != "" {
		parts = append(parts, c.commandPart("configuration", "Configuration", "lint", "--config", c.config))
	}
	c.addParts("GET /{$}", "/overview", "Overview", parts)
}

// replicaRow is a replica on the page.
type replicaRow struct {
	Name, State, Node, Version string
	Ready                      bool
	Restarts                   int32
	Started                    time.Time
	// Digest is that of the active configuration, Since when it was read, and Differs reports whether most replicas have another one.
	Digest  string
	Since   time.Time
	Differs bool
	// Failed reports whether a newer configuration is invalid.
	Failed bool
	// Decisions are the numbers since the replica started, by outcome. Recording says whether it records, "" if that is off.
	Decisions, Recording string
}

func (c *console) showReplicas(r *http.Request) (partData, error) {
	s, notes, err := c.sample(r.Context())
	if err != nil {
		return partData{}, err
	}
	return partData{Data: replicaRows(s), Notes: notes}, nil
}

// replicaRows returns a row for each pod.
func replicaRows(s *sample) []replicaRow {
	digests := map[string]int{}
	for _, m := range s.metrics {
		for _, info := range m.Series("gatehouse_config_info") {
			digests[info.Labels["digest"]]++
		}
	}
	usual := slices.MaxFunc(append(slices.Sorted(maps.Keys(digests)), ""), func(a, b string) int { return cmp.Compare(digests[a], digests[b]) })
	rows := make([]replicaRow, len(s.pods))
	for i := range s.pods {
		pod := &s.pods[i]
		row := replicaRow{Name: pod.Name, State: podState(pod), Ready: isReady(pod), Node: pod.Spec.NodeName}
		for j := range pod.Status.ContainerStatuses {
			row.Restarts += pod.Status.ContainerStatuses[j].RestartCount
		}
		if pod.Status.StartTime != nil {
			row.Started = pod.Status.StartTime.Time
		}
		if m := s.metrics[pod.Name]; m != nil {
			if info := m.Series("gatehouse_config_info"); len(info) > 0 {
				row.Digest = info[0].Labels["digest"]
				row.Differs = row.Digest != usual
			}
			if info := m.Series("gatehouse_build_info"); len(info) > 0 {
				row.Version = info[0].Labels["version"]
			}
			if at, ok := m.Value("gatehouse_config_loaded_timestamp_seconds"); ok {
				row.Since = secondsTime(at)
			}
			loaded, ok := m.Value("gatehouse_config_last_load_successful")
			row.Failed = ok && loaded == 0
			row.Decisions, row.Recording = sumsText(m.SumBy("gatehouse_reviews_total", "decision")), recordingText(m)
		}
		rows[i] = row
	}
	return rows
}

// sumsText returns numbers by name for people.
func sumsText(sums map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, fmt.Sprintf("%s %.0f", name, sums[name]))
	}
	return strings.Join(parts, ", ")
}

// recordingText says whether a replica records, and what it could not record.
func recordingText(m *replicas.Metrics) string {
	if _, ok := m.Value("gatehouse_record_bytes"); !ok {
		return ""
	}
	text := sumsText(m.SumBy("gatehouse_record_reviews_total", "result"))
	if dropped := m.SumBy("gatehouse_record_dropped_total", "reason"); slices.Max(append(slices.Collect(maps.Values(dropped)), 0)) > 0 {
		text += "; dropped: " + sumsText(dropped)
	}
	if at, _ := m.Value("gatehouse_record_failing_since_timestamp_seconds"); at > 0 {
		since := secondsTime(at)
		text += "; fails since " + cli.FormatTime(&since)
	}
	return text
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podState returns why a pod is not ready, or that it is.
func podState(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "being deleted"
	case isReady(pod):
		return "ready"
	}
	for i := range pod.Status.ContainerStatuses {
		if waiting := pod.Status.ContainerStatuses[i].State.Waiting; waiting != nil && waiting.Reason != "" {
			return "not ready: " + waiting.Reason
		}
	}
	return "not ready: " + cmp.Or(string(pod.Status.Phase), "no status")
}

// shortDigest returns enough of a digest to distinguish configurations.
func shortDigest(digest string) string {
	const enough = 12
	return digest[:min(enough, len(digest))]
}

// secondsTime returns a Unix timestamp of a metric as a time.
func secondsTime(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)).UTC() }
