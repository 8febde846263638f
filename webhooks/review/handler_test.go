package review_test

import (
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
	"testing/synctest"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// observed receives outcomes.
type observed chan review.Outcome

func options(seen observed) review.Options {
	return review.Options{
		Name: "test", MaxBytes: 1 << 20, MaxTime: 30 * time.Second,
		InFlight: review.NewBudget(4 << 20), Slots: review.NewSlots(4),
		Observe: func(o *review.Outcome) { seen <- *o }, Now: time.Now,
	}
}

func allow(context.Context, *review.AdmissionRequest) admission.Response {
	return admission.Allowed("")
}

func known(_ context.Context, r *review.TokenRequest) authentication.Response {
	var response authentication.Response
	switch r.Spec.Token {
	case "good":
		response.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}
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
// authentication answers 200 and an error.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	text := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	for _, tc := range []struct {
		name     string
		change   func(*http.Request, *review.Options)
		body     func() io.Reader
		status   int // of admission
		message  string
		decision review.Decision
		reason   string
	}{
		{"GET", func(r *http.Request, _ *review.Options) { r.Method = http.MethodGet }, text(""), 405, "the method must be POST", review.Refused, "method"},
		{"wrong media type", header("Content-Type", "text/plain"), text("{}"), 415, "the media type must be application/json", review.Refused, "media-type"},
		{"no media type", header("Content-Type", ""), text("{}"), 415, "the media type must be application/json", review.Refused, "media-type"},
		{"compressed", header("Content-Encoding", "gzip"), text("{}"), 415, `Content-Encoding "gzip" is not supported (hint: send the review uncompressed)`, review.Refused, "media-type"},
		{"compressed twice", header("Content-Encoding", "GZIP, br"), text("{}"), 415, `Content-Encoding "GZIP, br" is not supported (hint: send the review uncompressed)`, review.Refused, "media-type"},
		{"not compressed, and empty", header("Content-Encoding", "Identity"), text(""), 400, "invalid JSON at byte 0: unexpected end", review.Refused, "malformed"},
		{"media type with a parameter", header("Content-Type", "Application/JSON; charset=utf-8"), text("[]"), 400, "the body must be a JSON object", review.Refused, "malformed"},
		{"caller that is not admitted", func(_ *http.Request, o *review.Options) {
			o.Admit = func(*http.Request) error { return errors.New("a client certificate is required") }
		}, text(tokenBody), 403, "a client certificate is required", review.Refused, "caller"},
		{"announced to be too large", nil, text(strings.Repeat(" ", 1<<20+1)), 413, "the body is larger than 1048576 bytes", review.Refused, "too-large"},
		{"endless", nil, func() io.Reader { return &endless{} }, 413, "the body is larger than 1048576 bytes", review.Refused, "too-large"},
		{"quotes", nil, text(strings.Repeat(`"`, 1<<20)), 400, "invalid JSON at byte 2: unexpected data after the value", review.Refused, "malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, endpoint := range []string{"admission", "token"} {
				seen, recorder, request := make(observed, 1), httptest.NewRecorder(), newRequest(t, "/?timeout=10s", tc.body())
				o := options(seen)
				if tc.change != nil {
					tc.change(request, &o)
				}
				handler := review.Admission(allow, o)
				if endpoint == "token" {
					handler = review.Token(known, o)
				}
				handler.ServeHTTP(recorder, request)
				if endpoint == "admission" || tc.status == http.StatusMethodNotAllowed {
					if recorder.Code != tc.status || strings.TrimSpace(recorder.Body.String()) != tc.message {
						t.Errorf("%s answers %d %q, want %d %q", endpoint, recorder.Code, recorder.Body, tc.status, tc.message)
					}
				} else if status := tokenStatus(t, recorder); status.Authenticated || status.Error != tc.message {
					t.Errorf("%s answers %+v, want the error %q", endpoint, status, tc.message)
				}
				if out := <-seen; out.Decision != tc.decision || out.Reason != tc.reason {
					t.Errorf("%s is seen as %s (%s), want %s (%s)", endpoint, out.Decision, out.Reason, tc.decision, tc.reason)
				}
			}
		})
	}
}

