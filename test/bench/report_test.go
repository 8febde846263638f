package main

import (
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
