package login_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	password  = "hunter2-correct-horse"
	token     = "gatehouse-login_c2VjcmV0LXBheWxvYWQ.c2VjcmV0LXNpZ25hdHVyZQ"
	fresh     = "gatehouse-login_ZnJlc2g.c2lnbmVk"
	loginBody = `{"username":"jane","password":"` + password + `"}`
)

// noon is when tests of a given clock happen.
func noon() time.Time { return time.Date(2100, 1, 1, 12, 0, 0, 0, time.UTC) }

// yes says yes to everything.
func yes() *login.Fake {
	return &login.Fake{
		OnLogin: func(context.Context, authn.LoginRequest) authn.LoginDecision {
			return authn.LoginDecision{
				Outcome: authn.Yes, Reason: authn.ReasonOK, Directory: "corp", Token: fresh, TokenID: "t1",
				ExpiresAt: noon().Add(15 * time.Minute), SessionEnds: noon().Add(10 * time.Hour),
				User: authenticationv1.UserInfo{Username: "corp:jane", Groups: []string{"dev"}},
			}
		},
		OnDecide: func(context.Context, string, []string) authn.Decision {
			return authn.Decision{
				Outcome: authn.Yes, Reason: authn.ReasonOK, Backend: authn.LoginTokens, Source: "corp", TokenID: "t1",
				ExpiresAt: noon().Add(time.Minute),
				Status:    authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "corp:jane"}},
			}
		},
	}
}

// request is a call of an endpoint as it should be.
func request(t *testing.T, path, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.1:4711"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if path == login.WhoamiPath {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// call sends a request and returns the answer and the event.
func call(t *testing.T, fake *login.Fake, r *http.Request) (*httptest.ResponseRecorder, telemetry.Call) {
	t.Helper()
	var seen []telemetry.Call
	handler := login.HandlerOf(login.HandlerOptions{Now: noon, Observe: func(e *telemetry.Call) { seen = append(seen, *e) }}, fake)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	if len(seen) != 1 {
		t.Fatalf("%d events, want 1", len(seen))
	}
	if header := recorder.Header(); header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("the header is %v", header)
	}
	return recorder, seen[0]
}

// decode reads an answer strictly.
func decode[T any](t *testing.T, recorder *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(recorder.Body.String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("answer %q: %v", recorder.Body, err)
	}
	return v
}

