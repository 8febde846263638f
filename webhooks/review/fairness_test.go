package review

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const smallReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
	"kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"operation":"CREATE","userInfo":{},"object":{}}}`

// from sends a review as a caller.
func from(c Caller, handler func(Options) http.Handler, o Options) *httptest.ResponseRecorder {
	o.Caller = func(*http.Request) Caller { return c }
	request := httptest.NewRequest(http.MethodPost, "/?timeout=10s", strings.NewReader(smallReview))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler(o).ServeHTTP(recorder, request)
	return recorder
}

// TestSlowReviewsOfOthers has one address send reviews that take a second, three times as
// many at one time as there are slots: of what others send, nothing is shed.
func TestSlowReviewsOfOthers(t *testing.T) {
	t.Parallel()
	for _, other := range []Caller{ordinary, verified} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{
				MaxBytes: 1 << 20, MaxTime: 30 * time.Second, Now: time.Now,
				InFlight: NewBudget(64 << 20), Slots: NewSlots(4),
			}
			slow := func(o Options) http.Handler {
				return Admission(func(context.Context, admission.Request) admission.Response {
					time.Sleep(time.Second) // of the bubble
					return admission.Allowed("")
				}, o)
			}
			fast := func(o Options) http.Handler {
				return Admission(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }, o)
			}
			var (
				running sync.WaitGroup
				stop    = make(chan struct{})
			)
			for range 12 {
				running.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							from(attacker, slow, o)
						}
					}
				})
			}
			synctest.Wait()
			for range 10 {
				began := time.Now()
				if recorder := from(other, fast, o); recorder.Code != http.StatusOK {
					t.Errorf("certified %v: a small review is answered %d", other.Certified, recorder.Code)
				}
				if took := time.Since(began); took > time.Second || other.Certified && took > 0 {
					t.Errorf("certified %v: a small review waits for %s", other.Certified, took)
				}
			}
			close(stop)
			running.Wait()
		})
	}
}

// TestRefusalsAreBounded: whoever does not read that there is no memory is not told.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	shed := 0
	o := Options{
		MaxBytes: 1 << 20, MaxTime: 30 * time.Second, Now: time.Now, InFlight: NewBudget(1 << 20), Slots: NewSlots(4),
		Observe: func(out *Outcome) {
			if out.Decision == Shed {
				shed++
			}
		},
	}
	for o.InFlight.enter(attacker) {
	}
	handler := func(o Options) http.Handler {
		return Admission(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }, o)
	}
	if recorder := from(attacker, handler, o); recorder.Code != http.StatusServiceUnavailable || recorder.Header().Get("Retry-After") != "1" {
		t.Errorf("without memory a review is answered %d %v", recorder.Code, recorder.Header())
	}
	o.InFlight.refusals.Store(maxRefusals)
	func() {
		defer func() {
			if recovered := recover(); recovered != http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
				t.Errorf("a further one ends with %v", recovered)
			}
		}()
		from(attacker, handler, o)
	}()
	if shed != 2 || o.InFlight.refusals.Load() != maxRefusals {
		t.Errorf("%d are observed as shed, %d are being refused", shed, o.InFlight.refusals.Load())
	}
}

// TestContentEncoding names what is not supported.
func TestContentEncoding(t *testing.T) {
	t.Parallel()
	o := Options{MaxBytes: 1 << 20, MaxTime: 30 * time.Second, Now: time.Now, InFlight: NewBudget(8 << 20), Slots: NewSlots(4)}
	for encoding, want := range map[string]int{"": 200, "identity": 200, "gzip": 415, "GZIP, br": 415} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?timeout=10s", strings.NewReader(smallReview))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Content-Encoding", encoding)
		recorder := httptest.NewRecorder()
		Admission(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }, o).ServeHTTP(recorder, request)
		if text := "Content-Encoding \"" + encoding + "\" is not supported (hint: send the review uncompressed)"; recorder.Code != want || want == 415 && strings.TrimSpace(recorder.Body.String()) != text {
			t.Errorf("%q is answered %d %s", encoding, recorder.Code, recorder.Body)
		}
	}
}
