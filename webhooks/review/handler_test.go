package review_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// observed collects outcomes. A test reads the next one from the channel.
type observed chan review.Outcome

func options(seen observed) review.Options {
	return review.Options{
		Name: "test", MaxBytes: 1 << 20, MaxTime: 30 * time.Second,
		InFlight: review.NewBudget(4 << 20), Slots: review.NewSlots(4),
		Observe: func(o *review.Outcome) { seen <- *o }, Now: time.Now,
	}
}

func allow(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

func known(_ context.Context, r authentication.Request) authentication.Response {
	var response authentication.Response
	switch r.Spec.Token {
	case "good":
		response.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}
	case "unknown":
		response.Status.Error = "backend is down"
	case "panic":
		panic("secret")
	}
	return response
}

const tokenBody = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","spec":{"token":"good"}}`

// endless is a body without an end and without a length.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

// TestHostileRequests sends the same bad requests to both kinds of endpoint.
// Admission answers with a status that lets failurePolicy decide;
// authentication answers 200 and an error, whatever comes.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		method      string
		contentType string
		body        io.Reader
		status      int // of admission
		text        string
		decision    review.Decision
		reason      string
	}{
		{"GET", http.MethodGet, "application/json", nil, 405, "only POST is answered here", review.Refused, "method"},
		{"wrong media type", http.MethodPost, "text/plain", strings.NewReader("{}"), 415, "the media type must be application/json", review.Refused, "media-type"},
		{"no media type", http.MethodPost, "", strings.NewReader("{}"), 415, "the media type must be application/json", review.Refused, "media-type"},
		{"empty", http.MethodPost, "application/json", nil, 400, "invalid JSON at byte 0: text ends too early", review.Refused, "malformed"},
		{"media type with a parameter", http.MethodPost, "Application/JSON; charset=utf-8", strings.NewReader("[]"), 400, "the body must be a JSON object", review.Refused, "malformed"},
		{"larger than announced to be allowed", http.MethodPost, "application/json", bytes.NewReader(make([]byte, 1<<20+1)), 413, "the body is larger than 1048576 bytes", review.Refused, "too-large"},
		{"endless", http.MethodPost, "application/json", &endless{}, 413, "the body is larger than 1048576 bytes", review.Refused, "too-large"},
		{"quotes", http.MethodPost, "application/json", strings.NewReader(strings.Repeat(`"`, 1<<20)), 400, "invalid JSON at byte 2: text after the value", review.Refused, "malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			body, err := io.ReadAll(io.LimitReader(orEmpty(tc.body), 4<<20))
			if err != nil {
				t.Fatal(err)
			}
			for endpoint, handler := range map[string]func(review.Options) http.Handler{
				"admission": func(o review.Options) http.Handler { return review.Admission(allow, o) },
				"token":     func(o review.Options) http.Handler { return review.Token(known, o) },
			} {
				seen := make(observed, 1)
				request := httptest.NewRequestWithContext(t.Context(), tc.method, "/?timeout=10s", bytes.NewReader(body))
				if tc.name == "endless" {
					request.Body, request.ContentLength = io.NopCloser(&endless{}), -1
				}
				request.Header.Set("Content-Type", tc.contentType)
				recorder := httptest.NewRecorder()
				handler(options(seen)).ServeHTTP(recorder, request)
				if endpoint == "admission" || tc.status == http.StatusMethodNotAllowed {
					if recorder.Code != tc.status || strings.TrimSpace(recorder.Body.String()) != tc.text {
						t.Errorf("%s answers %d %q, want %d %q", endpoint, recorder.Code, recorder.Body, tc.status, tc.text)
					}
				} else {
					status := tokenStatus(t, recorder)
					if status.Authenticated || status.Error != tc.text {
						t.Errorf("%s answers %+v, want the error %q", endpoint, status, tc.text)
					}
				}
				if out := <-seen; out.Decision != tc.decision || out.Reason != tc.reason {
					t.Errorf("%s is seen as %s (%s), want %s (%s)", endpoint, out.Decision, out.Reason, tc.decision, tc.reason)
				}
			}
		})
	}
}

func orEmpty(r io.Reader) io.Reader {
	if r == nil {
		return strings.NewReader("")
	}
	return r
}

// tokenStatus reads an answer that must be a TokenReview, with its version or
// without any.
func tokenStatus(t *testing.T, recorder *httptest.ResponseRecorder) authenticationv1.TokenReviewStatus {
	t.Helper()
	var r authenticationv1.TokenReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &r); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("answer is %d %q: %v", recorder.Code, recorder.Body, err)
	}
	if header := recorder.Header(); header.Get("Retry-After") != "" {
		t.Errorf("the API server would come back for a minute: %v", header)
	}
	return r.Status
}

