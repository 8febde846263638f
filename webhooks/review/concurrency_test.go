package review_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// TestNoAnswerRepeatsTheAudiences checks what the API server compares before it
// looks at the error: without it, "cannot decide" would be a no that it caches.
func TestNoAnswerRepeatsTheAudiences(t *testing.T) {
	t.Parallel()
	body := `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"panic","audiences":["vault"]}}`
	full := options(make(observed, 4))
	full.Slots = review.NewSlots(0)
	for name, o := range map[string]review.Options{"panic": options(make(observed, 4)), "overload": full} {
		var r authenticationv1.TokenReview
		recorder := post(t, review.Token(known, o), "/?timeout=40ms", body)
		if err := json.Unmarshal(recorder.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Status.Error == "" || len(r.Status.Audiences) != 1 || r.Status.Audiences[0] != "vault" || r.APIVersion != "authentication.k8s.io/v1" {
			t.Errorf("%s: answer is %s", name, recorder.Body)
		}
	}
	// Without memory to read the audiences it is a 503 that is not retried.
	o := options(nil)
	o.Observe, o.InFlight = nil, review.NewBudget(1<<20)
	for o.InFlight.Try(kubeAPIServer, 4<<10) {
	}
	recorder := post(t, review.Token(known, o), "/?timeout=40ms", body)
	if recorder.Code != http.StatusServiceUnavailable || recorder.Header().Get("Retry-After") != "" {
		t.Errorf("without room it is answered %d %v", recorder.Code, recorder.Header())
	}
}

// TestPause: token reviews that wait for another service take no slot from others.
func TestPause(t *testing.T) {
	t.Parallel()
	o := options(nil)
	o.Observe, o.Slots = nil, review.NewSlots(1)
	const slow = 10
	waiting, answer := make(chan struct{}, slow), make(chan struct{})
	handler := review.Token(func(ctx context.Context, r *review.TokenRequest) authentication.Response {
		if r.Spec.Token == "slow" {
			r.Pause(func() { waiting <- struct{}{}; <-answer })
			r.Spec.Token = "good"
		}
		return known(ctx, r)
	}, o)
	ask := func(token string) string {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, newRequest(t, "/", strings.NewReader(strings.Replace(tokenBody, "good", token, 1))))
		return recorder.Body.String()
	}
	answers := make(chan string, slow)
	for range slow {
		go func() { answers <- ask("slow") }()
	}
	for range slow {
		<-waiting
	}
	if text := ask("good"); !strings.Contains(text, `"authenticated":true`) {
		t.Errorf("while others wait, the answer is %s", text)
	}
	close(answer)
	for range slow {
		if text := <-answers; !strings.Contains(text, `"authenticated":true`) {
			t.Errorf("after a wait, the answer is %s", text)
		}
	}
	if text := ask("good"); !strings.Contains(text, `"authenticated":true`) {
		t.Errorf("afterwards, the answer is %s", text)
	}
}

// signalling closes a channel when that much of it has been read.
type signalling struct {
	io.Reader
	at      int
	reached chan struct{}
}

func (s *signalling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.at -= n; s.at < 0 && s.reached != nil {
		close(s.reached)
		s.reached = nil
	}
	return n, err
}

// TestManyValues sends text that is cheap to send and dear to decode: no
// decision may see it.
func TestManyValues(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{`{},`, `300,`, `{"a":{"b":0}},`} {
		seen := make(observed, 1)
		o := options(seen)
		o.MaxBytes, o.InFlight = 8<<20, review.NewBudget(16<<20)
		body := admissionBody(`"spec":{`, `"spec":{"x":[`+strings.Repeat(unit, 1<<20/len(unit))+`0],`)
		recorder := post(t, review.Admission(func(context.Context, *review.AdmissionRequest) admission.Response {
			t.Errorf("a megabyte of %s is decided on", unit)
			return admission.Allowed("")
		}, o), "/?timeout=10s", body)
		if want := "JSON values; with its"; recorder.Code != http.StatusRequestEntityTooLarge || !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("a megabyte of %s is answered %d %s, want %q", unit, recorder.Code, recorder.Body, want)
		}
		if out := <-seen; out.Reason != "too-large" {
			t.Errorf("the outcome is %s (%s)", out.Decision, out.Reason)
		}
	}
}

// connection is one with a client certificate.
type connection struct{}

var kubeAPIServer = new(clients.Table).Open(netip.Prefix{}, "CN=kube-apiserver")

func (connection) Client() *clients.Client { return kubeAPIServer }
func (connection) Begin()                  {}
func (connection) End()                    {}

func certified(*http.Request) review.Connection { return connection{} }

