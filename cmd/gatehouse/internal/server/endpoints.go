package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	// admissionTime is the longest that a webhook may take.
	admissionTime = 30 * time.Second
	// tokenTime is well below the 30 seconds after which the API server gives a
	// login up.
	tokenTime = 8 * time.Second
	// slotsPerProcessor lets a decision that waits for memory leave the
	// processor to another.
	slotsPerProcessor = 4
)

// KeyWaits is how many token reviews may wait for the keys of issuers at one time.
// Each of them holds one of the slots that all tokens share, so that it must stay
// well below their number, which is slotsPerProcessor times this: tokens with
// forged key ids are anybody's to send, and an issuer that hangs makes each of them
// wait for all of tokenTime.
func KeyWaits() int { return runtime.GOMAXPROCS(0) }

// ReviewOptions is what Reviews needs. Every field is required but for
// RequireClientCertificate, Documents and TraceParents.
type ReviewOptions struct {
	// Bytes bounds what reviews, and decoding them, take in memory at one time.
	Bytes int64
	// Observe is shown every finished review.
	Observe func(*review.Outcome)
	// TraceParents has what Observe is shown hold the caller's trace context.
	TraceParents bool
	// Profiles is shown the verdicts about a pod, and Policies what became of
	// policies. Neither is shown anything of a dry run, which is to leave no
	// trace, and neither may keep the slice.
	Profiles func([]sidecar.Verdict)
	Policies func([]policy.Observation)
	// Documents answers /validate about Gatehouse's own kinds, which no policy is asked
	// about. Without it, they are allowed.
	Documents *crdadmission.Reviewer
	// RequireClientCertificate makes the webhooks of admission answer only callers
	// with a verified client certificate, as that of authentication always does.
	RequireClientCertificate bool
	// Whole, if set, tells why the snapshot must not be decided by: it lacks something
	// that is known to be there. Its error is for the log. It is called once a review,
	// by several goroutines.
	Whole func() error
	// ReadNamespace, if set, has the namespace of a request be in memory before it is
	// decided on, if it exists, within what the caller may ask for.
	ReadNamespace func(name string, caller netip.Prefix, certified bool)
	// Login answers login.Path and login.WhoamiPath, for anybody.
	Login http.Handler
	// Now tells the time.
	Now func() time.Time
}

// tokenBytes is the part of the bytes for reviews that token reviews have.
func tokenBytes(bytes int64) int64 { return bytes / 8 }

// LargestReview is the size of the largest admission review that is read with that many
// bytes for all.
func LargestReview(bytes int64) int64 {
	return min(review.MaxAdmissionBytes, review.NewBudget(bytes-tokenBytes(bytes)).LargestBody())
}