func post(t *testing.T, handler http.Handler, url, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func TestAdmissionOutcomes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		f        review.AdmissionFunc
		status   int
		decision review.Decision
		reason   string
		body     string // what the answer says, if it is no review
	}{
		{"yes", allow, 200, review.Allowed, "", ""},
		{"no", func(context.Context, admission.Request) admission.Response { return admission.Denied("not here") }, 200, review.Denied, "Forbidden", ""},
		{"could not tell", func(context.Context, admission.Request) admission.Response {
			return admission.Errored(http.StatusInternalServerError, errors.New("secret"))
		}, 500, review.Unknown, "internal", "could not decide; the webhook's log has the reason"},
		{"panic", func(context.Context, admission.Request) admission.Response { panic("secret") }, 500, review.Unknown, "panic", "could not decide; the webhook's log has the reason"},
		{"patch is no JSON", func(context.Context, admission.Request) admission.Response {
			r := admission.Patched("")
			r.Patches = append(r.Patches, jsonOperation(make(chan int)))
			return r
		}, 500, review.Unknown, "internal", "could not decide; the webhook's log has the reason"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 1)
			recorder := post(t, review.Admission(tc.f, options(seen)), "/?timeout=10s", admissionBody())
			if recorder.Code != tc.status {
				t.Errorf("status is %d %q, want %d", recorder.Code, recorder.Body, tc.status)
			}
			if tc.body == "" {
				got := verify(t, recorder.Body.Bytes(), true)
				if got.Allowed != (tc.decision == review.Allowed) {
					t.Errorf("the API server understands allowed: %v", got.Allowed)
				}
			} else if strings.TrimSpace(recorder.Body.String()) != tc.body {
				t.Errorf("answer is %q, want %q", recorder.Body, tc.body)
			}
			out := <-seen
			if out.Decision != tc.decision || out.Reason != tc.reason || out.UID != uid || out.User != "jane" || out.Bytes != len(admissionBody()) {
				t.Errorf("outcome is %+v", out)
			}
			if tc.reason == "panic" && !strings.Contains(out.Detail, "http_test.go") {
				t.Errorf("the log would not tell where the panic was: %q", out.Detail)
			}
		})
	}
}

func TestTokenOutcomes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		token    string
		decision review.Decision
		error    string
	}{
		{"good", review.Allowed, ""},
		{"bad", review.Denied, ""},
		{"unknown", review.Unknown, "backend is down"},
		{"panic", review.Unknown, "could not decide; the webhook's log has the reason"},
	} {
		t.Run(tc.token, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 1)
			recorder := post(t, review.Token(known, options(seen)), "/?timeout=30s", strings.Replace(tokenBody, "good", tc.token, 1))
			status := tokenStatus(t, recorder)
			if status.Authenticated != (tc.decision == review.Allowed) || status.Error != tc.error {
				t.Errorf("status is %+v, want the error %q", status, tc.error)
			}
			if strings.Contains(recorder.Body.String(), `"spec"`) {
				t.Errorf("the answer repeats the request: %s", recorder.Body)
			}
			if out := <-seen; out.Decision != tc.decision {
				t.Errorf("seen as %s, want %s", out.Decision, tc.decision)
			}
		})
	}
}

// TestTokenOutcomeNames checks that the log learns from the annotations who
// answered and about whom, and the caller does not.
func TestTokenOutcomeNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		status    authenticationv1.TokenReviewStatus
		annotated string
		detail    string
	}{
		{"yes", authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}, "", ""},
		{"no", authenticationv1.TokenReviewStatus{}, "a-detail", "a-detail"},
		{"could not tell", authenticationv1.TokenReviewStatus{Error: "later"}, "", "later"},
		{"could not tell, and why", authenticationv1.TokenReviewStatus{Error: "later"}, "a-detail", "a-detail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 1)
			recorder := post(t, review.Token(func(context.Context, authentication.Request) authentication.Response {
				response := authentication.Response{TokenReview: authenticationv1.TokenReview{Status: tc.status}}
				response.Annotations = map[string]string{
					"gatehouse.dev/reason": "a-reason", "gatehouse.dev/token-id": "a-id", "gatehouse.dev/backend": "a-backend",
					"gatehouse.dev/source": "a-source", "gatehouse.dev/user": "a-user", "gatehouse.dev/detail": tc.annotated,
				}
				return response
			}, options(seen)), "/?timeout=30s", tokenBody)
			out := <-seen
			if out.Reason != "a-reason" || out.TokenID != "a-id" || out.Backend != "a-backend" || out.Source != "a-source" || out.User != "a-user" || out.Detail != tc.detail {
				t.Errorf("outcome is %+v", out)
			}
			if body := recorder.Body.String(); strings.Contains(body, "a-") {
				t.Errorf("the caller is told %s", body)
			}
		})
	}
}

