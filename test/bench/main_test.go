package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestMain lets the test binary be the servers that the driver starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == nullServer || os.Args[1] == usualServer) {
		main()
	}
	os.Exit(m.Run())
}

func TestRunRefusesBadUsage(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"help", []string{"--help"}, exitYes, "--quick"},
		{"mode", []string{"measure"}, exitUnknown, `unknown mode "measure": one of run, null, controller-runtime, compile`},
		{"argument", []string{"run", "--quick", "now"}, exitUnknown, `unexpected argument "now"`},
		{"rounds", []string{"--rounds", "-1"}, exitUnknown, "--rounds -1: must be at least 1"},
		{"requests", []string{"--requests", "3"}, exitUnknown, "--requests 3: must be at least 16"},
		{"output", []string{"-o", "yaml"}, exitUnknown, `-o "yaml": must be table or json`},
		{"expression", []string{"--scenario", "("}, exitUnknown, `--scenario "(": error parsing regexp`},
		{"no scenario", []string{"--scenario", "mutate/1MB"}, exitUnknown, `--scenario "mutate/1MB" matches none of the 60 scenarios; the first is "mutate/1.5KB/http2/c16"`},
		{"no binary", []string{"--gatehouse", "no/such/file", "--scenario", "authenticate"}, exitUnknown, `--gatehouse "no/such/file": stat no/such/file: no such file or directory; make build writes bin/gatehouse`},
		{"no old binary", []string{"--gatehouse", "", "--old", "no/such/file", "--scenario", "authenticate"}, exitUnknown, `--old "no/such/file": stat no/such/file`},
		{"other host", []string{"null", "--listen", "0.0.0.0:0"}, exitUnknown, `--listen: "0.0.0.0:0" is not a loopback address`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := run(t.Context(), tt.args, strings.NewReader(""), io.Discard, &stderr)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("stderr %q does not contain %q", stderr.String(), tt.want)
			}
		})
	}
}

// measure runs the driver with the program under test, and returns the report.
func measure(t *testing.T, args ...string) *report {
	t.Helper()
	binary, err := gatehouse.Binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	var stdout, stderr bytes.Buffer
	args = append([]string{"run", "--gatehouse", binary, "--requests", "16", "-o", "json", "--json", file}, args...)
	if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != exitYes {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, stdout.Bytes()) {
		t.Errorf("stdout and file differ: %v", err)
	}
	r := new(report)
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Gatehouse, the null webhook and the usual one give right answers in every
// scenario, or the run would fail, and every bar of a scenario is measured.
func TestRunMeasures(t *testing.T) {
	r := measure(t, "--rounds", "1", "--scenario", "/http2/c16|^handshake")
	if len(r.Scenarios) != 27 || len(r.Memory) != 2+17 {
		t.Errorf("%d scenarios, memory of %d servers", len(r.Scenarios), len(r.Memory))
	}
	for _, s := range r.Scenarios {
		null, ours := s.Servers[nullServer], s.Servers[gatehouseServer]
		if null == nil || ours == nil || ours.Ratio <= 0 || ours.P50 <= 0 {
			t.Errorf("%s: null %+v, Gatehouse %+v", s.Name, null, ours)
		}
	}
	for _, m := range r.Memory {
		if m.Resident <= 0 || m.Peak < m.Resident {
			t.Errorf("memory %+v", m)
		}
	}
	for _, b := range r.Bars {
		if isCompilation := strings.HasPrefix(b.What, "compile-"); isCompilation != (b.Result == resultNotMeasured) {
			t.Errorf("%s: %s", b.What, b.Result)
		}
	}
}

// Another binary is measured in the same rounds.
func TestRunMeasuresAnOldBinary(t *testing.T) {
	binary, err := gatehouse.Binary()
	if err != nil {
		t.Fatal(err)
	}
	r := measure(t, "--old", binary, "--rounds", "2", "--no-controller-runtime", "--scenario", "^mutate/5KB/http2/c1$")
	servers := r.Scenarios[0].Servers
	if len(servers) != 3 || len(servers[oldServer].Samples) != 2 || servers[oldServer].Ratio <= 0 {
		t.Errorf("servers %+v", servers)
	}
	var text strings.Builder
	if err := writeTable(&text, r); err != nil || !strings.Contains(text.String(), "OLD ×") {
		t.Errorf("%v, table:\n%s", err, text.String())
	}
}

// With --check, a bar that was not measured is missed.
func TestRunChecksBars(t *testing.T) {
	args := []string{"--gatehouse", "", "--no-controller-runtime", "--rounds", "1", "--requests", "16", "--scenario", "authenticate/http2/c1$", "--check"}
	var stderr bytes.Buffer
	if code := run(t.Context(), args, strings.NewReader(""), io.Discard, &stderr); code != exitNo {
		t.Errorf("exit code %d, want %d: %s", code, exitNo, stderr.String())
	}
}
