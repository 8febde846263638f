package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestMain lets the test binary be the servers that the driver starts.
func TestMain(m *testing.M) {
	if isServer(os.Args) {
		main()
	}
	os.Exit(m.Run())
}

func TestRunRefusesBadUsage(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"help":          {[]string{"--help"}, exitYes, "--quick"},
		"argument":      {[]string{"--quick", "now"}, exitUnknown, `unexpected argument "now"`},
		"rounds":        {[]string{"--rounds", "-1"}, exitUnknown, "--rounds -1: must be at least 1"},
		"duration":      {[]string{"--duration", "0s"}, exitUnknown, "--duration 0s: must be positive"},
		"expression":    {[]string{"--scenario", "("}, exitUnknown, `--scenario "(": error parsing regexp`},
		"no scenario":   {[]string{"--scenario", "mutate/1MB"}, exitUnknown, `--scenario "mutate/1MB" matches nothing`},
		"no binary":     {[]string{"--gatehouse", "no/such/file", "--scenario", "authenticate/"}, exitUnknown, `--gatehouse "no/such/file": stat no/such/file: no such file or directory; make build writes bin/gatehouse`},
		"no old binary": {[]string{"--gatehouse", "", "--old", "no/such/file", "--scenario", "authenticate/"}, exitUnknown, `--old "no/such/file": stat no/such/file`},
		"a bar that is not measured is missed": {
			[]string{"--gatehouse", "", "--rounds", "1", "--duration", "1ms", "--scenario", "authenticate/http2/c1$", "--check"},
			exitNo, "a bar was missed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(t.Context(), tt.args, io.Discard, &stderr); code != tt.code || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q", code, tt.code, stderr.String(), tt.want)
			}
		})
	}
}