// TestHostileRequests sends what cannot be answered: nobody is asked, and nothing
// of it comes back.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	type edit = func(*http.Request)
	header := func(name string, values ...string) edit {
		return func(r *http.Request) { r.Header[name] = values }
	}
	for _, tc := range []struct {
		name, path, body string
		edit             edit
		status           int
		reason, message  string
	}{
		{"PUT", login.Path, loginBody, func(r *http.Request) { r.Method = http.MethodPut }, 405, "method", "the method must be POST"},
		{"GET", login.WhoamiPath, "", func(r *http.Request) { r.Method = http.MethodGet }, 405, "method", "the method must be POST"},
		{"HEAD", login.WhoamiPath, "", func(r *http.Request) { r.Method = http.MethodHead }, 405, "method", "must be POST"},
		{"OPTIONS, as browsers ask", login.Path, "", func(r *http.Request) { r.Method = http.MethodOptions }, 405, "method", "must be POST"},
		{"a form", login.Path, "username=jane&password=" + password, header("Content-Type", "application/x-www-form-urlencoded"), 415, "media-type", "the media type must be application/json"},
		{"text, as browsers send it", login.Path, loginBody, header("Content-Type", "text/plain; application/json"), 415, "media-type", "the media type"},
		{"no media type", login.Path, loginBody, header("Content-Type"), 415, "media-type", "the media type"},
		{"a query", login.Path + "?password=" + password, loginBody, nil, 400, "input", "the URL must not have a query"},
		{"empty", login.Path, "", nil, 400, "input", "the body must be a JSON object"},
		{"no object", login.Path, `["` + password + `"]`, nil, 400, "input", "the body must be a JSON object"},
		{"null", login.Path, `null`, nil, 400, "input", "the body must be a JSON object"},
		{"text behind", login.Path, loginBody + `{"username":"root"}`, nil, 400, "input", "the body must be a JSON object"},
		{"cut off", login.Path, loginBody[:len(loginBody)-2], nil, 400, "input", "the body must be a JSON object"},
		{"a member twice", login.Path, `{"username":"jane","username":"root","password":"` + password + `"}`, nil, 400, "input", "the body must be a JSON object"},
		{"a member in another case", login.Path, `{"username":"jane","password":"x","Password":"` + password + `"}`, nil, 400, "input", "the body must be a JSON object"},
		{"a member with a long s", login.Path, `{"u\u017fername":"jane","password":"` + password + `"}`, nil, 400, "input", "the body must be a JSON object"},
		{"a member with an escape", login.Path, `{"username":"jane","\u0075sername":"root","password":"` + password + `"}`, nil, 400, "input", "the body must be a JSON object"},
		{"an unknown member", login.Path, `{"` + password + `":"jane"}`, nil, 400, "input", `allowed are "directory", "username", "password", "token" and "scope"`},
		{"a number for a text", login.Path, `{"username":"jane","password":12345}`, nil, 400, "input", "the body must be a JSON object"},
		{"half a surrogate pair", login.Path, `{"username":"jane","password":"` + password + `\ud800"}`, nil, 400, "input", "password: must be valid Unicode"},
		{"invalid UTF-8", login.Path, `{"username":"jane","password":"` + password + "\xff\"}", nil, 400, "input", "password: must be valid Unicode"},
		{"a long name", login.Path, `{"username":"` + strings.Repeat("x", 1025) + `","password":"x"}`, nil, 400, "input", "username: must not be longer than 1024 bytes"},
		{"a long password", login.Path, `{"username":"jane","password":"` + strings.Repeat("x", 1025) + `"}`, nil, 400, "input", "password: must not be longer than 1024 bytes"},
		{"a large body", login.Path, loginBody + strings.Repeat(" ", 32<<10), nil, 413, "body-too-large", "larger than 32768 bytes"},
		{"a large body of no length", login.Path, loginBody + strings.Repeat(" ", 32<<10), func(r *http.Request) { r.ContentLength = -1 }, 413, "body-too-large", "larger than 32768 bytes"},
		{"deep", login.Path, strings.Repeat(`[`, 32<<10), nil, 400, "input", "the body must be a JSON object"},
		{"a body that ends", login.Path, "", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(loginBody[:9]), brokenReader{})), 100
		}, 400, "input", "the body cannot be read"},
		{"no token", login.WhoamiPath, "", header("Authorization"), 400, "input", "Authorization: Bearer TOKEN"},
		{"two tokens", login.WhoamiPath, "", header("Authorization", "Bearer "+token, "Bearer x"), 400, "input", "one"},
		{"basic authentication", login.WhoamiPath, "", header("Authorization", "Basic "+password), 400, "input", "Bearer"},
		{"an empty token", login.WhoamiPath, "", header("Authorization", "Bearer  "), 400, "input", "Bearer"},
		{"a token in the body", login.WhoamiPath, `{"token":"` + token + `"}`, nil, 400, "input", "the body must be empty"},
		{"a body of another media type", login.WhoamiPath, `{}`, header("Content-Type", "text/plain"), 415, "media-type", "the media type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := request(t, tc.path, tc.body)
			if tc.edit != nil {
				tc.edit(r)
			}
			recorder, event := call(t, &login.Fake{}, r) // panics if it is asked
			f := decode[login.Failure](t, recorder)
			if recorder.Code != tc.status || f.Reason != tc.reason || !strings.Contains(f.Message, tc.message) || f.RetryAfterSeconds != 0 {
				t.Errorf("answer is %d %+v, want %d, %q and %q", recorder.Code, f, tc.status, tc.reason, tc.message)
			}
			if event.Decision != review.Refused || event.Reason != tc.reason {
				t.Errorf("event is %+v", event)
			}
			for _, secret := range []string{password, token, "jane", "root"} {
				if strings.Contains(recorder.Body.String(), secret) {
					t.Errorf("the answer repeats %q: %s", secret, recorder.Body)
				}
			}
			if allow := recorder.Header().Get("Allow"); (tc.status == http.StatusMethodNotAllowed) != (allow == http.MethodPost) {
				t.Errorf("Allow is %q", allow)
			}
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLoginIsAsked checks what reaches the authenticator.
func TestLoginIsAsked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		want       authn.LoginRequest
	}{
		{"a password", `{"directory":"corp","username":"jane","password":"` + password + `"}`, authn.LoginRequest{Directory: "corp", Username: "jane", Password: password}},
		{"a renewal", `{"token":"` + token + `"}`, authn.LoginRequest{Token: token}},
		{"an exchange", `{"token":"eyJhbGciOiJub25lIn0.e30.","scope":"view"}`, authn.LoginRequest{Token: "eyJhbGciOiJub25lIn0.e30.", Scope: "view"}},
		{"nothing", ` {} `, authn.LoginRequest{}},
		{"nothing is trimmed or folded", `{"username":" JANE ","password":" \u0000 "}`, authn.LoginRequest{Username: " JANE ", Password: " \x00 "}},
		{"the largest token", `{"token":"` + strings.Repeat("x", 16<<10) + `"}`, authn.LoginRequest{Token: strings.Repeat("x", 16<<10)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake, asked := yes(), authn.LoginRequest{}
			answer := fake.OnLogin
			fake.OnLogin = func(ctx context.Context, r authn.LoginRequest) authn.LoginDecision {
				asked = r
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 10*time.Second {
					t.Error("there is no time limit")
				}
				return answer(ctx, r)
			}
			r := request(t, login.Path, tc.body)
			r.Header.Set("Content-Type", "Application/JSON; charset=utf-8")
			r.Header.Set("X-Forwarded-For", "198.51.100.1")
			recorder, event := call(t, fake, r)
			if asked != tc.want {
				t.Errorf("asked %+v, want %+v", asked, tc.want)
			}
			got := decode[login.Issued](t, recorder)
			if recorder.Code != http.StatusOK || got.Token != fresh || !got.ExpiresAt.Equal(noon().Add(15*time.Minute)) ||
				!got.SessionEnds.Equal(noon().Add(10*time.Hour)) || got.User.Username != "corp:jane" || got.User.Groups[0] != "dev" {
				t.Errorf("answer is %d %+v", recorder.Code, got)
			}
			if event.Decision != review.Allowed || event.User != "corp:jane" || event.TokenID != "t1" || event.Directory != "corp" || event.Renewal != (tc.want.Token != "" && tc.want.Scope == "") {
				t.Errorf("event is %+v", event)
			}
		})
	}
}