// TestCallerIsAsked checks that a caller who may not ask gets no decision.
func TestCallerIsAsked(t *testing.T) {
	t.Parallel()
	seen := make(observed, 2)
	o := options(seen)
	o.Admit = func(*http.Request) error { return errors.New("a client certificate is required") }
	if status := tokenStatus(t, post(t, review.Token(known, o), "/", tokenBody)); status.Authenticated || status.Error != "a client certificate is required" {
		t.Errorf("a stranger's token review is answered %+v", status)
	}
	if recorder := post(t, review.Admission(allow, o), "/", admissionBody()); recorder.Code != http.StatusForbidden {
		t.Errorf("a stranger's admission review is answered %d", recorder.Code)
	}
}

// TestDeadline checks that a decision gets what the caller's ?timeout= leaves,
// and never more than the endpoint's own bound.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		query string
		want  time.Duration
	}{
		{"?timeout=10s", 10*time.Second - 200*time.Millisecond},
		{"?timeout=1s", 900 * time.Millisecond},
		{"?other=1&timeout=2s", 1800 * time.Millisecond},
		{"?timeout=20ms", 50 * time.Millisecond},
		{"?timeout=1h", 30*time.Second - 200*time.Millisecond},
		{"?timeout=-1s", 30*time.Second - 200*time.Millisecond},
		{"?timeout=soon", 30*time.Second - 200*time.Millisecond},
		{"?%zz", 30*time.Second - 200*time.Millisecond},
		{"", 30*time.Second - 200*time.Millisecond},
	} {
		start := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
		o := options(make(observed, 1))
		o.Now = func() time.Time { return start }
		var got time.Duration
		post(t, review.Admission(func(ctx context.Context, _ admission.Request) admission.Response {
			deadline, _ := ctx.Deadline()
			got = deadline.Sub(start)
			return admission.Allowed("")
		}, o), "/mutate"+tc.query, admissionBody())
		if got != tc.want {
			t.Errorf("with %q a decision gets %s, want %s", tc.query, got, tc.want)
		}
	}
}

// TestADecisionThatRunsOutOfTimeIsNoDenial lets a decision notice its deadline.
func TestADecisionThatRunsOutOfTimeIsNoDenial(t *testing.T) {
	t.Parallel()
	seen := make(observed, 1)
	recorder := post(t, review.Admission(func(ctx context.Context, _ admission.Request) admission.Response {
		<-ctx.Done()
		return admission.Errored(http.StatusInternalServerError, ctx.Err())
	}, options(seen)), "/?timeout=10ms", admissionBody())
	if out := <-seen; recorder.Code != http.StatusInternalServerError || out.Decision != review.Unknown || out.Reason != "deadline" {
		t.Errorf("answer is %d, seen as %s (%s)", recorder.Code, out.Decision, out.Reason)
	}
}

// TestCallerThatGoesAwayCancels runs over a real connection.
func TestCallerThatGoesAwayCancels(t *testing.T) {
	t.Parallel()
	seen := make(observed, 1)
	entered := make(chan struct{})
	server := httptest.NewServer(review.Admission(func(ctx context.Context, _ admission.Request) admission.Response {
		close(entered)
		<-ctx.Done()
		return admission.Errored(http.StatusInternalServerError, ctx.Err())
	}, options(seen)))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"?timeout=30s", strings.NewReader(admissionBody()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	go func() {
		<-entered
		cancel()
	}()
	if response, err := server.Client().Do(request); err == nil {
		_ = response.Body.Close()
		t.Fatal("the call was not cancelled")
	}
	if out := <-seen; out.Reason != "aborted" {
		t.Errorf("seen as %s (%s), want aborted", out.Decision, out.Reason)
	}
}

// TestOverload fills the only slot and checks what the next caller is told: an
// API server with time left comes back once, on a new connection; one without
// fails at once; a token review is never told to come back.
func TestOverload(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, query string
		retry       string
	}{
		{"with time left", "?timeout=2s", "1"},
		{"without time left", "?timeout=1s", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 4)
			o := options(seen)
			o.Slots = review.NewSlots(1)
			entered, leave := make(chan struct{}), make(chan struct{})
			handler := review.Admission(func(context.Context, admission.Request) admission.Response {
				close(entered)
				<-leave
				return admission.Allowed("")
			}, o)
			var first sync.WaitGroup
			first.Go(func() { post(t, handler, "/?timeout=30s", admissionBody()) })
			<-entered
			recorder := post(t, handler, "/"+tc.query, admissionBody())
			token := post(t, review.Token(known, o), "/"+tc.query, tokenBody)
			close(leave)
			first.Wait()
			if recorder.Code != http.StatusServiceUnavailable || recorder.Header().Get("Retry-After") != tc.retry ||
				(recorder.Header().Get("Connection") == "close") != (tc.retry != "") {
				t.Errorf("a shed review is answered %d %v", recorder.Code, recorder.Header())
			}
			if status := tokenStatus(t, token); status.Error != "too many reviews at one time" {
				t.Errorf("a shed token review is answered %+v", status)
			}
			if out := <-seen; out.Decision != review.Shed || out.Reason != "overload" || out.Waited <= 0 {
				t.Errorf("outcome is %+v", out)
			}
		})
	}
}