// measure runs the driver with the program under test, and with it once more as
// the old one.
func measure(t *testing.T, old bool, args ...string) *report {
	t.Helper()
	binary, err := gatehouse.Binary()
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--duration", "1ms", "--gatehouse", binary)
	if old {
		args = append(args, "--old", binary)
	}
	o, err := parseOptions(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r, err := drive(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Gatehouse and the null webhook give right answers in every
// scenario, or the run would fail, and every bar of a scenario is measured.
func TestRunMeasures(t *testing.T) {
	r := measure(t, false, "--rounds", "1", "--scenario", "/http2/c16|-recorded/|^(mutate|validate-10-policies)/5KB/http1/c16|^handshake")
	if len(r.results) != 42 || len(r.memory) != 1+5+21 {
		t.Errorf("%d scenarios, memory of %d servers", len(r.results), len(r.memory))
	}
	for _, m := range r.memory {
		if m.resident <= 0 || m.peak < m.resident {
			t.Errorf("memory %+v", m)
		}
	}
	for _, b := range bars() {
		if isCompilation := strings.HasPrefix(b.what, "compile-"); isCompilation != (b.measured(r) == 0) {
			t.Errorf("%s: %v", b.what, b.measured(r))
		}
	}
}

// Another binary is measured in the same rounds.
func TestRunMeasuresAnOldBinary(t *testing.T) {
	r := measure(t, true, "--rounds", "2", "--scenario", "^mutate/5KB/http2/c1$")
	samples := r.results[0].samples
	if len(samples) != 3 || len(samples[oldServer]) != 2 || samples[oldServer][0].cpu <= 0 {
		t.Errorf("samples %+v", samples)
	}
	var table strings.Builder
	if err := r.write(&table); err != nil || !strings.Contains(table.String(), "OLD ×") {
		t.Errorf("%v, table:\n%s", err, table.String())
	}
}

func TestMedianRatio(t *testing.T) {
	samples := func(cpu ...time.Duration) []sample {
		var s []sample
		for _, d := range cpu {
			s = append(s, sample{requests: 10, cpu: 10 * d})
		}
		return s
	}
	for name, tt := range map[string]struct {
		samples, base []sample
		want          float64
	}{
		"each round by itself":      {samples(20, 300, 60), samples(10, 100, 10), 3},
		"even number of rounds":     {samples(20, 40), samples(10, 10), 3},
		"round that the base lacks": {samples(20, 90), samples(10), 2},
		"base without time":         {samples(20, 50), samples(0, 10), 5},
		"none":                      {nil, samples(10), 0},
	} {
		if got := medianRatio(tt.samples, tt.base); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// The table and the bars of a report with two scenarios, one of them of a bar.
func TestWriteTable(t *testing.T) {
	one := func(d time.Duration) []sample {
		return []sample{{requests: 1000, cpu: 1000 * d, p50: 10 * d, p99: 30 * d, allocations: allocations{objects: 50_000, bytes: 3 << 20}}}
	}
	r := &report{
		rounds: 1,
		results: []result{
			{scenario: "mutate/5KB/http2/c16", samples: map[string][]sample{
				nullServer: one(40 * time.Microsecond), gatehouseServer: one(64 * time.Microsecond),
			}},
			{scenario: "mutate/1.5KB/http2/c16", samples: map[string][]sample{nullServer: one(60 * time.Microsecond), gatehouseServer: one(97 * time.Microsecond)}},
		},
		memory:   []memory{{nullServer, "", 22, 23}, {gatehouseServer, onePolicy, 48, 70}},
		compiled: map[string]compiled{"compile-1000-policies": {policies: 1000, all: 500 * time.Millisecond, change: 60 * time.Millisecond, retained: 16_000_000}},
	}
	var table strings.Builder
	if err := r.write(&table); err != nil || r.passed() {
		t.Errorf("%v, passed %v", err, r.passed())
	}
	got := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{
		"mutate/5KB/http2/c16 40.0 1.60 – 50/3.1 50/3.1 – 0.40/1.20 0.64/1.92 –",
		"mutate/1.5KB/http2/c16 60.0 1.62 – 50/3.1 50/3.1 – 0.60/1.80 0.97/2.91 –",
		"null 22.0 23.0 gatehouse, one policy 48.0 70.0",
		"compile-1000-policies 0.50 60.0 15.6",
		"mutate/1.5KB/http2/c16, ratio to null 1.60 1.62 fail mutate/5KB/http2/c16, ratio to null 1.60 1.60 pass",
		"mutate/60KB/http2/c16, ratio to null 2.50 – not measured",
		"compile-1000-policies, after a change of one, ratio to all 0.10 0.12 fail",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
}

func TestRealisticPods(t *testing.T) {
	evaluator, err := podpolicy.NewEvaluator(podpolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := func(pod *corev1.Pod) string {
		level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
		result := podpolicy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
		return result.ForbiddenDetail()
	}
	for _, size := range []int{1_500, 5_000, 60_000} {
		pod := realisticPod(size)
		text := must(json.Marshal(pod))
		if len(text) != size || !bytes.Equal(text, must(json.Marshal(realisticPod(size)))) {
			t.Errorf("pod of %d bytes has %d, or differs when made twice", size, len(text))
		}
		if len(pod.ManagedFields) != 1 || !strings.Contains(pod.ManagedFields[0].FieldsV1.GetRawString(), `k:{\"name\":\"checkout\"}`) {
			t.Errorf("pod of %d bytes has managed fields %v", size, pod.ManagedFields)
		}
		if detail := restricted(pod); detail != "" {
			t.Errorf("pod of %d bytes: %s", size, detail)
		}
	}
	if restricted(refusedPod()) == "" {
		t.Error("the refused pod breaks nothing")
	}
}

// Policies that are to be compiled are valid, and no expression is in two of
// them, because compiling it once must not serve both.
func TestCompilations(t *testing.T) {
	for _, c := range compilations() {
		t.Run(c.name, func(t *testing.T) {
			documents := c.documents()
			spec, err := policySpec(documents)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]string{"": ""}
			for _, p := range spec.Policies {
				expressions := map[string]bool{}
				for _, v := range p.Spec.Variables {
					expressions[v.Expression] = true
				}
				for _, v := range p.Spec.Validations {
					expressions[v.Expression], expressions[v.MessageExpression] = true, true
				}
				for expression := range expressions {
					if seen[expression] != "" {
						t.Errorf("%s and %s both have %s", seen[expression], p.Name, expression)
					}
					if expression != "" {
						seen[expression] = p.Name
					}
				}
			}
			if len(spec.Policies) != 1000 {
				t.Errorf("%d policies", len(spec.Policies))
			}
			few := compilation{c.name, func() []string { return documents[len(documents)-20:] }}
			r, err := few.measure(1)
			if err != nil || r.policies != 20 || r.all <= 0 || r.change <= 0 || r.retained <= 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// Every scenario that makes requests has both protocols, at both concurrencies.
func TestScenarios(t *testing.T) {
	all := map[string]scenario{}
	for _, s := range scenarios(regexp.MustCompile("")) {
		if _, found := all[s.name]; found {
			t.Errorf("two scenarios %s", s.name)
		}
		all[s.name] = s
	}
	for name, s := range all {
		if s.path == "" {
			continue
		}
		base := strings.TrimSuffix(name, fmt.Sprintf("/%s/c%d", s.protocol, s.concurrency))
		for _, other := range []string{"/http1/c1", "/http1/c16", "/http2/c1", "/http2/c16"} {
			if _, found := all[base+other]; !found {
				t.Errorf("no scenario %s", base+other)
			}
		}
	}
}
