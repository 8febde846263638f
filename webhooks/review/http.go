// Package review is the codec between the API server and the decisions: HTTP
// and JSON on one side, plain functions from request to response on the other.
//
// It alone knows the protocol: what a review must hold, what an answer must
// look like, and what becomes of each of the three outcomes. A decision that
// could not be made is an HTTP 5xx for admission, so that the webhook's
// failurePolicy decides, and for authentication a 200 whose status.error is
// set, because the API server retries anything else for seconds and holds every
// login up with it.
package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"
)

// AdmissionFunc decides on an admission request. It is what controller-runtime
// calls a HandlerFunc. The request's raw objects are valid during the call
// only. A response that is not allowed and whose code is 500 or more means
// "could not tell".
type AdmissionFunc = func(context.Context, admission.Request) admission.Response

// TokenFunc decides on a token. A response with a status.error means "could not
// tell".
type TokenFunc = func(context.Context, authentication.Request) authentication.Response

const (
	// MaxAdmissionBytes bounds the body of an AdmissionReview. The API server
	// takes an object of 3 MiB and stores one of 1.5 MiB, and writes each <, >
	// and & of either as six bytes: 6 × (3 + 1.5) = 27 MiB, and the rest of the
	// review.
	MaxAdmissionBytes = 32 << 20
	// MaxTokenBytes bounds the body of a TokenReview. The API server passes on
	// tokens of up to 1 MB.
	MaxTokenBytes = 2 << 20
	// minTime is what a decision gets, however little the caller allows.
	minTime = 50 * time.Millisecond
	// retryAfter is the pause that a refused caller is asked for, with time left
	// for the attempt itself. Below it the caller could not come back in time.
	retryAfter = 1200 * time.Millisecond
)

// Options are what an endpoint needs from its server.
type Options struct {
	// Name is the endpoint's name in Outcomes.
	Name string
	// MaxBytes bounds the body. MaxAdmissionBytes and MaxTokenBytes fit.
	MaxBytes int64
	// MaxTime bounds the time for one review. What the caller states in
	// ?timeout= holds if it is shorter.
	MaxTime time.Duration
	// InFlight bounds the memory that bodies, and decoding them, take at one time.
	// Endpoints may share one. Required.
	InFlight *Budget
	// Slots bounds the decisions that are made at one time. Required.
	Slots *Slots
	// Admit, if set, says whether the caller may ask at all. Its error is for
	// the caller.
	Admit func(*http.Request) error
	// Observe, if set, gets each finished review. It must not keep the Outcome.
	Observe func(*Outcome)
	// TraceParents has each Outcome hold the caller's trace context.
	TraceParents bool
	// Now is the clock. Required.
	Now func() time.Time
}

// Admission serves f as an admission webhook, mutating or validating.
func Admission(f AdmissionFunc, o Options) http.Handler {
	return &endpoint{
		Options: o,
		decode: func(s *scratch) (int, error) {
			values, err := decodeAdmission(s.room[:0], s.body, &s.admission.AdmissionRequest)
			s.out.of(&s.admission.AdmissionRequest)
			return values, err
		},
		decide: func(ctx context.Context, s *scratch) *failure {
			response := f(ctx, s.admission)
			if failed := s.out.answered(&response); failed != nil {
				return failed
			}
			answer, err := AppendAdmission(s.answer[:0], s.admission.UID, &response)
			s.answer = answer
			if err != nil {
				return &failure{status: http.StatusInternalServerError, reason: "internal", detail: err.Error()}
			}
			return nil
		},
		refuse: func(w http.ResponseWriter, f *failure, left time.Duration, _ *scratch) {
			refuse(w, f, left > retryAfter)
		},
	}
}

// Token serves f as a token authentication webhook.
func Token(f TokenFunc, o Options) http.Handler {
	return &endpoint{
		Options: o,
		decode: func(s *scratch) (int, error) {
			apiVersion, values, err := decodeToken(s.room[:0], s.body, &s.token)
			s.apiVersion = apiVersion
			return values, err
		},
		decide: func(ctx context.Context, s *scratch) *failure {
			response := f(ctx, s.token)
			s.out.tokenAnswered(&response)
			s.answer = AppendToken(s.answer[:0], s.apiVersion, &response.Status)
			return nil
		},
		refuse: refuseToken,
	}
}

