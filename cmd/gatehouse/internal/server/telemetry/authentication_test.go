package telemetry_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const issuer = "https://issuer.example"

// withSources has a configuration with a directory and an issuer.
func withSources(level slog.Level) (*telemetry.Telemetry, fmt.Stringer) {
	observe, log := newTelemetry(level)
	observe.AuthenticationLoaded(&authn.Spec{
		Directories: []authn.NamedDirectory{{Config: &v1alpha1.Directory{Name: "corp"}}},
		Issuers:     []authn.Issuer{{Config: &apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: issuer}}}},
	})
	return observe, log
}

// lines are the lines of a log.
func lines(t *testing.T, log fmt.Stringer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("not a line of JSON: %v\n%s", err, text)
		}
		all = append(all, line)
	}
	return all
}

// TestAuthentications counts token reviews by who answered them, and ends the
// series of what is not configured any more.
func TestAuthentications(t *testing.T) {
	t.Parallel()
	observe, _ := withSources(slog.LevelError)
	reviews := []review.Outcome{
		{Endpoint: "authenticate", Decision: review.Allowed, Reason: "ok", Backend: "access-token", Source: "access-tokens"},
		{Endpoint: "authenticate", Decision: review.Allowed, Reason: "ok", Backend: "login-token", Source: "corp"},
		{Endpoint: "authenticate", Decision: review.Denied, Reason: "claims", Backend: "jwt", Source: issuer},
		{Endpoint: "authenticate", Decision: review.Denied, Reason: "foreign"},
		{Endpoint: "authenticate", Decision: review.Unknown, Reason: "keys", Backend: "jwt", Source: issuer},
		{Endpoint: "authenticate", Decision: review.Refused, Reason: "caller"},
		{Endpoint: "validate", Decision: review.Denied, Reason: "Forbidden"},
	}
	for i := range reviews {
		observe.Review(&reviews[i])
	}
	observe.Login(&telemetry.Call{Path: "/login", Decision: review.Allowed, Reason: "ok", Directory: "corp", Took: 20 * time.Millisecond})
	expect := func(want string) {
		t.Helper()
		shows(t, observe, `gatehouse_authentications_total{backend="",decision="denied",reason="foreign",source=""} 1
gatehouse_authentications_total{backend="access-token",decision="allowed",reason="",source="access-tokens"} 1
`+want, "gatehouse_authentications_total")
	}
	expect(`gatehouse_authentications_total{backend="jwt",decision="denied",reason="claims",source="https://issuer.example"} 1
gatehouse_authentications_total{backend="jwt",decision="unknown",reason="keys",source="https://issuer.example"} 1
gatehouse_authentications_total{backend="login-token",decision="allowed",reason="",source="corp"} 1
`)
	if problems, err := testutil.GatherAndLint(observe.Registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}

	observe.AuthenticationLoaded(&authn.Spec{
		Issuers: []authn.Issuer{{Config: &apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: issuer}}}},
	})
	expect(`gatehouse_authentications_total{backend="jwt",decision="denied",reason="claims",source="https://issuer.example"} 1
gatehouse_authentications_total{backend="jwt",decision="unknown",reason="keys",source="https://issuer.example"} 1
`)
	for _, name := range []string{"gatehouse_logins_total", "gatehouse_login_duration_seconds"} {
		if n, err := testutil.GatherAndCount(observe.Registry, name); err != nil || n != 0 {
			t.Errorf("%s has %d series of a directory that is gone (%v)", name, n, err)
		}
	}
}

