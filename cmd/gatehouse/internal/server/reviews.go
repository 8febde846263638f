package server

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Limits bound what reviews may take. The zero value of a field is its default.
type Limits struct {
	// Bytes bounds the bodies in memory at one time. The default is 128 MiB,
	// which is four of the largest that there can be.
	Bytes int64
	// AdmissionTime and TokenTime bound one review. The defaults are 30 s, the
	// longest that a webhook may take, and 8 s, well below the 30 s after which
	// the API server gives a login up.
	AdmissionTime, TokenTime time.Duration
}

const (
	defaultBytes         = 128 << 20
	defaultAdmissionTime = 30 * time.Second
	defaultTokenTime     = 8 * time.Second
	// slotsPerProcessor lets a decision that waits for memory leave the
	// processor to another.
	slotsPerProcessor = 4
)

// Reviews answers the three endpoints from whatever snapshot is current when a
// review arrives. Token reviews have slots and bytes of their own, so that a
// flood of admission reviews does not keep people from logging in.
func Reviews(current *atomic.Pointer[webhooks.Snapshot], l Limits, observe func(*review.Outcome), now func() time.Time) http.Handler {
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
	}
	if l.AdmissionTime == 0 {
		l.AdmissionTime = defaultAdmissionTime
	}
	if l.TokenTime == 0 {
		l.TokenTime = defaultTokenTime
	}
	slots := slotsPerProcessor * runtime.GOMAXPROCS(0)
	admitting := review.Options{
		MaxBytes: review.MaxAdmissionBytes, MaxTime: l.AdmissionTime,
		InFlight: review.NewBudget(max(l.Bytes, review.MaxAdmissionBytes+1)), Slots: review.NewSlots(slots),
		Observe: observe, Now: now,
	}
	mux := http.NewServeMux()
	for _, endpoint := range webhooks.Endpoints() {
		var handler http.Handler
		switch endpoint.Path {
		case webhooks.MutatePath:
			o := admitting
			o.Name = endpoint.Name
			handler = review.Admission(func(ctx context.Context, r admission.Request) admission.Response {
				return current.Load().Sidecar.Review(ctx, r)
			}, o)
		case webhooks.ValidatePath:
			o := admitting
			o.Name = endpoint.Name
			handler = review.Admission(func(ctx context.Context, r admission.Request) admission.Response {
				return current.Load().Policy.ReviewChecked(ctx, r)
			}, o)
		case webhooks.AuthenticatePath:
			handler = review.Token(func(ctx context.Context, r authentication.Request) authentication.Response {
				return current.Load().Authn.Review(ctx, r)
			}, review.Options{
				Name: endpoint.Name, MaxBytes: review.MaxTokenBytes, MaxTime: l.TokenTime,
				InFlight: review.NewBudget(max(l.Bytes/4, review.MaxTokenBytes+1)), Slots: review.NewSlots(slots),
				Admit: func(r *http.Request) error { return certified(r, now) }, Observe: observe, Now: now,
			})
		}
		mux.Handle(endpoint.Path, handler)
	}
	// A webhook configuration with a misspelt path is an outage that must show.
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		observe(&review.Outcome{Endpoint: "none", Decision: review.Refused, Reason: "path", Started: now()})
		http.Error(w, "no endpoint has this path (hint: /authenticate, /mutate and /validate have)", http.StatusNotFound)
	})
	return mux
}

// certified lets in only a caller with a verified client certificate: whoever
// may ask can try tokens.
func certified(r *http.Request, now func() time.Time) error {
	switch {
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
		return errors.New("a client certificate is required here (hint: set client-certificate and client-key in the API server's webhook kubeconfig, and --client-ca to the CA that signed it)")
	case now().After(r.TLS.PeerCertificates[0].NotAfter):
		// The connection is older than the certificate's end.
		return errors.New("the client certificate has expired")
	default:
		return nil
	}
}
