package server

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/internal/clients"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	// admissionTime is the longest that a webhook may take.
	admissionTime = 30 * time.Second
	// accessTime is that of the AuthorizationConfiguration that 'gatehouse manifests' prints.
	accessTime = 3 * time.Second
	// tokenTime is well below the 30 seconds after which the API server gives up a
	// login.
	tokenTime = 8 * time.Second
	// slotsPerProcessor lets a decision that waits for memory leave the processor to
	// another.
	slotsPerProcessor = 4
	// maxLoginBytes bounds the part of a login's body that is read before the login begins.
	maxLoginBytes = 64 << 10
)

// KeyWaits returns how many token reviews may wait for the keys of issuers at the same time. Anyone can send tokens with
// forged key ids, and each of them waits for all of tokenTime if the issuer does not answer. Each holds one of the slots
// that all tokens share, so the number must stay well below that of the slots, which is slotsPerProcessor times this.
func KeyWaits() int { return runtime.GOMAXPROCS(0) }

// ReviewOptions is what Reviews needs. Every field is required but for
// RequireClientCertificate, CustomResources, CheckComplete, ReadNamespace, Authorize and Begin.
type ReviewOptions struct {
	// Bytes bounds the memory of reviews in progress, and of decoding them.
	Bytes int64
	// Observe gets every finished review.
	Observe func(*review.Outcome)
	// Begin, if set, is called for each review, to record it.
	Begin func() *record.Trace
	// Profiles and Policies are the observers of admission requests.
	Profiles func([]sidecar.Verdict)
	Policies func([]policy.Observation)
	// CustomResources reviews Gatehouse's own custom resources, on which no policy
	// decides. Without it, they are allowed.
	CustomResources *crdadmission.Reviewer
	// RequireClientCertificate makes the admission webhooks answer only callers with a
	// verified client certificate, as the authentication webhook always does.
	RequireClientCertificate bool
	// CheckComplete, if set, returns an error if the snapshot lacks something that is
	// known to exist, so that nothing may be decided by it. The error is for the log. It
	// is called once for each review, by several goroutines.
	CheckComplete func() error
	// ReadNamespace, if set, has the namespace of a request be in memory before it is
	// decided on, if it exists, within what the client may ask for.
	ReadNamespace func(name string, client *clients.Client)
	// Authorize has /authorize answered. Access reviews have a sixteenth of the bytes then.
	Authorize bool
	// Login answers login.Path and login.WhoamiPath, and with Logout also login.LogoutPath,
	// for any caller.
	Login  http.Handler
	Logout bool
	// Now is the clock.
	Now func() time.Time
}

// tokenBytes returns the part of the bytes for reviews that token reviews have.
func tokenBytes(bytes int64) int64 { return bytes / 8 }

// accessBytes returns the part of the bytes for reviews that access reviews have, if there are any.
func accessBytes(bytes int64, authorize bool) int64 {
	if !authorize {
		return 0
	}
	return bytes / 16
}

// LargestReview returns the size of the largest admission review that is read with so
// many bytes for all reviews, of access too with authorize.
func LargestReview(bytes int64, authorize bool) int64 {
	return min(review.MaxAdmissionBytes, review.NewBudget(bytes-tokenBytes(bytes)-accessBytes(bytes, authorize)).LargestBody())
}

// reviews answers reviews.
type reviews struct {
	ReviewOptions

	current *atomic.Pointer[webhooks.Snapshot]
	// admission, token and access are the options of the endpoints of each kind but for the
	// name. Token reviews have slots, and an eighth of the bytes, of their own, so that
	// many admission reviews do not keep people from logging in. So have access reviews: a
	// policy that asks the authorizer makes the API server ask here while the policy is evaluated.
	admission, token, access review.Options
}

// Reviews answers every endpoint of the table. A review is decided by the snapshot that is current when it arrives, also
// if another one becomes current before the answer.
func Reviews(current *atomic.Pointer[webhooks.Snapshot], options ReviewOptions) http.Handler {
	r := &reviews{
		ReviewOptions: options, current: current,
		admission: options.endpoint(review.MaxAdmissionBytes, admissionTime, options.Bytes-tokenBytes(options.Bytes)-accessBytes(options.Bytes, options.Authorize)),
		token:     options.endpoint(review.MaxTokenBytes, tokenTime, tokenBytes(options.Bytes)),
		access:    options.endpoint(review.MaxAccessBytes, accessTime, accessBytes(options.Bytes, true)),
	}
	if options.RequireClientCertificate {
		r.admission.Admit = requireCertificate(admissionHint, options.Now)
	}
	r.token.InFlight.Kind, r.token.Slots.Kind = clients.TokenMemory, clients.TokenDecisions
	r.access.InFlight.Kind, r.access.Slots.Kind = clients.AccessMemory, clients.AccessDecisions
	r.token.Admit = requireCertificate(authenticationHint, options.Now)
	r.access.Admit = requireCertificate(authorizationHint, options.Now)

	mux := http.NewServeMux()
	for _, e := range webhooks.Endpoints() {
		switch {
		case e.Token != nil:
			mux.Handle(e.Path, r.tokenEndpoint(e))
		case e.Admission != nil:
			mux.Handle(e.Path, r.admissionEndpoint(e))
		case options.Authorize:
			mux.Handle(e.Path, r.accessEndpoint(e))
		}
	}
	people := keepAliveIf(never, review.WithBody(http.HandlerFunc(r.login), review.Options{
		MaxBytes: maxLoginBytes, MaxTime: admissionTime, InFlight: r.admission.InFlight, Connection: reviewConnection, Now: options.Now,
	}))
	mux.Handle(login.Path, people)
	mux.Handle(login.WhoamiPath, people)
	if options.Logout {
		mux.Handle(login.LogoutPath, people)
	}
	mux.Handle("/", keepAliveIf(never, http.HandlerFunc(r.notFound)))
	return mux
}