// TestLogins counts and measures logins and questions.
func TestLogins(t *testing.T) {
	t.Parallel()
	observe, _ := withSources(slog.LevelError + 1)
	for _, e := range []telemetry.Call{
		{Path: "/login", Decision: review.Allowed, Reason: "ok", Directory: "corp", Took: 20 * time.Millisecond},
		{Path: "/login", Decision: review.Denied, Reason: "credentials", Directory: "corp", Took: 3 * time.Second},
		{Path: "/login", Decision: review.Shed, Reason: "rate-limited"},
		{Path: "/whoami", Decision: review.Allowed, Reason: "ok", Backend: "jwt", Source: issuer},
		{Path: "/whoami", Decision: review.Denied, Reason: "session"},
	} {
		observe.Login(&e)
	}
	shows(t, observe, `gatehouse_logins_total{decision="allowed",directory="corp",reason=""} 1
gatehouse_logins_total{decision="denied",directory="corp",reason="credentials"} 1
gatehouse_logins_total{decision="shed",directory="",reason="rate-limited"} 1
gatehouse_whoami_total{decision="allowed",reason=""} 1
gatehouse_whoami_total{decision="denied",reason="session"} 1
`, "gatehouse_logins_total", "gatehouse_whoami_total")
	if n, err := testutil.GatherAndCount(observe.Registry, "gatehouse_login_duration_seconds"); err != nil || n != 3 {
		t.Errorf("%d histograms (%v), want 3", n, err)
	}
	if problems, err := testutil.GatherAndLint(observe.Registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

// TestLinesOfLogins checks which calls are logged, at which level, and with what.
func TestLinesOfLogins(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		event  telemetry.Call
		level  string // empty: no line
		has    map[string]any
		hasNot []string
	}{
		{
			"yes",
			telemetry.Call{Path: "/login", Decision: review.Allowed, Reason: "ok", Directory: "corp", User: "corp:jane", TokenID: "t1", Client: "192.0.2.1"},
			"INFO",
			map[string]any{"msg": "login", "decision": "allowed", "reason": "ok", "directory": "corp", "user": "corp:jane", "tokenID": "t1", "client": "192.0.2.1"},
			[]string{"renewal"},
		},
		{"a renewal", telemetry.Call{Path: "/login", Decision: review.Allowed, Renewal: true, User: "corp:jane"}, "INFO", map[string]any{"renewal": true}, nil},
		{
			"no",
			telemetry.Call{Path: "/login", Decision: review.Denied, Reason: "credentials", Directory: "corp", Detail: "uid=jane,ou=people"},
			"INFO",
			map[string]any{"decision": "denied", "reason": "credentials", "detail": "uid=jane,ou=people"},
			nil,
		},
		{"refused by the guard", telemetry.Call{Path: "/login", Decision: review.Denied, Reason: "guard", User: "system:admin"}, "INFO", map[string]any{"user": "system:admin"}, nil},
		{"slowed", telemetry.Call{Path: "/login", Decision: review.Shed, Reason: "slowed"}, "WARN", map[string]any{"reason": "slowed"}, nil},
		{"refused", telemetry.Call{Path: "/login", Decision: review.Refused, Reason: "input"}, "WARN", nil, nil},
		{"cannot decide", telemetry.Call{Path: "/login", Decision: review.Unknown, Reason: "directory", Detail: "ldaps://ldap1: refused"}, "ERROR", map[string]any{"detail": "ldaps://ldap1: refused"}, nil},
		{"a renewal with a key that is not here", telemetry.Call{Path: "/login", Decision: review.Unknown, Reason: "unknown-key"}, "WARN", nil, nil},
		{"whoami yes", telemetry.Call{Path: "/whoami", Decision: review.Allowed, User: "jane"}, "", nil, nil},
		{"whoami no", telemetry.Call{Path: "/whoami", Decision: review.Denied, Reason: "expired"}, "", nil, nil},
		{"whoami cannot decide", telemetry.Call{Path: "/whoami", Decision: review.Unknown, Reason: "keys", Backend: "jwt", Source: issuer}, "ERROR", map[string]any{"msg": "whoami", "backend": "jwt", "source": issuer}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			observe, log := withSources(slog.LevelInfo)
			observe.Login(&tc.event)
			got := lines(t, log)
			if tc.level == "" {
				if len(got) > 0 {
					t.Errorf("logged %s", log)
				}
				return
			}
			if len(got) != 1 || got[0]["level"] != tc.level {
				t.Fatalf("logged %s, want one line at %s", log, tc.level)
			}
			for key, want := range tc.has {
				if got[0][key] != want {
					t.Errorf("%s is %v, want %v", key, got[0][key], want)
				}
			}
			for _, text := range tc.hasNot {
				if strings.Contains(log.String(), text) {
					t.Errorf("%q is in %s", text, log)
				}
			}
		})
	}
}

