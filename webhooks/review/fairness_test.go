package review

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
)

const smallReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
	"kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"operation":"CREATE","userInfo":{},"object":{}}}`

var (
	accounts clients.Table
	attacker = accounts.Open(netip.MustParsePrefix("198.51.100.1/32"), "")
	ordinary = accounts.Open(netip.MustParsePrefix("192.0.2.1/32"), "")
	verified = accounts.Open(netip.Prefix{}, "CN=kube-apiserver")
)

// sendAs sends a review as a client to an endpoint whose decisions take some time.
func sendAs(c *clients.Client, o Options, took time.Duration) *httptest.ResponseRecorder {
	o.Connection = func(*http.Request) Connection { return unknownConnection{c} }
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
	for _, other := range []*clients.Client{ordinary, verified} {
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
