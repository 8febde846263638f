package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
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

// attentionItem is a problem ("bad"), or a notice of one that will or may come.
type attentionItem struct{ Class, About, Text string }

// maxAttention bounds the items on the page: what fails comes first.
const maxAttention = 100

// showAttention shows custom resources that are not active, degraded, or expire soon.
func (c *console) showAttention(r *http.Request) (partData, error) {
	objects, errs := c.statuses(r.Context())
	if err := errors.Join(errs...); err != nil && len(objects) == 0 {
		return partData{}, err // nothing is known
	}
	var all []attentionItem
	for _, o := range objects {
		if class, problem := worst(o.Status.Conditions); problem != nil {
			all = append(all, attentionItem{class, o.title(), problem.Type + " " + string(problem.Status) + ": " + cmp.Or(problem.Message, problem.Reason)})
		}
		if ends := newExpiry(o.Spec.ExpiresAt, c.now()); ends.Class == "notice" {
			all = append(all, attentionItem{"notice", o.title(), ends.Text})
		}
	}
	slices.SortFunc(all, func(a, b attentionItem) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.About, b.About), strings.Compare(a.Text, b.Text))
	})
	notes := explainAll(errs)
	if more := len(all) - maxAttention; more > 0 {
		all, notes = all[:maxAttention], append(notes, fmt.Sprintf("%d more are on the page Policies and profiles", more))
	}
	return partData{Data: all, Notes: notes}, nil
}

// replicaRow is a replica on the page.
type replicaRow struct {
	Name, State, Version string
	Ready                bool
	// Unknown reports whether the replica could not be asked for what follows.
	Unknown bool
	// Digest is the beginning of that of the active configuration, and Differs reports whether most replicas have another one.
	Digest  string
	Differs bool
	// Failed reports whether a newer configuration is invalid.
	Failed bool
	// Decisions are the numbers since the replica started, by outcome. Recording says whether it records, "" if that is off.
	Decisions, Recording string
}

func (c *console) showReplicas(r *http.Request) (partData, error) {
	s, err := c.sample(r.Context())
	if err != nil {
		return partData{}, err
	}
	return partData{Data: replicaRows(s), Notes: explainAll(s.errs)}, nil
}

// label returns the value of a label of a metric that has one series.
func label(m *replicas.Metrics, metric, name string) string {
	if series := m.Series(metric); len(series) > 0 {
		return series[0].Labels[name]
	}
	return ""
}

// replicaRows returns a row for each pod.
func replicaRows(s *sample) []replicaRow {
	const shortDigest = 12
	digests := map[string]int{}
	for _, m := range s.metrics {
		digests[label(m, "gatehouse_config_info", "digest")]++
	}
	usual := slices.MaxFunc(append(slices.Sorted(maps.Keys(digests)), ""), func(a, b string) int { return cmp.Compare(digests[a], digests[b]) })
	rows := make([]replicaRow, len(s.pods))
	for i := range s.pods {
		pod, row := &s.pods[i], &rows[i]
		row.Name, row.State, row.Ready = pod.Name, "ready", isReady(pod)
		if !row.Ready {
			row.State = "not ready: " + cmp.Or(string(pod.Status.Phase), "no status")
		}
		m := s.metrics[pod.Name]
		if row.Unknown = m == nil; row.Unknown {
			continue
		}
		digest := label(m, "gatehouse_config_info", "digest")
		row.Digest, row.Differs = digest[:min(shortDigest, len(digest))], digest != usual
		row.Version = label(m, "gatehouse_build_info", "version")
		loaded, ok := m.Value("gatehouse_config_last_load_successful")
		row.Failed = ok && loaded == 0
		row.Decisions, row.Recording = sumsText(m.SumBy("gatehouse_reviews_total", "decision")), recordingText(m)
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
		since := time.Unix(int64(at), 0)
		text += "; fails since " + cli.FormatTime(&since)
	}
	return text
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