// TestNobodyFillsTheLogWithLogins sends what anybody can send. No yes, and no
// wrong password at the rate at which strangers may try, goes without its line.
func TestNobodyFillsTheLogWithLogins(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		event      telemetry.Call
		from, to   int
		suppressed bool
	}{
		{"yes", telemetry.Call{Path: "/login", Decision: review.Allowed}, 1000, 1000, false},
		{"wrong passwords", telemetry.Call{Path: "/login", Decision: review.Denied, Reason: "credentials"}, 190, 210, true},
		{"forged tokens", telemetry.Call{Path: "/login", Decision: review.Denied, Reason: "signature"}, 20, 40, true},
		{"malformed requests", telemetry.Call{Path: "/login", Decision: review.Refused, Reason: "input"}, 20, 40, true},
		{"too many", telemetry.Call{Path: "/login", Decision: review.Shed, Reason: "rate-limited"}, 20, 40, true},
		{"a directory that is down", telemetry.Call{Path: "/login", Decision: review.Unknown, Reason: "directory"}, 20, 40, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			observe, log := withSources(slog.LevelInfo)
			for i := range 1000 {
				tc.event.Started = time.Unix(0, 0).Add(time.Duration(i) * 10 * time.Millisecond)
				observe.Login(&tc.event)
			}
			if n := len(lines(t, log)); n < tc.from || n > tc.to || tc.suppressed != strings.Contains(log.String(), `"suppressed":`) {
				t.Errorf("a thousand calls in ten seconds make %d lines, want %d to %d\n%.300s", n, tc.from, tc.to, log)
			}
		})
	}
}

// TestLinesOfTokenReviews checks what a line tells of who was let in, and that
// tokens which nobody was given do not fill the log.
func TestLinesOfTokenReviews(t *testing.T) {
	t.Parallel()
	observe, log := withSources(slog.LevelDebug)
	observe.Review(&review.Outcome{
		Endpoint: "authenticate", Decision: review.Allowed, Reason: "ok",
		Backend: "login-token", Source: "corp", User: "corp:jane", TokenID: "t1",
	})
	line := lines(t, log)[0]
	for key, want := range map[string]any{"level": "DEBUG", "backend": "login-token", "source": "corp", "user": "corp:jane", "tokenID": "t1"} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	for _, tc := range []struct {
		reason   string
		decision review.Decision
		level    string
		bounded  bool
	}{
		{"foreign", review.Denied, "INFO", true},
		{"signature", review.Denied, "INFO", true},
		{"unknown-key", review.Denied, "INFO", true},
		{"unknown-key", review.Unknown, "WARN", true},
		{"keys", review.Unknown, "ERROR", true},
		{"deadline", review.Unknown, "ERROR", true},
		{"panic", review.Unknown, "ERROR", false},
		{"expired", review.Denied, "INFO", false},
		{"revoked", review.Denied, "INFO", false},
		{"guard", review.Denied, "INFO", false},
	} {
		observe, log := withSources(slog.LevelInfo)
		for range 100 {
			observe.Review(&review.Outcome{Endpoint: "authenticate", Decision: tc.decision, Reason: tc.reason})
		}
		got := lines(t, log)
		if want := map[bool]int{true: 20, false: 100}[tc.bounded]; len(got) != want || got[0]["level"] != tc.level {
			t.Errorf("%s, %s: %d lines at %v, want %d at %s", tc.decision, tc.reason, len(got), got[0]["level"], want, tc.level)
		}
	}
}

// TestAudit looks for a yes in a log that has no lines for admission.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, audited := range []bool{false, true} {
		observe, log := withSources(slog.LevelInfo)
		if audited {
			observe.AuditAuthentication()
		}
		observe.Review(&review.Outcome{Endpoint: "validate", Decision: review.Allowed})
		observe.Review(&review.Outcome{
			Endpoint: "authenticate", Decision: review.Allowed, Reason: "ok", Backend: "jwt", Source: issuer, User: "oidc:jane", TokenID: "one",
		})
		all := lines(t, log)
		if !audited {
			if len(all) > 0 {
				t.Errorf("without an audit: %v", all)
			}
			continue
		}
		if len(all) != 1 || all[0]["user"] != "oidc:jane" || all[0]["source"] != issuer || all[0]["tokenID"] != "one" || all[0]["decision"] != "allowed" {
			t.Errorf("%v", all)
		}
	}
}