func header(name, value string) func(*http.Request, *review.Options) {
	return func(r *http.Request, _ *review.Options) { r.Header.Set(name, value) }
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

func newRequest(tb testing.TB, url string, body io.Reader) *http.Request {
	tb.Helper()
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, url, body)
	request.Header.Set("Content-Type", "application/json")
	return request
}

func post(t *testing.T, handler http.Handler, url, body string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, newRequest(t, url, strings.NewReader(body)))
	return recorder
}

func TestAdmissionOutcomes(t *testing.T) {
	t.Parallel()
	const undecided = "cannot decide: the log of Gatehouse has the reason (hint: try again, then ask the people who operate the cluster)"
	for _, tc := range []struct {
		name, timeout string
		f             review.AdmissionFunc
		status        int
		decision      review.Decision
		reason        string
		body          string // of an answer that is no review
		detail        string
	}{
		{"yes", "10s", allow, 200, review.Allowed, "", "", ""},
		{"no", "10s", func(context.Context, *review.AdmissionRequest) admission.Response {
			return admission.Denied("not here")
		}, 200, review.Denied, "Forbidden", "", ""},
		{"cannot decide", "10s", func(context.Context, *review.AdmissionRequest) admission.Response {
			return admission.Errored(http.StatusInternalServerError, errors.New("secret"))
		}, 500, review.Unknown, "internal", undecided, "secret"},
		{"out of time", "10ms", func(ctx context.Context, _ *review.AdmissionRequest) admission.Response {
			<-ctx.Done()
			return admission.Errored(http.StatusInternalServerError, ctx.Err())
		}, 500, review.Unknown, "deadline", undecided, "deadline exceeded"},
		{"panic", "10s", func(context.Context, *review.AdmissionRequest) admission.Response { panic("secret") }, 500, review.Unknown, "panic", undecided, "handler_test.go"},
		{"patch is no JSON", "10s", func(context.Context, *review.AdmissionRequest) admission.Response {
			return admission.Patched("", jsonOperation(make(chan int)))
		}, 500, review.Unknown, "internal", undecided, "patch operation 0 (add /a)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 1)
			recorder := post(t, review.Admission(tc.f, options(seen)), "/?timeout="+tc.timeout, admissionBody())
			if recorder.Code != tc.status {
				t.Errorf("status is %d %q, want %d", recorder.Code, recorder.Body, tc.status)
			}
			if tc.body == "" {
				if got := verify(t, recorder.Body.Bytes(), true); got.Allowed != (tc.decision == review.Allowed) {
					t.Errorf("the API server understands allowed: %v", got.Allowed)
				}
			} else if strings.TrimSpace(recorder.Body.String()) != tc.body {
				t.Errorf("answer is %q, want %q", recorder.Body, tc.body)
			}
			out := <-seen
			if out.Decision != tc.decision || out.Reason != tc.reason || out.UID != uid || out.User != "jane" || out.Bytes != len(admissionBody()) || !strings.Contains(out.Detail, tc.detail) {
				t.Errorf("outcome is %+v", out)
			}
		})
	}
}

