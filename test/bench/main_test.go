package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

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
	if len(r.results) != 49 || len(r.memory) != 1+8+27 {
		t.Errorf("%d scenarios, memory of %d servers", len(r.results), len(r.memory))
	}
	for _, m := range r.memory {
		if m.resident <= 0 || m.peak < m.resident {
			t.Errorf("memory %+v", m)
		}
	}
	for _, b := range bars() {
		if b.measured(r) == 0 {
			t.Errorf("%s is not measured", b.what)
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