// Reviews answers the three endpoints from whatever snapshot is current when a
// review arrives. Token reviews have slots, and an eighth of the bytes, of their
// own, so that a flood of admission reviews does not keep people from logging in.
func Reviews(current *atomic.Pointer[webhooks.Snapshot], options ReviewOptions) http.Handler {
	slots := slotsPerProcessor * runtime.GOMAXPROCS(0)
	now := options.Now
	admitting := review.Options{
		MaxBytes: review.MaxAdmissionBytes, MaxTime: admissionTime,
		InFlight: review.NewBudget(options.Bytes - tokenBytes(options.Bytes)), Slots: review.NewSlots(slots),
		Caller: callerOf, Observe: options.Observe, TraceParents: options.TraceParents, Now: now,
	}
	admissionWorth := always
	if options.RequireClientCertificate {
		admissionWorth = verified
		admitting.Admit = certified(admissionRemedy, now)
	}
	mux := http.NewServeMux()
	for _, endpoint := range webhooks.Endpoints() {
		var handler http.Handler
		worth := admissionWorth
		switch endpoint.Path {
		case webhooks.MutatePath:
			o := admitting
			o.Name = endpoint.Name
			handler = review.Admission(func(ctx context.Context, r admission.Request) admission.Response {
				if err := options.whole(); err != nil {
					return admission.Errored(http.StatusInternalServerError, err)
				}
				options.readNamespace(ctx, &r)
				return current.Load().Sidecar.ReviewObserved(ctx, r, options.Profiles)
			}, o)
		case webhooks.ValidatePath:
			o := admitting
			o.Name = endpoint.Name
			policies := func(ctx context.Context, r admission.Request) admission.Response {
				if err := options.whole(); err != nil {
					return admission.Errored(http.StatusInternalServerError, err)
				}
				options.readNamespace(ctx, &r)
				set := current.Load().Policy
				if r.DryRun != nil && *r.DryRun {
					return set.ReviewObserved(ctx, r, nil)
				}
				return set.ReviewObserved(ctx, r, options.Policies)
			}
			handler = review.Admission(policies, o)
			if d := options.Documents; d != nil {
				// What waits for its turn to be compiled keeps no other review from its decision.
				own := review.NewSlots(1)
				o.SlotsFor = func(r *admission.Request) *review.Slots {
					if crdadmission.Concerns(r) {
						return own
					}
					return nil
				}
				handler = byCaller(review.Admission(d.Before(policies, d.Review), o), review.Admission(d.Before(policies, d.ReviewUnverified), o))
			}
		case webhooks.AuthenticatePath:
			worth = verified
			handler = review.Token(func(ctx context.Context, r authentication.Request) authentication.Response {
				if err := options.whole(); err != nil {
					return authentication.Errored(err)
				}
				return current.Load().Authn.Review(ctx, r)
			}, review.Options{
				Name: endpoint.Name, MaxBytes: review.MaxTokenBytes, MaxTime: tokenTime,
				InFlight: review.NewBudget(tokenBytes(options.Bytes)), Slots: review.NewSlots(slots),
				Caller: callerOf, Admit: certified(authenticationRemedy, now), Observe: options.Observe, TraceParents: options.TraceParents, Now: now,
			})
		}
		mux.Handle(endpoint.Path, lasting(handler, worth))
	}
	people := lasting(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if options.whole() != nil {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "starting: not all of the configuration was read yet (hint: try again in a moment)", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(now().Add(readTimeout)) // both protocols know it
		options.Login.ServeHTTP(w, r)
	}), never)
	others := make(callLimit, maxOtherCalls)
	people = others.wrap(people)
	mux.Handle(login.Path, people)
	mux.Handle(login.WhoamiPath, people)
	// A webhook configuration with a misspelt path is an outage that must show.
	mux.Handle("/", others.wrap(lasting(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		options.Observe(&review.Outcome{Endpoint: "none", Decision: review.Refused, Reason: "path", Started: now()})
		http.Error(w, "no endpoint has this path (hint: /authenticate, /mutate, /validate, /login and /whoami have)", http.StatusNotFound)
	}), never)))
	return mux
}

// maxOtherCalls bounds the calls in progress that are no reviews, for which no memory is
// reserved.
const maxOtherCalls = 512

// callLimit bounds the calls that are in progress at one time.
type callLimit chan struct{}

// wrap aborts calls beyond the limit. A call is in progress until its answer was sent: over
// HTTP/2 the caller decides when it takes it.
func (l callLimit) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case l <- struct{}{}:
		default:
			panic(http.ErrAbortHandler)
		}
		defer func() { <-l }()
		next.ServeHTTP(w, r)
		if r.ProtoMajor > 1 {
			review.Flush(w, time.Now())
		}
	})
}

// byCaller lets one handler answer callers with a verified certificate and another one
// all others.
func byCaller(certified, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if verified(r) {
			certified.ServeHTTP(w, r)
		} else {
			others.ServeHTTP(w, r)
		}
	})
}

func (o *ReviewOptions) readNamespace(ctx context.Context, r *admission.Request) {
	if o.ReadNamespace == nil {
		return
	}
	var (
		caller    netip.Prefix
		certified bool
	)
	if one := connectionOf(ctx); one != nil {
		caller, certified = one.client, one.certified.Load()
	}
	o.ReadNamespace(r.Namespace, caller, certified)
}

func (o *ReviewOptions) whole() error {
	if o.Whole == nil {
		return nil
	}
	return o.Whole()
}

func always(*http.Request) bool { return true }

func never(*http.Request) bool { return false }

// verified tells whether the caller has shown a client certificate of a CA that is
// trusted.
func verified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// What makes an API server show a client certificate, for whoever reads its log.
const (
	authenticationRemedy = "set client-certificate and client-key in the API server's webhook kubeconfig, and --client-ca to the CA that signed it"
	admissionRemedy      = "name a kubeConfigFile in the API server's AdmissionConfiguration, with client-certificate and client-key for the user SERVICE.NAMESPACE.svc, and set --client-ca to the CA that signed it"
)

// certified lets in only callers with a verified client certificate: whoever may
// ask for authentication can try tokens, and whoever may ask for admission can try
// out policies.
func certified(remedy string, now func() time.Time) func(*http.Request) error {
	return func(r *http.Request) error {
		switch {
		case !verified(r):
			return fmt.Errorf("a client certificate is required here (hint: %s)", remedy)
		case now().After(r.TLS.PeerCertificates[0].NotAfter):
			// The connection is older than the certificate's end.
			return errors.New("the client certificate has expired")
		default:
			return nil
		}
	}
}
