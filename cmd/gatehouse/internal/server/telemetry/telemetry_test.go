package telemetry_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

func newTelemetry(level slog.Level) (*telemetry.Telemetry, *logbuffer.Buffer) {
	var log logbuffer.Buffer
	return telemetry.New(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level})), "v1"), &log
}

// TestOneLineForWhatSomebodyMayHaveToActOn checks which reviews are logged, at
// which level, and with what.
func TestOneLineForWhatSomebodyMayHaveToActOn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		outcome review.Outcome
		level   string // empty: no line
		has     map[string]any
		hasNot  string
	}{
		{"allowed", review.Outcome{Endpoint: "validate", Decision: review.Allowed}, "", nil, ""},
		{
			"denied",
			review.Outcome{
				Endpoint: "validate", Decision: review.Denied, Reason: "Forbidden", UID: "u1", Operation: "CREATE",
				Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Subresource: "scale",
				Namespace: "shop", Object: "web", User: "jane", DryRun: true,
				Audit: map[string]string{"denied-by": "limits/all", "mutated-by": "labels/all", "team_note": "secret-value", "validation_failure": "secret-value"},
			},
			"INFO",
			map[string]any{
				"uid": "u1", "operation": "CREATE", "resource": "deployments.apps/scale", "namespace": "shop", "name": "web",
				"user": "jane", "dryRun": true, "denied-by": "limits/all", "mutated-by": "labels/all", "reason": "Forbidden",
			},
			"secret-value",
		},
		{
			"let pass by an exception",
			review.Outcome{Endpoint: "validate", Decision: review.Allowed, Audit: map[string]string{"excepted-by": "shop/legacy:limits/validations[0]", "existing-violations": "secret-value"}},
			"INFO",
			map[string]any{"decision": "allowed", "excepted-by": "shop/legacy:limits/validations[0]"},
			"secret-value",
		},
		{
			"let pass by a baseline",
			review.Outcome{Endpoint: "validate", Decision: review.Allowed, Audit: map[string]string{"baselined-by": "gatehouse-system/baseline:limits/validations[0]"}},
			"INFO",
			map[string]any{"decision": "allowed", "baselined-by": "gatehouse-system/baseline:limits/validations[0]"},
			"",
		},
		{
			"denied in spite of an exception",
			review.Outcome{Endpoint: "validate", Decision: review.Denied, Audit: map[string]string{"excepted-by": "shop/legacy:limits/validations[0]", "denied-by": "other"}},
			"INFO",
			map[string]any{"denied-by": "other", "excepted-by": "shop/legacy:limits/validations[0]"},
			"",
		},
		{"cannot decide", review.Outcome{Endpoint: "mutate", Decision: review.Unknown, Reason: "internal", Detail: "why"}, "ERROR", map[string]any{"detail": "why"}, ""},
		{"unknown token", review.Outcome{Endpoint: "authenticate", Decision: review.Unknown, Reason: "unknown-id", TokenID: "ci"}, "WARN", map[string]any{"tokenID": "ci"}, ""},
		{"refused", review.Outcome{Endpoint: "mutate", Decision: review.Refused, Reason: "malformed"}, "WARN", nil, ""},
		{"shed", review.Outcome{Endpoint: "mutate", Decision: review.Shed, Reason: "overload"}, "WARN", nil, ""},
		{"a long detail", review.Outcome{Endpoint: "mutate", Decision: review.Unknown, Detail: strings.Repeat("x", 1<<20) + "LAST"}, "ERROR", nil, "LAST"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			observe, log := newTelemetry(slog.LevelInfo)
			observe.Review(&tc.outcome)
			if tc.level == "" {
				if log.String() != "" {
					t.Errorf("logged %s", log)
				}
				return
			}
			var line map[string]any
			if err := json.Unmarshal([]byte(log.String()), &line); err != nil {
				t.Fatalf("not one line of JSON: %v\n%s", err, log)
			}
			if line["level"] != tc.level {
				t.Errorf("level is %v, want %s", line["level"], tc.level)
			}
			for key, want := range tc.has {
				if line[key] != want {
					t.Errorf("%s is %v, want %v", key, line[key], want)
				}
			}
			if tc.hasNot != "" && strings.Contains(log.String(), tc.hasNot) {
				t.Errorf("the line holds %q", tc.hasNot)
			}
		})
	}
}

// TestNobodyFillsTheLog sends what anybody who reaches the port can send.
func TestNobodyFillsTheLog(t *testing.T) {
	t.Parallel()
	observe, log := newTelemetry(slog.LevelInfo)
	start := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 1000 {
		observe.Review(&review.Outcome{Endpoint: "authenticate", Decision: review.Refused, Reason: "caller", Started: start.Add(time.Duration(i) * time.Millisecond)})
	}
	observe.Review(&review.Outcome{Endpoint: "authenticate", Decision: review.Denied, Reason: "expired", Started: start.Add(time.Second)})
	observe.Review(&review.Outcome{Endpoint: "authenticate", Decision: review.Refused, Reason: "caller", Started: start.Add(time.Minute)})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 22 || !strings.Contains(lines[20], "expired") || !strings.Contains(lines[21], `"suppressed":980`) {
		t.Errorf("%d lines, the last two\n%s", len(lines), strings.Join(lines[max(len(lines)-2, 0):], "\n"))
	}
}

// TestProfiles counts the profiles that are about a pod, and no others: there may
// be hundreds.
func TestProfiles(t *testing.T) {
	t.Parallel()
	observe, _ := newTelemetry(slog.LevelInfo)
	for range 2 {
		observe.Profiles([]sidecar.Verdict{
			{Profile: "mesh", Reason: sidecar.Applied},
			{Profile: "logs", Reason: sidecar.HostNetwork},
			{Profile: "other", Reason: sidecar.NamespaceNotSelected},
		})
	}
	shows(t, observe, `gatehouse_sidecar_profiles_total{profile="logs",reason="host-network"} 2
gatehouse_sidecar_profiles_total{profile="mesh",reason="applied"} 2
`, "gatehouse_sidecar_profiles_total")
}

// shows compares metrics with what they should be, without their help.
func shows(t *testing.T, observe *telemetry.Telemetry, want string, names ...string) {
	t.Helper()
	families, err := observe.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := ""
	for _, f := range families {
		for _, name := range names {
			if f.GetName() == name {
				help += "# HELP " + name + " " + f.GetHelp() + "\n# TYPE " + name + " " + strings.ToLower(f.GetType().String()) + "\n"
			}
		}
	}
	if err := testutil.GatherAndCompare(observe.Registry, strings.NewReader(help+want), names...); err != nil {
		t.Error(err)
	}
}