// TestTokenOutcomes checks what the caller gets, and that the log learns the rest
// from the annotations.
func TestTokenOutcomes(t *testing.T) {
	t.Parallel()
	yes := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}
	later := authenticationv1.TokenReviewStatus{Error: "later"}
	for _, tc := range []struct {
		name      string
		status    authenticationv1.TokenReviewStatus
		annotated string
		decision  review.Decision
		detail    string
	}{
		{"yes", yes, "", review.Allowed, ""},
		{"no", authenticationv1.TokenReviewStatus{}, "a-detail", review.Denied, "a-detail"},
		{"cannot decide", later, "", review.Unknown, "later"},
		{"cannot decide, with a detail", later, "a-detail", review.Unknown, "a-detail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 1)
			recorder := post(t, review.Token(func(context.Context, *review.TokenRequest) authentication.Response {
				response := authentication.Response{TokenReview: authenticationv1.TokenReview{Status: tc.status}}
				response.Annotations = map[string]string{
					"gatehouse.dev/reason": "a-reason", "gatehouse.dev/token-id": "a-id", "gatehouse.dev/backend": "a-backend",
					"gatehouse.dev/source": "a-source", "gatehouse.dev/user": "a-user", "gatehouse.dev/detail": tc.annotated,
				}
				return response
			}, options(seen)), "/?timeout=30s", tokenBody)
			if status := tokenStatus(t, recorder); status.Authenticated != tc.status.Authenticated || status.Error != tc.status.Error {
				t.Errorf("status is %+v, want %+v", status, tc.status)
			}
			out := <-seen
			if out.Decision != tc.decision || out.Reason != "a-reason" || out.TokenID != "a-id" || out.Backend != "a-backend" || out.Source != "a-source" || out.User != "a-user" || out.Detail != tc.detail {
				t.Errorf("outcome is %+v", out)
			}
			if body := recorder.Body.String(); strings.Contains(body, "a-") || strings.Contains(body, `"spec"`) {
				t.Errorf("the caller gets %s", body)
			}
		})
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
		post(t, review.Admission(func(ctx context.Context, _ *review.AdmissionRequest) admission.Response {
			deadline, _ := ctx.Deadline()
			got = deadline.Sub(start)
			return admission.Allowed("")
		}, o), "/mutate"+tc.query, admissionBody())
		if got != tc.want {
			t.Errorf("with %q a decision gets %s, want %s", tc.query, got, tc.want)
		}
	}
}

