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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
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

	// What is sent of a body must have arrived within these times after the header:
	// firstByteTime is for the first byte, smallBodyTime for as much as a small review
	// has, and bodyTime for all. See BodyTime.
	firstByteTime = 2 * time.Second
	smallBodyTime = 5 * time.Second
	bodyTime      = 15 * time.Second
	// answerTime is how long a caller without a verified certificate may take to receive
	// the end of an answer.
	answerTime = 5 * time.Second
	// minBuffer is the first buffer for a body of unknown size, and bufferGrowth by how
	// much the next one is larger.
	minBuffer    = 8 << 10
	bufferGrowth = 4
	// largeBuffer is from when on a body gets the memory that was announced for it.
	largeBuffer = 512 << 10
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
	// InFlight bounds the memory that requests, bodies, and decoding them, take at
	// one time. Endpoints may share one. Required.
	InFlight *Budget
	// Slots bounds the decisions that are made at one time. Required.
	Slots *Slots
	// Caller, if set, identifies the caller. Without it all are one.
	Caller func(*http.Request) Caller
	// SlotsFor, if set, returns the slots for an admission request that is to take none of
	// Slots, and nil for any other.
	SlotsFor func(*admission.Request) *Slots
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

// bounded is o with a bound on the body for which there is memory.
func (o Options) bounded() Options {
	o.MaxBytes = min(o.MaxBytes, o.InFlight.LargestBody())
	return o
}

