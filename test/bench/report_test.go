package main

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		name   string
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{"none", nil, 50, 0},
		{"one", hundred[:1], 99, 1},
		{"median of two is the lower", hundred[:2], 50, 1},
		{"median of three", hundred[:3], 50, 2},
		{"50 of 100", hundred, 50, 50},
		{"99 of 100", hundred, 99, 99},
		{"99 of 10 is the largest", hundred[:10], 99, 10},
		{"0 is the smallest", hundred, 0, 1},
		{"100 is the largest", hundred, 100, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentile(tt.sorted, tt.p); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

func TestMedianRatio(t *testing.T) {
	samples := func(cpu ...time.Duration) []sample {
		var s []sample
		for i, d := range cpu {
			s = append(s, sample{Round: i + 1, Requests: 10, CPU: 10 * d})
		}
		return s
	}
	for _, tt := range []struct {
		name          string
		samples, base []sample
		want          float64
	}{
		{"each round by itself", samples(20, 300, 60), samples(10, 100, 10), 3},
		{"even number of rounds", samples(20, 40), samples(10, 10), 3},
		{"round that the base lacks", samples(20, 90), samples(10), 2},
		{"base without time", samples(20, 50), samples(0, 10), 5},
		{"to itself", samples(7, 9, 3), samples(7, 9, 3), 1},
		{"none", nil, samples(10), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := medianRatio(tt.samples, tt.base); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// measuredReport returns a report with two scenarios, one of them of a bar.
func measuredReport(gatehouse time.Duration, resident int64) *report {
	one := func(d time.Duration) *series {
		return &series{Samples: []sample{{Round: 1, Requests: 1000, CPU: 1000 * d, P50: 10 * d, P99: 30 * d, allocations: allocations{Objects: 50_000, Bytes: 3 << 20}}}}
	}
	r := &report{
		Started:  time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		Machine:  machine{OS: "linux", Arch: "amd64", CPUs: 2},
		Versions: map[string]string{"go": "go1.26.8", "sigs.k8s.io/controller-runtime": "v0.25.2"},
		Rounds:   1,
		Scenarios: []scenarioReport{
			{Name: "mutate/5KB/http2/c16", Servers: map[string]*series{
				nullServer: one(40 * time.Microsecond), gatehouseServer: one(gatehouse), usualServer: one(460 * time.Microsecond),
			}},
			{Name: "authenticate/http2/c1", Servers: map[string]*series{nullServer: one(60 * time.Microsecond)}},
		},
		Memory: []serverMemory{
			{Server: nullServer, memory: memory{Resident: 22 << 20, Peak: 23 << 20}},
			{Server: gatehouseServer, Configuration: onePolicy, memory: memory{Resident: resident, Peak: 70 << 20}},
		},
	}
	r.finish()
	return r
}

func TestBars(t *testing.T) {
	for _, tt := range []struct {
		name           string
		cpu            time.Duration
		resident       int64
		mutate, memory string
	}{
		{"at the limits", 64 * time.Microsecond, 64 << 20, resultPass, resultPass},
		{"above the ratio", 65 * time.Microsecond, 64 << 20, resultFail, resultPass},
		{"above the memory", 64 * time.Microsecond, 64<<20 + 4096, resultPass, resultFail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := measuredReport(tt.cpu, tt.resident)
			var got []string
			for _, b := range r.Bars {
				got = append(got, b.Result)
			}
			const not = resultNotMeasured
			want := []string{not, tt.mutate, not, not, not, not, not, not, not, not, not, not, not, not, not, not, tt.memory, not, not, not, not, not, not}
			if strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("results %q, want %q", got, want)
			}
			if r.Passed {
				t.Error("passed with bars that were not measured")
			}
		})
	}
}

// What many policies take is told apart from what a usual number takes.
func TestBarsOfManyPolicies(t *testing.T) {
	of := func(configuration string, resident int64) serverMemory {
		return serverMemory{Server: gatehouseServer, Configuration: configuration, memory: memory{Resident: resident << 20}}
	}
	const small, middle = "compile-1000-policies", "compile-1000-middle-policies"
	for _, tt := range []struct {
		name     string
		memory   []serverMemory
		compiled []compileReport
		want     map[string]string // the bars that were measured
	}{
		{
			"all hold",
			[]serverMemory{of(noPolicies, 40), of(hundredPolicies, 60), of(manyPolicies, 200)},
			[]compileReport{{Name: small, All: time.Second, Change: 100 * time.Millisecond}, {Name: middle, All: 3 * time.Second, Change: time.Millisecond}},
			map[string]string{
				"resident memory after the run, MiB":             resultPass,
				"resident memory of 100 policies over none, MiB": resultPass,
				small + ", seconds on one processor":             resultPass,
				small + ", after a change of one, ratio to all":  resultPass,
				middle + ", seconds on one processor":            resultPass,
				middle + ", after a change of one, ratio to all": resultPass,
			},
		},
		{
			"none holds",
			[]serverMemory{of(noPolicies, 40), of(hundredPolicies, 61), of(tenPolicies, 65)},
			[]compileReport{{Name: middle, All: 3001 * time.Millisecond, Change: 301 * time.Millisecond}},
			map[string]string{
				"resident memory after the run, MiB":             resultFail,
				"resident memory of 100 policies over none, MiB": resultFail,
				middle + ", seconds on one processor":            resultFail,
				middle + ", after a change of one, ratio to all": resultFail,
			},
		},
		{"less than none", []serverMemory{of(noPolicies, 40), of(hundredPolicies, 39)}, nil, map[string]string{
			"resident memory after the run, MiB":             resultPass,
			"resident memory of 100 policies over none, MiB": resultPass,
		}},
		{"nothing to compare with", []serverMemory{of(hundredPolicies, 39)}, nil, map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &report{Memory: tt.memory, Compilations: tt.compiled}
			r.finish()
			got := map[string]string{}
			for _, b := range r.Bars {
				if b.Result != resultNotMeasured {
					got[b.What] = b.Result
				}
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("results %v, want %v", got, tt.want)
			}
		})
	}
}

// Every bar names a scenario that exists.
func TestBarsHaveScenarios(t *testing.T) {
	all, err := scenarios(nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"": true}
	for _, s := range all {
		names[s.name] = true
	}
	for _, b := range bars() {
		if !names[b.Scenario] || !names[b.To] {
			t.Errorf("no such scenario: %+v", b)
		}
	}
}

// A bar between two scenarios compares Gatehouse with itself, round by round.
func TestBarBetweenScenarios(t *testing.T) {
	of := func(cpu ...time.Duration) map[string]*series {
		s := new(series)
		for i, d := range cpu {
			s.Samples = append(s.Samples, sample{Round: i + 1, Requests: 10, CPU: 10 * d})
		}
		return map[string]*series{gatehouseServer: s, nullServer: {Samples: s.Samples}}
	}
	r := &report{Scenarios: []scenarioReport{
		{Name: "mutate-2-profiles/5KB/http2/c16", Servers: of(100, 200, 100)},
		{Name: "mutate-2-of-200-profiles/5KB/http2/c16", Servers: of(120, 280, 200)},
	}}
	r.finish()
	const what = "mutate-2-of-200-profiles/5KB/http2/c16, ratio to mutate-2-profiles/5KB/http2/c16"
	for _, b := range r.Bars {
		if b.What == what && (b.Measured != 1.4 || b.Result != resultFail) {
			t.Errorf("%+v", b)
		}
		if b.What != what && b.Result != resultNotMeasured {
			t.Errorf("%+v was not measured", b)
		}
	}
}

func TestAllocationsPerRequest(t *testing.T) {
	samples := []sample{
		{Requests: 10, allocations: allocations{Objects: 700, Bytes: 9_000}},
		{Requests: 30, allocations: allocations{Objects: -100, Bytes: 3_000}}, // counted with the others
	}
	if objects, bytes := allocationsPerRequest(samples); objects != 15 || bytes != 300 {
		t.Errorf("%v objects, %v bytes", objects, bytes)
	}
	if objects, bytes := allocationsPerRequest(nil); objects != 0 || bytes != 0 {
		t.Errorf("%v objects, %v bytes of no samples", objects, bytes)
	}
}

func TestParseAllocations(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       allocations
		err        string
	}{
		{"both", "# HELP go_memstats_alloc_bytes_total x\ngo_memstats_alloc_bytes_total 1.5e+07\ngo_memstats_mallocs_total 1234\n", allocations{Objects: 1234, Bytes: 15_000_000}, ""},
		{"one", "\ngo_memstats_mallocs_total 1234\n", allocations{}, "no go_memstats_alloc_bytes_total"},
		{"no number", "\ngo_memstats_mallocs_total many\n", allocations{}, "no go_memstats_mallocs_total"},
		{"nothing", "", allocations{}, "no go_memstats_mallocs_total"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseAllocations([]byte(tt.text))
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestWriteTable(t *testing.T) {
	var text strings.Builder
	r := measuredReport(56*time.Microsecond, 48<<20)
	r.Compilations = []compileReport{{Name: "compile-1000-policies", Policies: 1000, All: 500 * time.Millisecond, Change: 5 * time.Millisecond, Retained: 16_000_000}}
	r.finish()
	if err := writeTable(&text, r); err != nil {
		t.Fatal(err)
	}
	const want = `Processor time of the server per request: of the null webhook in µs, of the others as a ratio to it
in the same round; medians of 1 rounds. Allocations are objects and KiB per request.
C-R is the usual webhook on controller-runtime v0.25.2.
go1.26.8, linux/amd64, 2 CPUs, 2026-11-20.

SCENARIO               NULL µs  GATEHOUSE ×  C-R ×  NULL allocs/KiB  GATEHOUSE allocs/KiB  C-R allocs/KiB  NULL p50/p99 ms  GATEHOUSE p50/p99 ms  C-R p50/p99 ms
mutate/5KB/http2/c16      40.0         1.40  11.50           50/3.1                50/3.1          50/3.1        0.40/1.20             0.56/1.68      4.60/13.80
authenticate/http2/c1     60.0            –      –           50/3.1                     –               –        0.60/1.80                     –               –

MEMORY AFTER THE RUN   RESIDENT MiB  PEAK MiB
null                           22.0      23.0
gatehouse, one policy          48.0      70.0

POLICIES COMPILED ON ONE PROCESSOR  SECONDS  AFTER A CHANGE OF ONE, ms  HEAP KiB EACH
compile-1000-policies                  0.50                        5.0           15.6

BAR                                                                                      AT MOST  MEASURED        RESULT
mutate/1.5KB/http2/c16, ratio to null                                                       1.60         –  not measured
mutate/5KB/http2/c16, ratio to null                                                         1.60      1.40          pass
mutate/60KB/http2/c16, ratio to null                                                        2.50         –  not measured
mutate-not-selected/5KB/http2/c16, ratio to null                                            1.30         –  not measured
mutate-2-of-200-profiles/5KB/http2/c16, ratio to mutate-2-profiles/5KB/http2/c16            1.30         –  not measured
validate/5KB/http2/c16, ratio to null                                                       3.00         –  not measured
validate-10-policies/5KB/http2/c16, ratio to null                                           2.50         –  not measured
validate-10-rules/5KB/http2/c16, ratio to null                                              2.50         –  not measured
validate-10-of-1000-policies/5KB/http2/c16, ratio to validate-10-policies/5KB/http2/c16     1.10         –  not measured
validate-pod-security/5KB/http2/c16, ratio to null                                          1.60         –  not measured
authenticate/http2/c16, ratio to null                                                       1.30         –  not measured
authenticate-100000-tokens/http2/c16, ratio to authenticate/http2/c16                       1.05         –  not measured
authenticate-jwt-rs256/http2/c16, ratio to null                                             1.20         –  not measured
authenticate-jwt-es256/http2/c16, ratio to null                                             1.20         –  not measured
handshake-files/http1/c16, ratio to null                                                    1.05         –  not measured
handshake-self-signed/http1/c16, ratio to null                                              1.05         –  not measured
resident memory after the run, MiB                                                         64.00     48.00          pass
resident memory of 100 policies over none, MiB                                             20.00         –  not measured
resident memory of 100,000 access tokens, MiB                                              64.00         –  not measured
compile-1000-policies, seconds on one processor                                             3.00      0.50          pass
compile-1000-policies, after a change of one, ratio to all                                  0.10      0.01          pass
compile-1000-middle-policies, seconds on one processor                                      3.00         –  not measured
compile-1000-middle-policies, after a change of one, ratio to all                           0.10         –  not measured
`
	if text.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", text.String(), want)
	}
}

func TestParseStatus(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       memory
		err        string
	}{
		{"both", "Name:\tbench\nVmHWM:\t   31500 kB\nVmRSS:\t   30200 kB\nThreads:\t7\n", memory{Resident: 30200 << 10, Peak: 31500 << 10}, ""},
		{"a zombie has neither", "Name:\tbench\nState:\tZ (zombie)\n", memory{}, "no VmRSS: in kB"},
		{"no peak", "VmRSS:\t   30200 kB\n", memory{}, "no VmHWM: in kB"},
		{"other unit", "VmHWM:\t 1 kB\nVmRSS:\t 1 MB\n", memory{}, "no VmRSS: in kB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStatus(tt.text)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

// This process has used time and memory; one that does not exist has not.
func TestProcessTime(t *testing.T) {
	used, err := processTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if used <= 0 {
		t.Errorf("%d ns", used)
	}
	if m, err := processMemory(os.Getpid()); err != nil || m.Resident <= 0 || m.Peak < m.Resident {
		t.Errorf("memory %+v, %v", m, err)
	}
	if _, err := processTime(1 << 30); err == nil {
		t.Error("a process that does not exist has used time")
	}
}
