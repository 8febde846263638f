package login_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

func TestLogout(t *testing.T) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	no := authn.Decision{Outcome: authn.No, Reason: authn.ReasonSignature, Detail: "no key of the issuer verifies it"}
	for name, test := range map[string]struct {
		method, query, media, body string
		decision                   authn.Decision
		stored                     error
		status                     int
		answer                     string
		event                      review.Decision
		reason                     string
	}{
		"accepted":               {body: "logout_token=abc", status: 200, answer: `{}`, event: review.Allowed, reason: "ok"},
		"with other fields":      {body: "x=1&logout_token=abc&y=2", status: 200, answer: `{}`, event: review.Allowed, reason: "ok"},
		"a media type with more": {media: form + "; charset=utf-8", body: "logout_token=abc", status: 200, answer: `{}`, event: review.Allowed, reason: "ok"},
		"refused":                {body: "logout_token=abc", decision: no, status: 400, answer: `{"error":"invalid_request","error_description":"the logout token is not accepted"}`, event: review.Denied, reason: "signature"},
		"cannot decide":          {body: "logout_token=abc", decision: authn.Decision{Outcome: authn.Unknown, Reason: authn.ReasonKeys}, status: 400, answer: `"the logout token is not accepted"`, event: review.Unknown, reason: "keys"},
		"not stored":             {body: "logout_token=abc", stored: errors.New("10.0.0.1 refused"), status: 400, answer: `{"error":"temporarily_unavailable","error_description":"the logout could not be stored"}`, event: review.Unknown, reason: "not-stored"},
		"too many":               {body: "logout_token=abc", stored: fmt.Errorf("%w: 3", tokens.ErrTooManyLogouts), status: 400, answer: `{"error":"temporarily_unavailable","error_description":"too many logouts are stored already"}`, event: review.Unknown, reason: "not-stored"},
		"no token":               {body: "token=abc", status: 400, answer: `logout_token once`, event: review.Refused, reason: "input"},
		"an empty token":         {body: "logout_token=", status: 400, answer: `logout_token once`, event: review.Refused, reason: "input"},
		"two tokens":             {body: "logout_token=a&logout_token=b", status: 400, answer: `logout_token once`, event: review.Refused, reason: "input"},
		"no form":                {body: "logout_token=%zz", status: 400, answer: `logout_token once`, event: review.Refused, reason: "input"},
		"an empty body":          {status: 400, answer: `logout_token once`, event: review.Refused, reason: "input"},
		"JSON":                   {media: "application/json", body: `{"logout_token":"abc"}`, status: 400, answer: `the media type must be`, event: review.Refused, reason: "media-type"},
		"a token in the URL":     {query: "?logout_token=abc", status: 400, answer: `the URL must not have a query`, event: review.Refused, reason: "input"},
		"a large body":           {body: "logout_token=" + strings.Repeat("a", 32<<10), status: 400, answer: `larger than 32768 bytes`, event: review.Refused, reason: "body-too-large"},
		"GET":                    {method: "GET", status: 405, answer: `the method must be POST`, event: review.Refused, reason: "method"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.decision.Outcome == "" {
				test.decision = authn.Decision{Outcome: authn.Yes, Reason: authn.ReasonOK, Source: "https://issuer.example"}
			}
			asked, stored := 0, 0
			fake := &login.Fake{OnLogout: func(_ context.Context, token string) (v1alpha1.TokenRevocationSpec, authn.Decision) {
				if asked++; token != "abc" {
					t.Errorf("asked about %q", token)
				}
				return v1alpha1.TokenRevocationSpec{SessionID: "s-1"}, test.decision
			}}
			var events []telemetry.Call
			handler := login.HandlerOf(login.HandlerOptions{
				Now: noon, Observe: func(e *telemetry.Call) { events = append(events, *e) },
				Revoke: func(_ context.Context, spec *v1alpha1.TokenRevocationSpec) error {
					if stored++; spec.SessionID != "s-1" {
						t.Errorf("stored %+v", spec)
					}
					return test.stored
				},
			}, fake)
			r := request(t, login.LogoutPath+test.query, test.body)
			r.Header.Set("Content-Type", form)
			if test.media != "" {
				r.Header.Set("Content-Type", test.media)
			}
			if test.method != "" {
				r.Method = test.method
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, r)
			header := recorder.Header()
			if recorder.Code != test.status || !strings.Contains(recorder.Body.String(), test.answer) || header.Get("Cache-Control") != "no-store" || header.Get("Content-Type") != "application/json" {
				t.Errorf("got %d %s %v", recorder.Code, recorder.Body, header)
			}
			if len(events) != 1 || events[0].Decision != test.event || events[0].Reason != test.reason || events[0].Path != login.LogoutPath {
				t.Errorf("events %+v", events)
			}
			if refused := test.event == review.Refused; (asked == 0) != refused || (stored == 1) != (!refused && test.decision.Outcome == authn.Yes) {
				t.Errorf("asked %d times, stored %d", asked, stored)
			}
		})
	}
	recorder := httptest.NewRecorder()
	login.HandlerOf(login.HandlerOptions{Now: noon}, &login.Fake{}).ServeHTTP(recorder, request(t, login.LogoutPath, "logout_token=abc"))
	if recorder.Code != 404 {
		t.Errorf("without Revoke: %d", recorder.Code)
	}
}