// Admission serves f as an admission webhook, mutating or validating.
func Admission(f AdmissionFunc, o Options) http.Handler {
	return &endpoint{
		Options: o.bounded(),
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
		Options: o.bounded(),
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
	// waiting. Before anything was read there is no scratch.
	refuse func(w http.ResponseWriter, f *failure, left time.Duration, s *scratch)
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var caller Caller
	if e.Caller != nil {
		caller = e.Caller(r)
	}
	if !e.InFlight.enter(caller) {
		e.refuseEntry(w, r, caller)
		return
	}
	s := scratches.Get().(*scratch)
	s.out.Endpoint, s.out.Caller, s.out.Started = e.Name, caller, e.Now()
	if e.TraceParents {
		s.out.TraceParent = r.Header.Get("Traceparent")
	}
	left := e.patience(r)
	// No more than a quarter of the caller's patience is spent on waiting.
	s.held = holding{budget: e.InFlight, caller: caller, held: requestBytes, used: requestOverhead, patience: left / 4, now: e.Now}
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
		// A stream whose caller takes no answer keeps its memory until then.
		sent := e.sent(w, r, caller)
		s.held.release()
		if e.Observe != nil {
			if !sent && s.out.Decision != Allowed {
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
	failed := e.review(ctx, w, r, s)
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

// sent sends the answer to a caller without a verified certificate now, over a protocol
// with several streams on a connection, and reports whether it did: a caller that opens no
// window for it would otherwise have many of them wait for that after their memory was
// given back.
func (e *endpoint) sent(w http.ResponseWriter, r *http.Request, caller Caller) bool {
	if caller.Certified || r.ProtoMajor < 2 {
		return false
	}
	Send(w, e.Now())
	return true
}

// Send sends what was written of an answer, within a short time from now on.
func Send(w http.ResponseWriter, now time.Time) {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(now.Add(answerTime)) // both protocols know it
	_ = c.Flush()                               // a caller that has gone away hears nothing
}

// refuseEntry refuses a request for which there is no memory, not even to read its
// body. Whoever does not read such answers gets none.
func (e *endpoint) refuseEntry(w http.ResponseWriter, r *http.Request, caller Caller) {
	f := &failure{status: http.StatusServiceUnavailable, reason: "overload", text: "too many reviews at one time"}
	if e.Observe != nil {
		out := Outcome{Endpoint: e.Name, Caller: caller, Started: e.Now()}
		out.failed(f)
		e.Observe(&out)
	}
	defer e.InFlight.refusals.Add(-1)
	if e.InFlight.refusals.Add(1) > maxRefusals {
		panic(http.ErrAbortHandler)
	}
	e.refuse(w, f, e.patience(r), nil)
	Send(w, e.Now())
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
func (e *endpoint) review(ctx context.Context, w http.ResponseWriter, r *http.Request, s *scratch) *failure {
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
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &failure{
			status: http.StatusUnsupportedMediaType, reason: "media-type",
			text: fmt.Sprintf("Content-Encoding %.40q is not supported (hint: send the review uncompressed)", encoding),
		}
	}
	err := e.read(ctx, w, r, s)
	s.out.Bytes = len(s.body)
	if err != nil {
		return bodyFailure(err, e.MaxBytes)
	}
	values, err := e.decode(s)
	if err != nil {
		return &failure{status: http.StatusBadRequest, reason: "malformed", text: err.Error()}
	}
	queued := e.Now()
	err = s.held.grow(ctx, int64(values)*valueBytes)
	slots := e.Slots
	if e.SlotsFor != nil {
		slots = cmp.Or(e.SlotsFor(&s.admission), slots)
	}
	entered := err == nil && slots.acquire(ctx, &s.held, 1)
	s.out.Waited = e.Now().Sub(queued)
	if most, ok := errors.AsType[tooMuchError](err); ok {
		return &failure{
			status: http.StatusRequestEntityTooLarge, reason: "too-large",
			text: fmt.Sprintf("the review has %d JSON values; beside its %d bytes at most %d can be decoded (hint: raise the memory limit of Gatehouse or --max-in-flight-bytes)", values, len(s.body), int64(most)/valueBytes),
		}
	}
	if !entered {
		return &failure{status: http.StatusServiceUnavailable, reason: "overload", text: "too many reviews at one time"}
	}
	defer slots.release(s.held.caller, 1)
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

var errTooLarge = errors.New("body too large")

// read reads the body into the scratch. Memory is reserved for the buffer before it is
// made, and a buffer is at most bufferGrowth times as large as what has arrived, until
// that is largeBuffer.
func (e *endpoint) read(ctx context.Context, w http.ResponseWriter, r *http.Request, s *scratch) error {
	limit := e.MaxBytes + 1
	if r.ContentLength >= 0 {
		if r.ContentLength > e.MaxBytes {
			return errTooLarge
		}
		limit = r.ContentLength + 1 // one more, to see the end
	}
	body := s.body[:0]
	if !s.held.tryGrow(int64(cap(body))) {
		body = nil
	}
	defer func() { s.body = body }()
	deadline := BodyTime(s.held.caller, 0)
	for {
		if len(body) == cap(body) {
			size := nextBuffer(int64(len(body)), limit, r.ContentLength >= 0)
			if err := s.held.grow(ctx, size); err != nil {
				return err
			}
			grown := make([]byte, len(body), size)
			copy(grown, body)
			s.held.shrink(int64(cap(body)))
			body = grown
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > e.MaxBytes:
			return errTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if next := BodyTime(s.held.caller, len(body)); next > deadline && int64(len(body)) != r.ContentLength {
			deadline = next
			_ = http.NewResponseController(w).SetReadDeadline(s.out.Started.Add(deadline)) // both protocols know it
		}
	}
}

// nextBuffer is the size of the buffer that follows a full one. The body has at most
// limit bytes, and announced tells whether that is what was announced. Sizes are a power of
// bufferGrowth below the limit, so that the last one is not made beside one that is almost
// as large. A body that was announced and is large by then gets all of its memory at one
// time: of many that grow side by side none would come to its end.
func nextBuffer(full, limit int64, announced bool) int64 {
	size := max(limit, full+1)
	if announced && full >= largeBuffer {
		return size
	}
	for smaller := size/bufferGrowth + 1; smaller > full && smaller >= minBuffer; smaller = size/bufferGrowth + 1 {
		size = smaller
	}
	return size
}

// BodyTime returns how long after its header a body may take of which n bytes have
// arrived. The server sets it as the read deadline, with n = 0, before it calls an
// endpoint. A caller with a verified certificate is no stranger who holds memory for
// nothing: on a busy machine its body may come late.
func BodyTime(c Caller, n int) time.Duration {
	switch {
	case c.Certified || n >= requestBytes:
		return bodyTime
	case n == 0:
		return firstByteTime
	default:
		return smallBodyTime
	}
}

// isTimeout reports whether a read ended at its deadline.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func bodyFailure(err error, limit int64) *failure {
	most, impossible := errors.AsType[tooMuchError](err)
	switch {
	case impossible:
		return &failure{
			status: http.StatusRequestEntityTooLarge, reason: "too-large",
			text: fmt.Sprintf("the body needs more memory than the %d bytes that are left for it (hint: announce its size in Content-Length)", int64(most)),
		}
	case errors.Is(err, errTooLarge):
		return &failure{
			status: http.StatusRequestEntityTooLarge, reason: "too-large",
			text: fmt.Sprintf("the body is larger than %d bytes", limit),
		}
	case isTimeout(err):
		return &failure{
			status: http.StatusRequestTimeout, reason: "aborted",
			text: fmt.Sprintf("the body did not arrive in time (hint: its first byte must follow the header within %s, %d bytes within %s, all within %s)", firstByteTime, requestBytes, smallBodyTime, bodyTime),
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
	if f.status == http.StatusMethodNotAllowed || f.status == http.StatusServiceUnavailable && (s == nil || s.apiVersion == "") {
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
