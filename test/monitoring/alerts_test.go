package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// promqlProgram is Prometheus' parser and its rules, a module of its own.
var promqlProgram = sync.OnceValues(func() (string, error) {
	program, err := filepath.Abs(root + "/bin/promql")
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-mod=readonly", "-o", program, ".")
	build.Dir = root + "/test/support/promql"
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build in test/support/promql: %w (hint: go env GOPROXY says where modules come from)\n%s", err, out)
	}
	return program, nil
})

// promql asks for an answer to each value.
func promql[Answer, Value any](t *testing.T, command string, values []Value) []Answer {
	t.Helper()
	program, err := promqlProgram()
	must(t, err)
	var in bytes.Buffer
	for _, v := range values {
		must(t, json.NewEncoder(&in).Encode(v))
	}
	run := exec.CommandContext(t.Context(), program, command)
	run.Stdin, run.Stderr = &in, t.Output()
	out, err := run.Output()
	must(t, err)
	decoder := json.NewDecoder(bytes.NewReader(out))
	var answers []Answer
	for range values {
		var a Answer
		must(t, decoder.Decode(&a))
		answers = append(answers, a)
	}
	return answers
}

type (
	// scenarios are those of testdata/alerts.yaml, which says what is in them.
	scenarios struct {
		Targets map[string]string `json:"targets"`
		Healthy []string          `json:"healthy"`
		Cases   []scenario        `json:"cases"`
	}
	scenario struct {
		Alert    string   `json:"alert"`
		Case     string   `json:"case"`
		Interval string   `json:"interval"`
		Lasts    string   `json:"lasts"`
		Series   []string `json:"series"`
		Fires    []fires  `json:"fires"`
		Also     []string `json:"also"`
	}
	fires struct {
		From        string `json:"from"`
		Until       string `json:"until"`
		Labels      string `json:"labels"`
		Description string `json:"description"`
	}
	evaluation struct {
		Series   []string `json:"series"`
		Interval string   `json:"interval"`
		Lasts    string   `json:"lasts"`
		Alerts   []alert  `json:"alerts"`
		Queries  []string `json:"queries"`
	}
	evaluated struct {
		Firing []struct {
			Rule        int               `json:"rule"`
			From        string            `json:"from"`
			Until       string            `json:"until"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"firing"`
		Errors []string `json:"errors"`
	}
)

var (
	target    = regexp.MustCompile(`@[a-z0-9]+`)
	pairValue = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// expanded is a text with the labels of its targets.
func (s *scenarios) expanded(t *testing.T, text string) string {
	t.Helper()
	return target.ReplaceAllStringFunc(text, func(name string) string {
		labels := s.Targets[name[1:]]
		if labels == "" {
			t.Fatalf("%s has a target that is not known: %s", alertCases, text)
		}
		return labels
	})
}

// nameOf is the name of the metric of a series.
func nameOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// evaluation is a case with what is healthy of all metrics that it says nothing of.
func (s *scenarios) evaluation(t *testing.T, c *scenario, list []alert, queries []string) evaluation {
	t.Helper()
	e := evaluation{Interval: c.Interval, Lasts: c.Lasts, Alerts: slices.Clone(list), Queries: queries}
	if e.Interval == "" {
		e.Interval = "1m"
	} else {
		for i := range e.Alerts {
			if e.Alerts[i].Alert != c.Alert {
				e.Alerts[i].Expr = "vector(1) < 0" // never
			}
		}
	}
	lasts, err := time.ParseDuration(e.Lasts)
	must(t, err)
	interval, err := time.ParseDuration(e.Interval)
	must(t, err)
	replaced := map[string]bool{}
	for _, one := range c.Series {
		replaced[nameOf(one)] = true
		if strings.Contains(one, " ") { // a name alone is a metric that is not there
			e.Series = append(e.Series, s.expanded(t, one))
		}
	}
	for _, one := range s.Healthy {
		if !replaced[nameOf(one)] {
			e.Series = append(e.Series, fmt.Sprintf("%sx%d", s.expanded(t, one), lasts/interval))
		}
	}
	return e
}

const alertCases = "testdata/alerts.yaml"

// TestAlertsFire evaluates every alert on what is healthy and on what it is for.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	var s scenarios
	must(t, yaml.UnmarshalStrict([]byte(read(t, alertCases)), &s))
	list := alerts(t)
	var asked []query
	for _, a := range list {
		asked = append(asked, query{a.Alert, a.Expr})
	}
	for i, p := range taken(t, asked) {
		for _, selected := range p.Selectors {
			for _, metric := range selected.Metrics {
				if !slices.ContainsFunc(s.Healthy, func(one string) bool { return nameOf(one) == metric }) {
					t.Errorf("%s: no healthy series of %s, so that nothing tells whether it is silent", list[i].Alert, metric)
				}
			}
		}
	}
	var panels []string
	for _, q := range dashboard(t) {
		panels = append(panels, ofGrafana(q.expr))
	}
	cases := append([]scenario{{Alert: "none", Case: "healthy", Lasts: "3h"}}, s.Cases...)
	evaluations := make([]evaluation, 0, len(cases))
	for i := range cases {
		evaluations = append(evaluations, s.evaluation(t, &cases[i], list, panels))
	}
	tested := map[int]bool{}
	for i, got := range promql[evaluated](t, "evaluate", evaluations) {
		c := &cases[i]
		t.Run(c.Alert+" "+c.Case, func(t *testing.T) {
			for _, err := range got.Errors {
				t.Error(err)
			}
			var want, have []string
			for _, f := range c.Fires {
				want = append(want, fmt.Sprintf("from %s until %q with %v: %s", f.From, f.Until, labelsOf(s.expanded(t, f.Labels)), f.Description))
			}
			also := map[string]bool{}
			for _, f := range got.Firing {
				rule := list[f.Rule]
				for name, text := range f.Annotations {
					if strings.Contains(text, "<no value>") || strings.Contains(text, "<error") || strings.Contains(text, "{{") || strings.Contains(text, "  ") {
						t.Errorf("%s: %s is %q", rule.Alert, name, text)
					}
				}
				if rule.Alert != c.Alert {
					also[rule.Alert] = true
					continue
				}
				tested[f.Rule] = true
				if f.Labels["alertname"] != rule.Alert || f.Labels["severity"] != rule.Labels["severity"] {
					t.Errorf("the labels are %v", f.Labels)
				}
				delete(f.Labels, "alertname")
				delete(f.Labels, "severity")
				have = append(have, fmt.Sprintf("from %s until %q with %v: %s", f.From, f.Until, f.Labels, f.Annotations["description"]))
			}
			slices.Sort(want)
			slices.Sort(have)
			if !slices.Equal(have, want) {
				t.Errorf("%s fires\n%s\nwant\n%s", c.Alert, strings.Join(have, "\n"), strings.Join(want, "\n"))
			}
			if others := slices.Sorted(maps.Keys(also)); !slices.Equal(others, slices.Sorted(slices.Values(c.Also))) {
				t.Errorf("%q fire too, want %q", others, c.Also)
			}
		})
	}
	for i, a := range list {
		if !tested[i] {
			t.Errorf("no case of %s has %s fire: %s", alertCases, a.Alert, a.Expr)
		}
	}
}

// labelsOf are those of a text as in a series.
func labelsOf(text string) map[string]string {
	labels := map[string]string{}
	for _, m := range pairValue.FindAllStringSubmatch(text, -1) {
		labels[m[1]] = m[2]
	}
	return labels
}
