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
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
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
	// InFlight bounds the bytes of all bodies that are held at one time. Endpoints
	// may share one. Required.
	InFlight *Budget
	// Slots bounds the decisions that are made at one time. Required.
	Slots *Slots
	// Admit, if set, says whether the caller may ask at all. Its error is for
	// the caller.
	Admit func(*http.Request) error
	// Observe, if set, gets each finished review. It must not keep the Outcome.
	Observe func(*Outcome)
	// Now is the clock. Required.
	Now func() time.Time
}

// Admission serves f as an admission webhook, mutating or validating.
func Admission(f AdmissionFunc, o Options) http.Handler {
	return &endpoint{Options: o, decide: func(ctx context.Context, s *scratch) *failure {
		var request admission.Request
		if err := decodeAdmission(s.room[:0], s.body, &request.AdmissionRequest); err != nil {
			return &failure{status: http.StatusBadRequest, reason: "malformed", text: err.Error()}
		}
		s.out.of(&request.AdmissionRequest)
		response := f(ctx, request)
		if failed := s.out.answered(&response); failed != nil {
			return failed
		}
		answer, err := AppendAdmission(s.answer[:0], request.UID, &response)
		s.answer = answer
		if err != nil {
			return &failure{status: http.StatusInternalServerError, reason: "internal", detail: err.Error()}
		}
		return nil
	}, refuse: refuseAdmission}
}

// Token serves f as a token authentication webhook.
func Token(f TokenFunc, o Options) http.Handler {
	return &endpoint{Options: o, decide: func(ctx context.Context, s *scratch) *failure {
		var request authentication.Request
		apiVersion, err := decodeToken(s.room[:0], s.body, &request)
		if err != nil {
			return &failure{status: http.StatusBadRequest, reason: "malformed", text: err.Error()}
		}
		response := f(ctx, request)
		s.out.tokenAnswered(&response)
		s.answer = AppendToken(s.answer[:0], apiVersion, &response.Status)
		return nil
	}, refuse: refuseToken}
}

// failure is a review that ends without an answer of its function.
type failure struct {
	status int
	// reason is one of a bounded set of words.
	reason string
	// text is for the caller. It holds nothing of the request and no internals.
	text string
	// detail is for the log.
	detail string
}

type endpoint struct {
	Options

	// decide writes the answer to the review in the scratch's body into its
	// answer.
	decide func(context.Context, *scratch) *failure
	// refuse answers for a failure. left is how long the caller will go on
	// waiting.
	refuse func(w http.ResponseWriter, f *failure, left time.Duration)
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := scratches.Get().(*scratch)
	s.out.Endpoint, s.out.Started = e.Name, e.Now()
	left := e.patience(r)
	answered := false
	defer func() {
		if recovered := recover(); recovered != nil {
			failed := &failure{
				status: http.StatusInternalServerError, reason: "panic",
				detail: fmt.Sprintf("%v\n%s", recovered, debug.Stack()),
			}
			if !answered {
				e.refuse(w, failed, 0)
			}
			s.out.failed(failed)
		}
		s.out.Took = e.Now().Sub(s.out.Started)
		if e.Observe != nil {
			e.Observe(&s.out)
		}
		e.InFlight.release(s.reserved)
		s.free()
	}()

	// The deadline leaves time for the answer to travel.
	ctx, cancel := context.WithDeadline(r.Context(), s.out.Started.Add(max(left-margin(left), minTime)))
	defer cancel()
	failed := e.review(ctx, r, left, s)
	answered = true
	if failed != nil {
		switch {
		case r.Context().Err() != nil:
			failed.reason = "aborted"
		case ctx.Err() != nil:
			failed.reason = "deadline"
		}
		s.out.failed(failed)
		e.refuse(w, failed, left-e.Now().Sub(s.out.Started))
		return
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(s.answer))}
	_, _ = w.Write(s.answer) // A caller that has gone away hears nothing.
}

// jsonType is shared by all responses; net/http does not change header values.
//
//nolint:gochecknoglobals // constant; saves an allocation a request
var jsonType = []string{"application/json"}

// review does everything between the request's header and the answer, which it
// leaves in the scratch.
func (e *endpoint) review(ctx context.Context, r *http.Request, left time.Duration, s *scratch) *failure {
	if e.Admit != nil {
		if err := e.Admit(r); err != nil {
			return &failure{status: http.StatusForbidden, reason: "caller", text: err.Error()}
		}
	}
	if r.Method != http.MethodPost {
		return &failure{status: http.StatusMethodNotAllowed, reason: "method", text: "only POST is answered here"}
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return &failure{status: http.StatusUnsupportedMediaType, reason: "media-type", text: "the media type must be application/json"}
	}

	// No more than a quarter of the caller's patience is spent on waiting.
	wait := left / 4
	err := e.read(ctx, r, wait, s)
	s.out.Bytes = len(s.body)
	if err != nil {
		return bodyFailure(err, e.MaxBytes)
	}
	queued := e.Now()
	entered := e.Slots.enter(ctx, wait)
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

// read reads the body into the scratch. It reserves what it is about to read, in
// steps that double, so that a caller who announces much and sends little
// reserves little.
func (e *endpoint) read(ctx context.Context, r *http.Request, wait time.Duration, s *scratch) error {
	announced := r.ContentLength // -1 if unknown
	if announced > e.MaxBytes {
		return errTooLarge
	}
	const firstStep = 64 << 10
	step := int64(firstStep)
	if announced >= 0 {
		step = min(step, announced)
	}
	body := s.body[:0]
	defer func() { s.body = body }()
	for {
		if !e.InFlight.reserve(ctx, step, wait) {
			return errOverload
		}
		s.reserved += step
		limit := int(s.reserved) + 1 // one more, to see the end
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
		step = s.reserved
		if announced >= 0 {
			step = max(min(step, announced-s.reserved), 1)
		}
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

// refuseAdmission answers with the failure's status. The API server then does
// what the webhook's failurePolicy says, or comes back after Retry-After.
func refuseAdmission(w http.ResponseWriter, f *failure, left time.Duration) {
	text := f.text
	header := w.Header()
	switch f.status {
	case http.StatusInternalServerError:
		text = "could not decide; the webhook's log has the reason"
	case http.StatusServiceUnavailable:
		if left > retryAfter {
			// A new connection may find another replica.
			header.Set("Retry-After", "1")
			header.Set("Connection", "close")
		}
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	}
	http.Error(w, text, f.status)
}

// refuseToken answers 200 whatever happened to a review. Only a request that no
// API server sends, one that is not a POST, gets its HTTP status.
func refuseToken(w http.ResponseWriter, f *failure, left time.Duration) {
	if f.status == http.StatusMethodNotAllowed {
		refuseAdmission(w, f, left)
		return
	}
	text := f.text
	if f.status == http.StatusInternalServerError {
		text = "could not decide; the webhook's log has the reason"
	}
	answer := AppendToken(nil, "", &tokenError(text).Status)
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(answer) // A caller that has gone away hears nothing.
}

func tokenError(text string) *authentication.Response {
	var response authentication.Response
	response.Status.Error = text
	return &response
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