// endpoint returns the options of a kind of endpoints.
func (o *ReviewOptions) endpoint(maxBytes int64, maxTime time.Duration, inFlight int64) review.Options {
	return review.Options{
		MaxBytes: maxBytes, MaxTime: maxTime,
		InFlight: review.NewBudget(inFlight), Slots: review.NewSlots(slotsPerProcessor * runtime.GOMAXPROCS(0)),
		Connection: reviewConnection, Observe: o.Observe, Now: o.Now,
	}
}

// tokenEndpoint answers token reviews.
func (s *reviews) tokenEndpoint(e webhooks.Endpoint) http.Handler {
	o := s.token
	o.Name = e.Name
	return keepAliveIf(isVerified, review.Token(func(ctx context.Context, r *review.TokenRequest) authentication.Response {
		trace := s.begin(&r.Call)
		if err := s.checkComplete(); err != nil {
			return authentication.Errored(err)
		}
		snapshot := s.current.Load()
		if trace != nil {
			snapshot = trace.Snapshot(snapshot)
		}
		return e.Token(ctx, snapshot, r.Request, r.Pause)
	}, o))
}

// accessEndpoint answers access reviews.
func (s *reviews) accessEndpoint(e webhooks.Endpoint) http.Handler {
	o := s.access
	o.Name = e.Name
	return keepAliveIf(isVerified, review.Access(func(ctx context.Context, r *review.AccessRequest) review.AccessResponse {
		trace := s.begin(&r.Call)
		if err := s.checkComplete(); err != nil {
			return review.AccessResponse{Status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "starting"}, Reason: "starting", Detail: err.Error()}
		}
		snapshot := s.current.Load()
		if trace != nil {
			snapshot = trace.Snapshot(snapshot)
		}
		d := e.Access(ctx, snapshot, &r.Spec)
		response := review.AccessResponse{Status: d.Status(), Reason: string(d.Reason), Detail: d.Scope}
		if d.Reason == authz.ReasonProbe {
			response.Code = http.StatusServiceUnavailable // the API server need not try again
		}
		return response
	}, o))
}

// begin begins to record a review, if reviews are recorded.
func (s *reviews) begin(call *review.Call) *record.Trace {
	if s.Begin == nil {
		return nil
	}
	trace := s.Begin()
	call.Finished = trace.Finish
	return trace
}

// admissionEndpoint answers admission reviews.
func (s *reviews) admissionEndpoint(e webhooks.Endpoint) http.Handler {
	o := s.admission
	o.Name = e.Name
	own := s.CustomResources
	if !e.CustomResources {
		own = nil
	}
	if own != nil {
		// Reviews that wait for their turn to be compiled keep no other from its decision.
		slots := review.NewSlots(1)
		slots.Kind = clients.Compilations
		o.SlotsFor = func(r *admission.Request) *review.Slots {
			if crdadmission.Concerns(r) {
				return slots
			}
			return nil
		}
	}
	handler := review.Admission(func(ctx context.Context, r *review.AdmissionRequest) admission.Response {
		trace := s.begin(&r.Call)
		if own != nil && crdadmission.Concerns(&r.Request) {
			return own.Review(ctx, r.Request, r.Client.Certified)
		}
		return s.decide(ctx, e, r, trace)
	}, o)
	if s.RequireClientCertificate {
		return keepAliveIf(isVerified, handler)
	}
	return keepAliveIf(always, handler)
}

// decide decides on an admission request. The trace may be nil.
func (s *reviews) decide(ctx context.Context, e webhooks.Endpoint, r *review.AdmissionRequest, trace *record.Trace) admission.Response {
	if err := s.checkComplete(); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if s.ReadNamespace != nil {
		s.ReadNamespace(r.Namespace, r.Client)
	}
	snapshot := s.current.Load()
	observers := webhooks.Observers{Profiles: s.Profiles, Policies: s.Policies}
	if trace != nil {
		snapshot = trace.Snapshot(snapshot)
	}
	return e.Admission(ctx, snapshot, webhooks.Input{Request: r.Request, Checked: true, Index: r.Index, Observers: observers})
}

// login answers people, who need no client certificate.
func (s *reviews) login(w http.ResponseWriter, r *http.Request) {
	if s.checkComplete() != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "starting: the configuration is not completely read yet (hint: try again in a few seconds)", http.StatusServiceUnavailable)
		return
	}
	s.Login.ServeHTTP(w, r)
}

// notFound counts calls of other paths: a webhook configuration with a misspelt path is
// an outage that must show.
func (s *reviews) notFound(w http.ResponseWriter, _ *http.Request) {
	s.Observe(&review.Outcome{Endpoint: "none", Decision: review.Refused, Reason: "path", Started: s.Now()})
	http.Error(w, "no endpoint has this path (hint: use /authenticate, /authorize with --authorize, /mutate, /validate, /login or /whoami)", http.StatusNotFound)
}

func (s *reviews) checkComplete() error {
	if s.CheckComplete == nil {
		return nil
	}
	return s.CheckComplete()
}