// TestCallerThatGoesAwayCancels runs over a real connection.
func TestCallerThatGoesAwayCancels(t *testing.T) {
	t.Parallel()
	seen := make(observed, 1)
	entered := make(chan struct{})
	server := httptest.NewServer(review.Admission(func(ctx context.Context, _ *review.AdmissionRequest) admission.Response {
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

// TestOverload fills the only slot and checks the next answer: an API server with time
// left retries once, on a new connection; one without fails at once; a token review is
// never retried.
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
			synctest.Test(t, func(t *testing.T) {
				seen := make(observed, 4)
				o := options(seen)
				o.Slots = review.NewSlots(1)
				entered, leave := make(chan struct{}), make(chan struct{})
				handler := review.Admission(func(context.Context, *review.AdmissionRequest) admission.Response {
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
				if status := tokenStatus(t, token); status.Error != "too many concurrent reviews" {
					t.Errorf("a shed token review is answered %+v", status)
				}
				if out := <-seen; out.Decision != review.Shed || out.Reason != "overload" || out.Waited <= 0 {
					t.Errorf("outcome is %+v", out)
				}
			})
		})
	}
}

// TestBytesInFlight checks that a body which does not fit beside the others is
// shed, that everything reserved is given back, also after a panic, and that a
// caller who announces much and sends nothing holds little.
func TestBytesInFlight(t *testing.T) {
	t.Parallel()
	large := admissionBody(`"spec":{`, `"spec":{"x":"`+strings.Repeat("x", 900<<10)+`",`)
	o := options(nil)
	o.Observe, o.InFlight = nil, review.NewBudget(5<<19)
	entered, leave := make(chan struct{}), make(chan struct{})
	holding := review.Admission(func(context.Context, *review.AdmissionRequest) admission.Response {
		close(entered)
		<-leave
		panic("while much is reserved")
	}, o)
	var first sync.WaitGroup
	first.Go(func() { post(t, holding, "/", large) })
	<-entered
	if recorder := post(t, review.Admission(allow, o), "/?timeout=40ms", large); recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("a second large body is answered %d", recorder.Code)
	}
	// Small ones do not queue behind a large one that waits for memory.
	waiting := make(chan struct{})
	first.Go(func() {
		request := newRequest(t, "/?timeout=30s", &signalling{Reader: strings.NewReader(large), at: 8 << 10, reached: waiting})
		request.ContentLength = int64(len(large))
		review.Admission(allow, o).ServeHTTP(httptest.NewRecorder(), request)
	})
	<-waiting
	for range 20 {
		if recorder := post(t, review.Admission(allow, o), "/?timeout=40ms", admissionBody()); recorder.Code != http.StatusOK {
			t.Fatalf("a small body beside large ones is answered %d %s", recorder.Code, recorder.Body)
		}
	}
	close(leave)
	first.Wait()
	for range 3 {
		if recorder := post(t, review.Admission(allow, o), "/", large); recorder.Code != http.StatusOK {
			t.Errorf("after the panic a large body is answered %d", recorder.Code)
		}
	}

	// Ten callers that announce 1 MiB and stall hold 16 KiB each.
	stalled, stop := io.Pipe()
	for range 10 {
		first.Go(func() {
			request := newRequest(t, "/", stalled)
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

// TestTraceParent has the trace of the caller in the Outcome, and of no other caller.
func TestTraceParent(t *testing.T) {
	t.Parallel()
	var got []string
	o := options(nil)
	o.Observe = func(o *review.Outcome) { got = append(got, o.TraceParent) }
	handler, want := review.Admission(allow, o), []string{"00-a", "", "00-b"}
	for _, header := range want {
		request := newRequest(t, "/", strings.NewReader(admissionBody()))
		request.Header.Set("traceparent", header)
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the outcomes have %q, want %q", got, want)
	}
}

// TestObject has the name of the object in the Outcome. The reviews of a collection's deletion have it in the old object alone.
func TestObject(t *testing.T) {
	t.Parallel()
	for want, body := range map[string]string{
		"app": admissionBody(),
		"old": admissionBody(`"name":"app","namespace"`, `"namespace"`, "CREATE", "DELETE", `"oldObject":null`, `"oldObject":{"metadata":{"name":"old"}}`),
		"":    admissionBody(`"name":"app","namespace"`, `"namespace"`),
	} {
		var got string
		o := options(nil)
		o.Observe = func(o *review.Outcome) { got = o.Object }
		if post(t, review.Admission(allow, o), "/", body); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestIndex has the index of the review in the decision, if there is one.
func TestIndex(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		want       bool
		code       int
	}{
		{"a review", admissionBody(), true, http.StatusOK},
		{"a member twice", admissionBody(`"spec":{`, `"spec":{"x":1,"x":2,`), false, http.StatusOK},
		{"a member of the user twice", admissionBody(`"userInfo":{`, `"userInfo":{"uid":"a","uid":"b",`), false, http.StatusBadRequest},
	} {
		o := options(make(observed, 3))
		handler := review.Admission(func(_ context.Context, r *review.AdmissionRequest) admission.Response {
			got := ""
			if index := r.Index; index != nil {
				request, _ := index.Member(0, "request")
				object, _ := index.Member(request, "object")
				got = string(index.Part(index.Nodes[object].Span))
			}
			if want := string(r.Object.Raw); tc.want && got != want || !tc.want && got != "" {
				t.Errorf("%s: the index has %q for the object %q", tc.name, got, want)
			}
			return admission.Allowed("")
		}, o)
		for range 3 {
			if got := post(t, handler, "/", tc.body).Code; got != tc.code {
				t.Errorf("%s: status %d, want %d", tc.name, got, tc.code)
			}
		}
	}
}

func jsonOperation(value any) jsonpatch.Operation {
	return jsonpatch.NewOperation("add", "/a", value)
}

func BenchmarkAdmission(b *testing.B) {
	o := options(nil)
	o.Observe = nil
	handler := review.Admission(func(context.Context, *review.AdmissionRequest) admission.Response {
		return admission.Patched("", jsonOperation(json.RawMessage(`{"name":"sidecar"}`)))
	}, o)
	body := admissionBody(`"spec":{`, `"spec":{"x":"`+strings.Repeat("some text", 600)+`",`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		handler.ServeHTTP(httptest.NewRecorder(), newRequest(b, "/?timeout=10s", strings.NewReader(body)))
	}
}