// failure is a review that ends without an answer of its function.
type failure struct {
	status int
	// reason is one of a bounded set of words.
	reason string
	// text is for the caller. Of the request it holds no more than the name of a
	// member, and nothing of ours.
	text string
	// detail is for the log.
	detail string
}

type endpoint struct {
	Options

	// decode reads the review in the scratch's body, and counts its values. Its
	// error is for the caller.
	decode func(*scratch) (values int, err error)
	// decide writes the answer into the scratch.
	decide func(context.Context, *scratch) *failure
	// refuse answers for a failure. left is how long the caller will go on
	// waiting.
	refuse func(w http.ResponseWriter, f *failure, left time.Duration, s *scratch)
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := scratches.Get().(*scratch)
	s.out.Endpoint, s.out.Started = e.Name, e.Now()
	if e.TraceParents {
		s.out.TraceParent = r.Header.Get("Traceparent")
	}
	left := e.patience(r)
	// No more than a quarter of the caller's patience is spent on waiting.
	s.held = holding{budget: e.InFlight, patience: left / 4, now: e.Now}
	answered := false
	defer func() {
		if recovered := recover(); recovered != nil {
			failed := &failure{status: http.StatusInternalServerError, reason: "panic", detail: panicDetail(recovered)}
			if !answered {
				e.refuse(w, failed, 0, s)
			}
			s.out.failed(failed)
		}
		s.out.Took = e.Now().Sub(s.out.Started)
		s.held.release()
		if e.Observe != nil {
			if s.out.Decision != Allowed {
				// It is going to be logged, and the caller need not wait for that.
				_ = http.NewResponseController(w).Flush() // a caller that has gone away hears nothing
			}
			e.Observe(&s.out)
		}
		s.free()
	}()

	// The deadline leaves time for the answer to travel.
	ctx, cancel := context.WithDeadline(r.Context(), s.out.Started.Add(max(left-margin(left), minTime)))
	defer cancel()
	failed := e.review(ctx, r, s)
	answered = true
	if failed != nil {
		switch {
		case r.Context().Err() != nil:
			failed.reason = "aborted"
		case ctx.Err() != nil:
			failed.reason = "deadline"
		}
		s.out.failed(failed)
		e.refuse(w, failed, left-e.Now().Sub(s.out.Started), s)
		return
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(s.answer))}
	if _, err := w.Write(s.answer); err != nil {
		// The caller has gone away, and the connection's writer may still be
		// reading.
		s.answer = nil
	}
}

// panicDetail is what the log is told of a panic: where it was, and of the value
// only what cannot hold anything of a request.
func panicDetail(recovered any) string {
	text := fmt.Sprintf("%T", recovered)
	if err, ok := recovered.(runtime.Error); ok {
		text = err.Error()
	}
	return text + "\n" + string(debug.Stack())
}

// jsonType is shared by all responses; net/http does not change header values.
//
//nolint:gochecknoglobals // constant; saves an allocation a request
var jsonType = []string{"application/json"}

// review does everything between the request's header and the answer, which it
// leaves in the scratch.
func (e *endpoint) review(ctx context.Context, r *http.Request, s *scratch) *failure {
	if r.Method != http.MethodPost {
		return &failure{status: http.StatusMethodNotAllowed, reason: "method", text: "only POST is answered here"}
	}
	if e.Admit != nil {
		if err := e.Admit(r); err != nil {
			return &failure{status: http.StatusForbidden, reason: "caller", text: err.Error()}
		}
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return &failure{status: http.StatusUnsupportedMediaType, reason: "media-type", text: "the media type must be application/json"}
	}
	err := e.read(ctx, r, s)
	s.out.Bytes = len(s.body)
	if err != nil {
		return bodyFailure(err, e.MaxBytes)
	}
	values, err := e.decode(s)
	if err != nil {
		return &failure{status: http.StatusBadRequest, reason: "malformed", text: err.Error()}
	}
	queued := e.Now()
	entered := s.held.takeForValues(ctx, values) && e.Slots.enter(ctx, &s.held)
	s.out.Waited = e.Now().Sub(queued)
	if !entered {
		return &failure{status: http.StatusServiceUnavailable, reason: "overload", text: "too many reviews at one time"}
	}
	defer e.Slots.leave()
	return e.decide(ctx, s)
}