// TestLoginAnswers checks the status and the words of each answer that is no
// token.
func TestLoginAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		decision authn.LoginDecision
		status   int
		want     review.Decision
	}{
		{"wrong name or password", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonCredentials}, 401, review.Denied},
		{"the session has ended", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonSession}, 401, review.Denied},
		{"revoked", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonRevoked}, 401, review.Denied},
		{"a forged token", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonSignature}, 401, review.Denied},
		{"refused by the guard", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonGuard}, 403, review.Denied},
		{"too large for a token", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonTooLarge}, 403, review.Denied},
		{"no such directory", authn.LoginDecision{Outcome: authn.No, Reason: authn.ReasonInput}, 400, review.Denied},
		{"the directory is down", authn.LoginDecision{Outcome: authn.Unknown, Reason: authn.ReasonDirectory}, 503, review.Unknown},
		{"a decision that is none", authn.LoginDecision{Token: fresh}, 503, review.Unknown},
		{"a yes without a token", authn.LoginDecision{Outcome: authn.Yes, Reason: authn.ReasonOK}, 500, review.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.decision.Detail = "uid=jane,ou=people on ldap1"
			fake := &login.Fake{OnLogin: func(context.Context, authn.LoginRequest) authn.LoginDecision { return tc.decision }}
			recorder, event := call(t, fake, request(t, login.Path, loginBody))
			f := decode[login.Failure](t, recorder)
			if recorder.Code != tc.status || f.RetryAfterSeconds != 0 || f.Message == "" {
				t.Errorf("answer is %d %+v, want %d", recorder.Code, f, tc.status)
			}
			if header := recorder.Header().Get("Retry-After"); header != "" {
				t.Errorf("Retry-After is %q", header)
			}
			if tc.status != http.StatusInternalServerError && f.Reason != string(tc.decision.Reason) {
				t.Errorf("reason is %q", f.Reason)
			}
			if event.Decision != tc.want || event.Detail == "" {
				t.Errorf("event is %+v, want %s", event, tc.want)
			}
			if body := recorder.Body.String(); strings.Contains(body, "ldap1") || strings.Contains(body, fresh) || strings.Contains(body, password) {
				t.Errorf("the answer tells %s", body)
			}

			tc.decision.Message = "what the set says"
			recorder, _ = call(t, fake, request(t, login.Path, loginBody))
			if f := decode[login.Failure](t, recorder); tc.decision.Outcome != authn.Yes && f.Message != tc.decision.Message {
				t.Errorf("the message is %q", f.Message)
			}
		})
	}
}

