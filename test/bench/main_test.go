package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be the servers that the driver starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case nullServer, usualServer:
			main()
		case "serve", "version":
			os.Exit(standInMain(os.Args[1:]))
		}
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

// The whole driver, with both servers of this program as processes of their
// own.
func TestRunMeasures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{"--gatehouse", "", "--rounds", "2", "--requests", "16", "--scenario", "/5KB/http1/c1$|authenticate/", "--json", file}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != exitYes {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if !strings.Contains(stdout.String(), "authenticate/http2/c16") || !strings.Contains(stdout.String(), "not measured") {
		t.Errorf("table:\n%s", stdout.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Scenarios) != 4 || r.Rounds != 2 || len(r.Memory) != 2 || len(r.Bars) != 23 || r.Passed {
		t.Fatalf("report: %s", text)
	}
	for _, s := range r.Scenarios {
		for _, kind := range []string{nullServer, usualServer} {
			if series := s.Servers[kind]; series == nil || len(series.Samples) != 2 || series.CPUPerRequest <= 0 || series.Ratio <= 0 || series.P50 <= 0 {
				t.Errorf("%s on %s: %+v", s.Name, kind, series)
			}
		}
	}
	for _, m := range r.Memory {
		if m.Resident <= 0 || m.Peak < m.Resident {
			t.Errorf("memory %+v", m)
		}
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
