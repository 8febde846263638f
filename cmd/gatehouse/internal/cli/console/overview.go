package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
)

// addOverview adds the page.
func (c *console) addOverview() {
	var parts []part
	if !c.isOffline() {
		parts = append(parts,
			part{"attention", "Needs attention", "60s", "attention", c.showAttention},
			part{"replicas", "Replicas", "30s", "replicas", c.showReplicas},
			part{"reviews", "Decisions a minute", "15s", "reviews", c.showReviews},
			part{"certificates", "Certificates", "", "certificates", c.showCertificates},
			part{"recording", "Recording", "30s", "recording", c.showRecording},
			part{"alerts", "Alerts that would fire", "60s", "alerts", c.showAlerts},
		)
	}
	if len(c.recordingPaths()) > 0 {
		parts = append(parts, part{"recordings", "Reviews that this console has", "10s", "recordings", c.showRecordings})
	}
	if c.config != "" {
		parts = append(parts, part{"configuration", "Configuration", "", "configuration", c.showConfiguration})
	}
	c.addParts("GET /{$}", "/overview", "Overview", parts)
}

// look returns a sample of the replicas, and notes what it lacks.
func (c *console) look(ctx context.Context) (*sample, []string, error) {
	c.observer.watch(c.ctx) //nolint:contextcheck // samples are taken after the request, too
	s, err := c.observer.sample(ctx, c.ctx)
	if err != nil {
		return nil, nil, err
	}
	notes := explainAll(s.errs)
	if len(s.pods) == 0 {
		notes = append(notes, fmt.Sprintf("no pod in namespace %s has the labels %s", replicas.Namespace, replicas.Selector))
	}
	return s, notes, nil
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
}

func (c *console) showReplicas(r *http.Request) (partData, error) {
	s, notes, err := c.look(r.Context())
	if err != nil {
		return partData{}, err
	}
	return partData{Data: replicaRows(s), Notes: notes}, nil
}

// replicaRows returns a row for each pod.
func replicaRows(s *sample) []replicaRow {
	digests := s.digests()
	usual := slices.MaxFunc(append(slices.Sorted(maps.Keys(digests)), ""), func(a, b string) int { return cmp.Compare(len(digests[a]), len(digests[b])) })
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
		}
		rows[i] = row
	}
	return rows
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

// reviewsData is what the part about decisions shows.
type reviewsData struct {
	Lines []line
	// Rates are the numbers, the newest first.
	Rates    []rate
	Outcomes []string
	// Since is when the first of them was counted.
	Since time.Time
}

// line is a small chart of a series of numbers.
type line struct {
	Name, Class string
	// Points are those of an SVG polyline in a box of lineWidth by lineHeight.
	Points string
	// Last is the newest number, Most the largest, and Total what was counted since the replicas started.
	Last, Most, Total float64
}

const (
	lineWidth, lineHeight = 240, 40
	// maxRates bounds the table of numbers.
	maxRates = 50
)

// newLine returns the chart of numbers at equal distances.
func newLine(name, class string, values []float64) line {
	l := line{Name: name, Class: class}
	if len(values) == 0 {
		return l
	}
	l.Last, l.Most = values[len(values)-1], slices.Max(values)
	points := make([]string, len(values))
	for i, v := range values {
		x := float64(lineWidth)
		if len(values) > 1 {
			x = float64(lineWidth*i) / float64(len(values)-1)
		}
		const margin = 2
		y := float64(lineHeight - margin)
		if l.Most > 0 {
			y -= v / l.Most * (lineHeight - 2*margin)
		}
		points[i] = fmt.Sprintf("%.1f,%.1f", x, y)
	}
	l.Points = strings.Join(points, " ")
	return l
}

// outcomes are the decisions that the metrics have, in the order of the page.
func outcomes() []string { return []string{"allowed", "denied", "unknown", "refused", "shed"} }

func (c *console) showReviews(r *http.Request) (partData, error) {
	s, notes, err := c.look(r.Context())
	if err != nil {
		return partData{}, err
	}
	rates := c.observer.rates()
	data := &reviewsData{}
	if len(rates) > 0 {
		data.Since = rates[0].At
	}
	for _, outcome := range outcomes() {
		values := make([]float64, len(rates))
		for i := range rates {
			values[i] = rates[i].By[outcome]
		}
		l := newLine(outcome, outcomeClass(outcome), values)
		for _, m := range s.metrics {
			l.Total += m.SumBy("gatehouse_reviews_total", "decision")[outcome]
		}
		data.Lines, data.Outcomes = append(data.Lines, l), append(data.Outcomes, outcome)
	}
	slices.Reverse(rates)
	data.Rates = rates[:min(maxRates, len(rates))]
	return partData{Data: data, Notes: notes}, nil
}

// recordingRow is what a replica says about its recording.
type recordingRow struct {
	Name                                   string
	Recorded, Skipped, Dropped             float64
	QueueDropped, DiskDropped, SizeDropped float64
	Bytes                                  int64
	Failing                                time.Time
}

// recordingData is what the part about recordings shows.
type recordingData struct {
	Rows   []recordingRow
	Mirror []string
}

func (c *console) showRecording(r *http.Request) (partData, error) {
	c.lookAtRecordings()
	s, notes, err := c.look(r.Context())
	if err != nil {
		return partData{}, err
	}
	data := &recordingData{Mirror: c.mirrorText()}
	for _, name := range s.names() {
		m := s.metrics[name]
		bytes, ok := m.Value("gatehouse_record_bytes")
		if !ok {
			continue
		}
		row := recordingRow{Name: name, Bytes: int64(bytes)}
		reviews := m.SumBy("gatehouse_record_reviews_total", "result")
		row.Recorded, row.Skipped = reviews["recorded"], reviews["skipped"]
		dropped := m.SumBy("gatehouse_record_dropped_total", "reason")
		row.QueueDropped, row.DiskDropped, row.SizeDropped = dropped["queue"], dropped["disk"], dropped["size"]
		row.Dropped = row.QueueDropped + row.DiskDropped + row.SizeDropped
		if at, _ := m.Value("gatehouse_record_failing_since_timestamp_seconds"); at > 0 {
			row.Failing = secondsTime(at)
		}
		data.Rows = append(data.Rows, row)
	}
	return partData{Data: data, Notes: notes, Command: append([]string{"record", "get"}, c.clusterWords()...)}, nil
}

func (c *console) showAlerts(r *http.Request) (partData, error) {
	s, notes, err := c.look(r.Context())
	if err != nil {
		return partData{}, err
	}
	return partData{Data: alertsOf(s), Notes: notes}, nil
}