// TestWhoami checks what the holder of a token is told.
func TestWhoami(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		decision authn.Decision
		want     login.Answer
		event    review.Decision
	}{
		{
			"yes",
			authn.Decision{
				Outcome: authn.Yes, Reason: authn.ReasonOK, Backend: authn.JWTs, Source: "https://issuer.example", TokenID: "j1",
				IssuedAt: noon(), ExpiresAt: noon().Add(time.Hour),
				Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}},
			},
			login.Answer{
				Outcome: "yes", Reason: "ok", User: &authenticationv1.UserInfo{Username: "jane"},
				Backend: "jwt", Source: "https://issuer.example", TokenID: "j1", IssuedAt: new(noon()), ExpiresAt: new(noon().Add(time.Hour)),
			},
			review.Allowed,
		},
		{
			"expired",
			authn.Decision{Outcome: authn.No, Reason: authn.ReasonExpired, Backend: authn.JWTs, Detail: "an hour ago"},
			login.Answer{Outcome: "no", Reason: "expired", Backend: "jwt", Message: "the token has expired (hint: log in again, or ask for a new one): an hour ago"},
			review.Denied,
		},
		{
			"nothing of the configuration for a forged one",
			authn.Decision{Outcome: authn.No, Reason: authn.ReasonAudience, Backend: authn.JWTs, Detail: "must be for kubernetes-prod"},
			login.Answer{Outcome: "no", Reason: "audience", Backend: "jwt", Message: "the token is for other audiences than the requested ones (hint: log in with the client ID that the administrator names, or ask for another token)"},
			review.Denied,
		},
		{
			"cannot decide",
			authn.Decision{Outcome: authn.Unknown, Reason: authn.ReasonKeys, Backend: authn.JWTs, Detail: "dial tcp 10.0.0.7: refused"},
			login.Answer{Outcome: "unknown", Reason: "keys", Backend: "jwt", Message: "the keys of the token's issuer are not available (hint: try again in a minute)"},
			review.Unknown,
		},
		{
			"an unknown access token",
			authn.Decision{Outcome: authn.Unknown, Reason: authn.ReasonUnknownID, Backend: authn.AccessTokens, TokenID: "ci"},
			notKnown(),
			review.Unknown,
		},
		{
			"an access token of a known id is answered in the same way",
			authn.Decision{Outcome: authn.No, Reason: authn.ReasonWrongSecret, Backend: authn.AccessTokens, Source: "access-tokens", TokenID: "ci", Detail: "of another hash"},
			notKnown(),
			review.Denied,
		},
		{
			"no identity beside a no",
			authn.Decision{Outcome: authn.No, Reason: authn.ReasonForeign, Status: authenticationv1.TokenReviewStatus{User: authenticationv1.UserInfo{Username: "jane"}}},
			login.Answer{Outcome: "no", Reason: "foreign", Message: login.Sentence(authn.ReasonForeign)},
			review.Denied,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := &login.Fake{OnDecide: func(_ context.Context, shown string, audiences []string) authn.Decision {
				if shown != token || audiences != nil {
					t.Errorf("asked about %q for %q", shown, audiences)
				}
				return tc.decision
			}}
			r := request(t, login.WhoamiPath, " {} ")
			r.Header.Set("Authorization", "bearer "+token)
			recorder, event := call(t, fake, r)
			want, err := json.Marshal(tc.want)
			if err != nil {
				t.Fatal(err)
			}
			if recorder.Code != http.StatusOK || recorder.Body.String() != string(want) {
				t.Errorf("answer is %d\n%s, want\n%s", recorder.Code, recorder.Body, want)
			}
			if event.Decision != tc.event || event.Path != login.WhoamiPath || event.Backend != tc.decision.Backend || event.Detail != tc.decision.Detail {
				t.Errorf("event is %+v", event)
			}
		})
	}
}

// notKnown is the answer about an access token that is not known.
func notKnown() login.Answer {
	return login.Answer{Outcome: "unknown", Reason: "unknown-id", Backend: "access-token", Message: login.Sentence(authn.ReasonUnknownID)}
}

// lateReader is an empty body that takes its time.
type lateReader time.Duration

func (d lateReader) Read([]byte) (int, error) {
	time.Sleep(time.Duration(d))
	return 0, io.EOF
}

// TestPanic wants a 500 with nothing in it, and for the log the place and nothing
// of the request.
func TestPanic(t *testing.T) {
	t.Parallel()
	for name, fake := range map[string]*login.Fake{
		login.Path: {OnLogin: func(_ context.Context, r authn.LoginRequest) authn.LoginDecision { panic("of " + r.Password) }},
		login.WhoamiPath: {OnDecide: func(_ context.Context, token string, _ []string) authn.Decision {
			panic(fmt.Errorf("of %s", token))
		}},
	} {
		body := map[string]string{login.Path: loginBody}[name]
		recorder, event := call(t, fake, request(t, name, body))
		if f := decode[login.Failure](t, recorder); recorder.Code != http.StatusInternalServerError || f.Reason != login.ReasonInternal {
			t.Errorf("%s answers %d %+v", name, recorder.Code, f)
		}
		if event.Decision != review.Unknown || !strings.Contains(event.Detail, "handler_test.go") {
			t.Errorf("event is %+v", event)
		}
		if all := recorder.Body.String() + event.Detail; strings.Contains(all, password) || strings.Contains(all, token) {
			t.Errorf("a secret is in %s", all)
		}
	}
}