// emptyPools empties the pools of buffers. Large ones, of other tests, would count as memory of a review. It is for tests that
// are not parallel.
func emptyPools() {
	for range 2 {
		runtime.GC()
	}
}

// TestIndexGivesWayToValues holds that a review whose values and Index do not fit into the memory together is decided on without
// the Index.
//
//nolint:paralleltest // see emptyPools
func TestIndexGivesWayToValues(t *testing.T) {
	body := admissionBody(`"spec":{`, `"spec":{"x":[`+strings.Repeat(`"abcd",`, 12_000)+`0],`)
	for bytes, want := range map[int64]bool{2_000_000: false, 4_000_000: true} {
		emptyPools()
		o := options(make(observed, 1))
		o.Connection = certified
		o.InFlight = review.NewBudget(bytes)
		indexed := !want
		recorder := post(t, review.Admission(func(_ context.Context, r *review.AdmissionRequest) admission.Response {
			indexed = r.Index != nil
			return admission.Allowed("")
		}, o), "/", body)
		if recorder.Code != http.StatusOK || indexed != want {
			t.Errorf("with %d bytes it is answered %d, with an Index: %t, want %t (%s)", bytes, recorder.Code, indexed, want, recorder.Body)
		}
	}
}

// TestConcurrentReviewsKeepApart sends many different reviews at one time over
// both protocols, some of them cancelled, and checks that each caller gets the
// answer to its own.
func TestConcurrentReviewsKeepApart(t *testing.T) {
	t.Parallel()
	o := options(nil)
	o.Observe, o.Slots, o.InFlight = nil, review.NewSlots(64), review.NewBudget(64<<20)
	server := httptest.NewUnstartedServer(review.Admission(func(_ context.Context, r *review.AdmissionRequest) admission.Response {
		// The answer says what this decision saw of the request.
		return admission.Denied(fmt.Sprintf("%s %s %d %s", r.UID, r.UserInfo.Username, len(r.Object.Raw), strings.Repeat(r.Name, len(r.Object.Raw)/64)))
	}, o))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	old := server.Client().Transport.(*http.Transport).Clone()
	old.ForceAttemptHTTP2, old.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
	defer old.CloseIdleConnections()
	clients := []*http.Client{server.Client(), {Transport: old}}

	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for n := range 60 {
				id := fmt.Sprintf("uid-%d-%d", caller, n)
				object := `{"x":"` + strings.Repeat(string(rune('a'+caller)), 1<<(4+n%14)) + `"}`
				body := strings.NewReplacer(uid, id, `"jane"`, `"user-`+id+`"`, `"name":"app","namespace"`, `"name":"`+string(rune('a'+caller))+`","namespace"`,
					`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"app"},"spec":{"containers":[{"name":"a"}]}}`, object).Replace(admissionBody())
				ctx, cancel := context.WithCancel(t.Context())
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(body))
				if err != nil {
					t.Error(err)
				}
				request.Header.Set("Content-Type", "application/json")
				if n%7 == 0 {
					go cancel()
				}
				response, err := clients[caller%2].Do(request)
				if err == nil {
					var answer []byte
					if answer, err = io.ReadAll(response.Body); err == nil {
						checkOwnAnswer(t, answer, id, fmt.Sprintf("%s user-%s %d ", id, id, len(object)), string(rune('a'+caller)))
					}
					_ = response.Body.Close()
				}
				if err != nil && n%7 != 0 {
					t.Errorf("%s: %v", id, err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
}

func checkOwnAnswer(t *testing.T, answer []byte, id, start, letter string) {
	t.Helper()
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &r); err != nil || r.Response == nil {
		t.Errorf("%s: answer is %.200q: %v", id, answer, err)
		return
	}
	rest, found := strings.CutPrefix(r.Response.Result.Message, start)
	if string(r.Response.UID) != id || !found || strings.Trim(rest, letter+"…") != "" {
		t.Errorf("%s gets the answer to %s: %.200q", id, r.Response.UID, r.Response.Result.Message)
	}
}

// TestAnswerDoesNotWaitForTheLog blocks the observer and reads the answer.
func TestAnswerDoesNotWaitForTheLog(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	o := options(nil)
	o.Observe = func(*review.Outcome) { <-release }
	server := httptest.NewServer(review.Admission(func(context.Context, *review.AdmissionRequest) admission.Response { return admission.Denied("no") }, o))
	defer server.Close()
	defer close(release)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(admissionBody()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err := io.ReadAll(response.Body); err != nil || len(answer) == 0 {
		t.Errorf("answer is %q, %v", answer, err)
	}
}