// patience is how long the caller waits: what it says, at most MaxTime.
func (e *endpoint) patience(r *http.Request) time.Duration {
	text, found := strings.CutPrefix(r.URL.RawQuery, "timeout=")
	if !found || strings.ContainsAny(text, "&%") {
		query, _ := url.ParseQuery(r.URL.RawQuery) // What cannot be read is not there.
		text = query.Get("timeout")
	}
	if told, err := time.ParseDuration(text); err == nil && told > 0 {
		return min(told, e.MaxTime)
	}
	return e.MaxTime
}

// margin is the part of the caller's patience that is kept for the way back.
func margin(patience time.Duration) time.Duration {
	return min(max(patience/10, 50*time.Millisecond), 200*time.Millisecond)
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

var (
	errTooLarge = errors.New("body too large")
	errOverload = errors.New("too many bytes in flight")
)

// read reads the body into the scratch. It reserves what it is about to read:
// a first step, and when that has come the rest of what was announced, or as much
// again if nothing was. So a caller who announces much and sends nothing
// reserves little.
func (e *endpoint) read(ctx context.Context, r *http.Request, s *scratch) error {
	announced := r.ContentLength // -1 if unknown
	if announced > e.MaxBytes {
		return errTooLarge
	}
	body := s.body[:0]
	defer func() { s.body = body }()
	reserved := int64(firstStep)
	if announced >= 0 {
		reserved = min(reserved, announced)
	}
	if !s.held.takeFirst(ctx, reserved) {
		return errOverload
	}
	for {
		limit := int(reserved) + 1 // one more, to see the end
		if cap(body) < limit {
			grown := make([]byte, len(body), limit)
			copy(grown, body)
			body = grown
		}
		for len(body) < limit {
			n, err := r.Body.Read(body[len(body):limit])
			body = body[:len(body)+n]
			if int64(len(body)) > e.MaxBytes {
				return errTooLarge
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		step := reserved
		if announced > reserved {
			step = announced - reserved
		}
		if !s.held.takeMore(ctx, step) {
			return errOverload
		}
		reserved += step
	}
}

func bodyFailure(err error, limit int64) *failure {
	switch {
	case errors.Is(err, errTooLarge):
		return &failure{
			status: http.StatusRequestEntityTooLarge, reason: "too-large",
			text: fmt.Sprintf("the body is larger than %d bytes", limit),
		}
	case errors.Is(err, errOverload):
		return &failure{status: http.StatusServiceUnavailable, reason: "overload", text: "too many bytes of reviews at one time"}
	default:
		return &failure{status: http.StatusBadRequest, reason: "aborted", text: "the body could not be read", detail: err.Error()}
	}
}

// refuse answers with the failure's status. The API server then does what the
// webhook's failurePolicy says, or, if it may, comes back once.
func refuse(w http.ResponseWriter, f *failure, again bool) {
	header := w.Header()
	switch {
	case f.status == http.StatusServiceUnavailable && again:
		// A new connection may find another replica.
		header.Set("Retry-After", "1")
		header.Set("Connection", "close")
	case f.status == http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	}
	http.Error(w, f.publicText(), f.status)
}

// refuseToken answers 200 with an error whatever happened to a review, and
// repeats its audiences: the API server compares them before it looks at the
// error, and would take the answer for a no. So where they are not known, because
// there was no room to read them, it is a 503, which the API server neither
// repeats nor caches without a Retry-After. What is no POST is no review.
func refuseToken(w http.ResponseWriter, f *failure, _ time.Duration, s *scratch) {
	if f.status == http.StatusMethodNotAllowed || f.status == http.StatusServiceUnavailable && s.apiVersion == "" {
		refuse(w, f, false)
		return
	}
	status := authenticationv1.TokenReviewStatus{Error: f.publicText(), Audiences: s.token.Spec.Audiences}
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(AppendToken(nil, s.apiVersion, &status)) // A caller that has gone away hears nothing.
}

// publicText is what the caller is told.
func (f *failure) publicText() string {
	if f.status == http.StatusInternalServerError {
		return "could not decide; the webhook's log has the reason"
	}
	return f.text
}

// of notes what a request is about.
func (o *Outcome) of(request *admissionv1.AdmissionRequest) {
	o.UID = request.UID
	o.Operation = string(request.Operation)
	o.Resource = request.Resource
	o.Subresource = request.SubResource
	o.Namespace = request.Namespace
	o.Object = request.Name
	o.User = request.UserInfo.Username
	o.DryRun = request.DryRun != nil && *request.DryRun
}