// TestRates checks how often an address may call, and what an address is.
func TestRates(t *testing.T) {
	t.Parallel()
	now := noon()
	var events []telemetry.Call
	handler := login.HandlerOf(login.HandlerOptions{
		Now: func() time.Time { return now }, Observe: func(e *telemetry.Call) { events = append(events, *e) },
	}, yes())
	send := func(path, from string) *httptest.ResponseRecorder {
		r := request(t, path, map[string]string{login.Path: loginBody}[path])
		r.RemoteAddr = from
		r.Header.Set("X-Forwarded-For", fmt.Sprint("203.0.113.", len(events)))
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		return recorder
	}
	for _, tc := range []struct {
		path  string
		burst int
		every time.Duration
	}{{login.Path, 20, 2 * time.Second}, {login.WhoamiPath, 60, 200 * time.Millisecond}} {
		for i := range tc.burst {
			if code := send(tc.path, fmt.Sprintf("[2001:db8::%x]:%d", i, 1000+i)).Code; code != http.StatusOK {
				t.Fatalf("%s: call %d is answered %d", tc.path, i, code)
			}
		}
		refused := send(tc.path, "[2001:db8::ffff]:1")
		f, event := decode[login.Failure](t, refused), events[len(events)-1]
		if refused.Code != http.StatusTooManyRequests || f.Reason != login.ReasonRateLimited ||
			refused.Header().Get("Retry-After") != strconv.Itoa(f.RetryAfterSeconds) || f.RetryAfterSeconds != int(max(tc.every, time.Second).Seconds()) {
			t.Errorf("%s: one too many is answered %d %v %+v", tc.path, refused.Code, refused.Header(), f)
		}
		if event.Decision != review.Shed || event.Client != "2001:db8::/64" {
			t.Errorf("event is %+v", event)
		}
		if code := send(tc.path, "[2001:db8:0:1::1]:1").Code; code != http.StatusOK {
			t.Errorf("%s: another address is answered %d", tc.path, code)
		}
		now = now.Add(tc.every)
		if first, second := send(tc.path, "[2001:db8::1]:1").Code, send(tc.path, "[2001:db8::1]:1").Code; first != http.StatusOK || second != http.StatusTooManyRequests {
			t.Errorf("%s: after a while two calls are answered %d and %d", tc.path, first, second)
		}
	}
}

// TestRoom fills the server with logins of strangers that never end: those who
// are known still get in, and the others hear it soon.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck, fake := make(chan struct{}), yes()
		answer := fake.OnLogin
		fake.OnLogin = func(ctx context.Context, r authn.LoginRequest) authn.LoginDecision {
			if r.Username != "jane" {
				<-stuck
			}
			return answer(ctx, r)
		}
		handler := login.HandlerOf(login.HandlerOptions{Now: time.Now}, fake)
		send := func(from, body string) *httptest.ResponseRecorder {
			r := request(t, login.Path, body)
			r.RemoteAddr = from + ":1"
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, r)
			return recorder
		}
		send("192.0.2.1", loginBody) // is known from now on
		for i := range 16 {
			go send(fmt.Sprint("198.51.100.", i/4), fmt.Sprintf(`{"username":"eve%d"}`, i))
		}
		synctest.Wait()
		start := time.Now()
		shed := send("198.51.100.9", loginBody)
		if f := decode[login.Failure](t, shed); shed.Code != http.StatusServiceUnavailable || f.Reason != login.ReasonOverload || f.RetryAfterSeconds != 1 {
			t.Errorf("a stranger is answered %d %+v", shed.Code, f)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("a stranger has waited for %s", took)
		}
		if known := send("192.0.2.1", loginBody); known.Code != http.StatusOK {
			t.Errorf("a familiar client is answered %d %s", known.Code, known.Body)
		}
		close(stuck)
		synctest.Wait()
		if after := send("198.51.100.9", loginBody); after.Code != http.StatusOK {
			t.Errorf("when there is room again, a stranger is answered %d", after.Code)
		}
	})
}
