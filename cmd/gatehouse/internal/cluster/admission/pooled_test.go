package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// A review that has ended, because its caller hung up, reads nothing any more of the body, whose memory the next one gets.
// It is for the race detector.
func TestNothingIsReadBehindTheEnd(t *testing.T) {
	t.Parallel()
	documents := reviewer(configOf(t))
	handler := review.Admission(func(ctx context.Context, r *review.AdmissionRequest) admission.Response {
		return documents.Review(ctx, r.Request, false)
	}, review.Options{
		Name: "validate", MaxBytes: review.MaxAdmissionBytes, MaxTime: time.Second,
		InFlight: review.NewBudget(64 << 20), Slots: review.NewSlots(8), Now: time.Now,
	})
	const kind = `{"group":"gatehouse.dev","version":"v1alpha1","kind":"SidecarProfile"}`
	const resource = `{"group":"gatehouse.dev","version":"v1alpha1","resource":"sidecarprofiles"}`
	body := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":` + kind + `,"resource":` + resource +
		`,"requestKind":` + kind + `,"requestResource":` + resource + `,"name":"web","operation":"CREATE","userInfo":{"username":"a"},"object":` +
		fmt.Sprintf(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"SidecarProfile","metadata":{"name":"web"},"status":{"a":[%s1]},"spec":{}}`, strings.Repeat("1,", 50_000)) + `}}`)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(worker+4*i)%40)*time.Millisecond)
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/validate", bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				handler.ServeHTTP(httptest.NewRecorder(), r)
				cancel()
			}
		})
	}
	all.Wait()
}
