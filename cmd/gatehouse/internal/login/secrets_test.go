package login_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// TestNoSecretIsWritten sends passwords and tokens wherever they can stand, with
// every outcome, and looks for them in all that is logged, measured and answered.
func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, writeNoSecret) // refusals take their time
}

func writeNoSecret(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	observe := telemetry.New(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), "v1")
	const upper = "HUNTER2-Correct-Horse" // a password in the field of the name is folded
	bodies := []string{
		loginBody,
		`{"username":"` + password + `","password":"jane"}`,
		`{"username":" ` + upper + ` ","password":""}`,
		`{"directory":"` + password + `","username":"jane","password":"x"}`,
		`{"token":"` + token + `"}`,
		`{"username":"` + token + `","password":"` + token + `"}`,
		`{"` + password + `":"` + token + `"}`,
		`{"password":"` + password + `","password":"` + password + `"}`,
		`{"password":["` + password + `"]}`,
		`{"password":"` + password,
		password, token,
	}
	outcomes := map[string]*login.Fake{
		"yes": yes(),
		"no": {
			OnLogin: func(context.Context, authn.LoginRequest) authn.LoginDecision {
				return authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonCredentials, Directory: "corp", Detail: "no account"}
			},
			OnDecide: func(context.Context, string, []string) authn.Decision {
				return authn.Decision{Outcome: authn.No, Reason: authn.ReasonExpired, Status: authenticationv1.TokenReviewStatus{}}
			},
		},
		"unknown": {
			OnLogin: func(context.Context, authn.LoginRequest) authn.LoginDecision {
				return authn.LoginDecision{Outcome: authn.Unknown, Reason: authn.ReasonDirectory}
			},
			OnDecide: func(context.Context, string, []string) authn.Decision { return authn.Decision{Outcome: authn.Unknown} },
		},
		"panic": {
			OnLogin:  func(_ context.Context, r authn.LoginRequest) authn.LoginDecision { panic(r) },
			OnDecide: func(_ context.Context, token string, _ []string) authn.Decision { panic(errors.New(token)) },
		},
	}
	var answers bytes.Buffer
	requests := 0
	for _, fake := range outcomes {
		handler := login.HandlerWith(login.HandlerOptions{Now: time.Now, Observe: observe.Login}, fake, 40, 0)
		for _, path := range []string{login.Path, login.WhoamiPath} {
			for _, body := range bodies {
				for _, edit := range []func(header map[string][]string){
					func(map[string][]string) {},
					func(header map[string][]string) { header["Content-Type"] = []string{password} },
					func(header map[string][]string) { header["Authorization"] = []string{token} },
					func(header map[string][]string) { header["X-Forwarded-For"] = []string{password} },
				} {
					r := request(t, path, body)
					edit(r.Header)
					recorder := httptest.NewRecorder()
					handler.ServeHTTP(recorder, r)
					answers.Write(recorder.Body.Bytes())
					requests++
				}
			}
		}
	}
	metrics := httptest.NewRecorder()
	promhttp.HandlerFor(observe.Registry, promhttp.HandlerOpts{}).
		ServeHTTP(metrics, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for name, text := range map[string]string{"log": log.String(), "metrics": metrics.Body.String(), "answers": answers.String()} {
		if !strings.Contains(text, "credentials") {
			t.Errorf("the %s of %d requests tell nothing:\n%s", name, requests, text)
		}
		for _, secret := range []string{password, token, strings.Split(token, ".")[1], strings.Split(token, ".")[0]} {
			if at := strings.Index(strings.ToLower(text), strings.ToLower(secret)); at >= 0 {
				t.Errorf("%q is in the %s: …%s", secret, name, text[max(0, at-200):at])
			}
		}
	}
	if strings.Contains(log.String()+metrics.Body.String(), fresh) {
		t.Error("a new token is in the log or the metrics")
	}
}
