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

// sendAs sends a review as a caller to an endpoint whose decisions take some time.
func sendAs(c Caller, o Options, took time.Duration) *httptest.ResponseRecorder {
	o.Caller = func(*http.Request) Caller { return c }
	handler := Admission(func(context.Context, *AdmissionRequest) admission.Response {
		time.Sleep(took) // of the bubble
		return admission.Allowed("")
	}, o)
	request := httptest.NewRequest(http.MethodPost, "/?timeout=10s", strings.NewReader(smallReview))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
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
							sendAs(attacker, o, time.Second)
						}
					}
				})
			}
			synctest.Wait()
			for range 10 {
				began := time.Now()
				if recorder := sendAs(other, o, 0); recorder.Code != http.StatusOK {
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

// TestRefusalsAreBounded checks that callers which do not read refusals are aborted.
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
	for o.InFlight.try(attacker, requestBytes) {
	}
	if recorder := sendAs(attacker, o, 0); recorder.Code != http.StatusServiceUnavailable || recorder.Header().Get("Retry-After") != "1" {
		t.Errorf("without memory a review is answered %d %v", recorder.Code, recorder.Header())
	}
	o.InFlight.refusals.Store(maxRefusals)
	func() {
		defer func() {
			if recovered := recover(); recovered != http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
				t.Errorf("a further one ends with %v", recovered)
			}
		}()
		sendAs(attacker, o, 0)
	}()
	if shed != 2 || o.InFlight.refusals.Load() != maxRefusals {
		t.Errorf("%d are observed as shed, %d are being refused", shed, o.InFlight.refusals.Load())
	}
}