// TestBytesInFlight checks that a body which does not fit beside the others is
// shed, that everything reserved is given back, also after a panic, and that a
// caller who announces much and sends nothing holds little.
func TestBytesInFlight(t *testing.T) {
	t.Parallel()
	large := admissionBody(`"spec":{`, `"spec":{"x":"`+strings.Repeat("x", 900<<10)+`",`)
	seen := make(observed, 32)
	o := options(seen)
	o.InFlight = review.NewBudget(9 << 18)
	entered, leave := make(chan struct{}), make(chan struct{})
	holding := review.Admission(func(context.Context, admission.Request) admission.Response {
		close(entered)
		<-leave
		panic("at the worst moment")
	}, o)
	var first sync.WaitGroup
	first.Go(func() { post(t, holding, "/", large) })
	<-entered
	if recorder := post(t, review.Admission(allow, o), "/?timeout=40ms", large); recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("a second large body is answered %d", recorder.Code)
	}
	if recorder := post(t, review.Admission(allow, o), "/", admissionBody()); recorder.Code != http.StatusOK {
		t.Errorf("a small body beside a large one is answered %d", recorder.Code)
	}
	close(leave)
	first.Wait()
	for range 3 {
		if recorder := post(t, review.Admission(allow, o), "/", large); recorder.Code != http.StatusOK {
			t.Errorf("after the panic a large body is answered %d", recorder.Code)
		}
	}

	// Ten callers that announce 1 MiB and stall hold 64 KiB each.
	stalled, stop := io.Pipe()
	for range 10 {
		first.Go(func() {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", stalled)
			request.Header.Set("Content-Type", "application/json")
			request.ContentLength = 1 << 20
			review.Admission(allow, o).ServeHTTP(httptest.NewRecorder(), request)
		})
	}
	if recorder := post(t, review.Admission(allow, o), "/", admissionBody()); recorder.Code != http.StatusOK {
		t.Errorf("beside stalled callers a small body is answered %d", recorder.Code)
	}
	_ = stop.CloseWithError(io.ErrUnexpectedEOF)
	first.Wait()
}

// TestTraceParent has the trace of the caller in the Outcome, where that is asked for,
// and of no other caller.
func TestTraceParent(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		var got []string
		o := options(nil)
		o.TraceParents, o.Observe = asked, func(o *review.Outcome) { got = append(got, o.TraceParent) }
		handler := review.Admission(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }, o)
		want := []string{"00-a", "", "00-b"}
		for _, header := range want {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(admissionBody()))
			request.Header.Set("Content-Type", "application/json")
			if header != "" {
				request.Header.Set("traceparent", header)
			}
			handler.ServeHTTP(httptest.NewRecorder(), request)
		}
		if !asked {
			want = make([]string, len(want))
		}
		if !slices.Equal(got, want) {
			t.Errorf("asked for %t, the outcomes have %q, want %q", asked, got, want)
		}
	}
}

func jsonOperation(value any) jsonpatch.Operation {
	return jsonpatch.NewOperation("add", "/a", value)
}

func BenchmarkAdmission(b *testing.B) {
	o := options(nil)
	o.Observe = nil
	handler := review.Admission(func(context.Context, admission.Request) admission.Response {
		return admission.Patched("", jsonOperation(json.RawMessage(`{"name":"sidecar"}`)))
	}, o)
	body := admissionBody(`"spec":{`, `"spec":{"x":"`+strings.Repeat("some text", 600)+`",`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/?timeout=10s", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
}
