// Package review translates between HTTP and decisions: Admission and Token make an http.Handler from a function that
// decides about a request.
//
// It alone knows the protocol of webhooks: what a review must contain, how an answer looks, and how each of the three
// outcomes is answered. "Cannot decide" is an HTTP 5xx for admission, so that the failurePolicy of the webhook decides.
// For tokens it is a 200 with status.error, because the API server would retry anything else for seconds and block all
// logins meanwhile.
//
// A request takes one path: handler.ServeHTTP begins and ends it, and handler.answer takes it through the steps in
// between.
package review

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/internal/clients"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// AdmissionFunc decides on an admission request. The context carries the deadline and
// nothing else. A response that is not allowed and whose code is 500 or more means
// "cannot decide".
type AdmissionFunc = func(context.Context, *AdmissionRequest) admission.Response

// TokenFunc decides on a token. A response with a status.error means "cannot
// decide".
type TokenFunc = func(context.Context, *TokenRequest) authentication.Response

// Call is what is known about a review besides its request.
type Call struct {
	// Client is who sent the review.
	Client *clients.Client
	// Finished may be set during the decision: it gets the review once it is finished.
	Finished func(*Outcome, Exchange)
}

// AdmissionRequest is an AdmissionReview to decide on. It is valid during the call only. Its
// objects are JSON without space around them.
type AdmissionRequest struct {
	admission.Request
	Call
	// Index is that of the AdmissionReview whose text the objects are part of, nil for none.
	Index *rawjson.Index
}

// TokenRequest is a TokenReview to decide on. It is valid during the call only.
type TokenRequest struct {
	authentication.Request
	Call

	// Pause runs a wait for another service, during which the review takes no slot from
	// others.
	Pause func(wait func())
}

const (
	// MaxAdmissionBytes bounds the body of an AdmissionReview. The API server
	// takes an object of 3 MiB and stores one of 1.5 MiB, and writes each <, >
	// and & of either as six bytes: 6 × (3 + 1.5) = 27 MiB, and the rest of the
	// review.
	MaxAdmissionBytes = 32 << 20
	// MaxTokenBytes bounds the body of a TokenReview. The API server passes on
	// tokens of up to 1 MB.
	MaxTokenBytes = 2 << 20
	// minTime is the least time for a decision, however little the caller allows.
	minTime = 50 * time.Millisecond
)

// Options are what an endpoint needs from its server.
type Options struct {
	// Name is the endpoint's name in Outcomes.
	Name string
	// MaxBytes bounds the body. MaxAdmissionBytes, MaxTokenBytes and MaxAccessBytes fit.
	MaxBytes int64
	// MaxTime bounds the time for one review. The caller's ?timeout= holds if it is
	// shorter.
	MaxTime time.Duration
	// InFlight bounds the memory that requests, bodies, and decoding them, take at
	// one time. Endpoints may share one. Required.
	InFlight *Budget
	// Slots bounds the decisions that are made at one time. Required.
	Slots *Slots
	// Connection, if set, returns the connection of a request. Those without one are of one client.
	Connection func(*http.Request) Connection
	// SlotsFor, if set, returns the slots for an admission request that takes none of
	// Slots, and nil for any other.
	SlotsFor func(*admission.Request) *Slots
	// Admit, if set, returns an error if the caller must not be answered. The error
	// is for the caller.
	Admit func(*http.Request) error
	// Observe, if set, gets each finished review. It must not keep the Outcome.
	Observe func(*Outcome)
	// Now is the clock. Required.
	Now func() time.Time
}

// Connection is that of a request.
type Connection interface {
	// Client returns the account of who made it.
	Client() *clients.Client
	// Begin is called when the body of a request has arrived, and End when the answer is made.
	Begin()
	End()
}

// unknownConnection is one of which nothing is known.
type unknownConnection struct{ client *clients.Client }

func (c unknownConnection) Client() *clients.Client { return c.client }
func (unknownConnection) Begin()                    {}
func (unknownConnection) End()                      {}

// Admission serves f as an admission webhook, mutating or validating.
func Admission(f AdmissionFunc, o Options) http.Handler {
	return newHandler(admissionProtocol{f}, o)
}

// Token serves f as a token authentication webhook.
func Token(f TokenFunc, o Options) http.Handler {
	return newHandler(tokenProtocol{f}, o)
}

// protocol is how the kinds of review differ.
type protocol interface {
	// decode decodes the review in the exchange's body and returns the number of its
	// JSON values. The error is for the caller.
	decode(x *exchange) (values int, err error)
	// decide decides on the decoded request and encodes the answer into the exchange.
	decide(ctx context.Context, x *exchange) *failure
	// refuse answers for a failure. The caller waits for the remaining time.
	refuse(w http.ResponseWriter, f *failure, remaining time.Duration, x *exchange)
}

// handler serves one endpoint.
type handler struct {
	Options

	protocol protocol
	unknown  Connection
}

func newHandler(p protocol, o Options) *handler {
	o.MaxBytes = min(o.MaxBytes, o.InFlight.LargestBody())
	return &handler{Options: o, protocol: p, unknown: unknownConnection{clients.Unknown()}}
}

func (h *handler) connectionOf(r *http.Request) Connection {
	if h.Connection != nil {
		if c := h.Connection(r); c != nil {
			return c
		}
	}
	return h.unknown
}

// ServeHTTP implements http.Handler. It bounds the time of a request and writes the answer.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timeout := h.timeout(r)
	x := h.newExchange(r, timeout)
	defer h.finish(w, x)
	ctx := &deadline{request: r.Context(), at: x.outcome.Started.Add(decisionTime(timeout)), now: h.Now}
	defer ctx.end()

	failed := h.answer(ctx, w, r, x) //nolint:contextcheck // ctx is a context of the request
	x.answered = true
	if failed == nil {
		write(w, x)
		return
	}
	switch {
	case r.Context().Err() != nil:
		failed.reason = "aborted"
	case ctx.Err() != nil:
		failed.reason = "deadline"
	}
	x.outcome.setFailure(failed)
	h.protocol.refuse(w, failed, timeout-h.Now().Sub(x.outcome.Started), x)
}

// growStack makes the stack of a new goroutine as large as most decisions need. Otherwise the stack would double
// several times, and each time be copied. It returns a byte of the array so that the compiler keeps the array.
//
//go:noinline
func growStack(i int) byte {
	var buffer [8 << 10]byte
	return buffer[i]
}

// answer takes a request from its header to the encoded answer in the exchange.
func (h *handler) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) *failure {
	if failed := h.checkHeader(r); failed != nil {
		return failed
	}
	if failed := h.readBody(ctx, w, r, x); failed != nil {
		return failed
	}
	x.connection.Begin()
	defer x.connection.End()
	if r.ProtoMajor > 1 {
		growStack(0) // net/http makes a goroutine for each request
	}
	values, err := h.protocol.decode(x)
	if err != nil {
		return &failure{status: http.StatusBadRequest, reason: "malformed", message: err.Error()}
	}
	slots, failed := h.acquireSlot(ctx, x, values)
	if failed != nil {
		return failed
	}
	x.slots = slots
	defer x.releaseSlot()
	return h.protocol.decide(ctx, x)
}

// releaseSlot gives back the slot of the exchange, if it has one.
func (x *exchange) releaseSlot() {
	if x.slots != nil {
		x.slots.Release(x.memory.client, 1)
		x.slots = nil
	}
}

// pause runs a wait for another service, during which others have the slot. If none is free
// afterwards, the little that is left of the decision is made all the same.
func (x *exchange) pause(ctx context.Context, wait func()) {
	slots := x.slots
	x.releaseSlot()
	wait()
	if slots != nil && x.memory.acquire(ctx, &slots.Pool, 1) {
		x.slots = slots
	}
}

// timeout is how long the caller waits: its ?timeout=, at most MaxTime.
func (h *handler) timeout(r *http.Request) time.Duration {
	value, found := strings.CutPrefix(r.URL.RawQuery, "timeout=")
	if !found || strings.ContainsAny(value, "&%") {
		query, _ := url.ParseQuery(r.URL.RawQuery) // what cannot be parsed is ignored
		value = query.Get("timeout")
	}
	if timeout, err := time.ParseDuration(value); err == nil && timeout > 0 {
		return min(timeout, h.MaxTime)
	}
	return h.MaxTime
}

// decisionTime is the part of the caller's timeout that a request may take. The rest
// is for the answer to travel.
func decisionTime(timeout time.Duration) time.Duration {
	return max(timeout-min(max(timeout/10, 50*time.Millisecond), 200*time.Millisecond), minTime)
}

// checkHeader checks the method, the caller and the media type.
func (h *handler) checkHeader(r *http.Request) *failure {
	if r.Method != http.MethodPost {
		return &failure{status: http.StatusMethodNotAllowed, reason: "method", message: "the method must be POST"}
	}
	if h.Admit != nil {
		if err := h.Admit(r); err != nil {
			return &failure{status: http.StatusForbidden, reason: "caller", message: err.Error()}
		}
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return &failure{status: http.StatusUnsupportedMediaType, reason: "media-type", message: "the media type must be application/json"}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &failure{
			status: http.StatusUnsupportedMediaType, reason: "media-type",
			message: fmt.Sprintf("Content-Encoding %.40q is not supported (hint: send the review uncompressed)", encoding),
		}
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// acquireSlot reserves the memory for the decoded values and waits for a slot, which
// the caller of acquireSlot releases.
func (h *handler) acquireSlot(ctx context.Context, x *exchange, values int) (*Slots, *failure) {
	started := h.Now()
	var err error
	if bytes := int64(values) * valueBytes; !x.memory.tryGrow(bytes) {
		x.dropIndex() // a review can be decided on without it, and not without memory for its values
		err = x.memory.grow(ctx, bytes)
	}
	x.memory.trim()
	slots := h.Slots
	if h.SlotsFor != nil {
		slots = cmp.Or(h.SlotsFor(&x.admission.Request), slots)
	}
	acquired := err == nil && x.memory.acquire(ctx, &slots.Pool, 1)
	x.outcome.Waited = h.Now().Sub(started)
	if failed := valuesFailure(err, values, len(x.body)); failed != nil {
		return nil, failed
	}
	if !acquired {
		return nil, &failure{status: http.StatusServiceUnavailable, reason: "overload", message: "too many concurrent reviews"}
	}
	return slots, nil
}

// jsonType is shared by all responses; net/http does not change header values.
//
//nolint:gochecknoglobals // constant; saves an allocation a request
var jsonType = []string{"application/json"}

// write writes the answer.
func write(w http.ResponseWriter, x *exchange) {
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(x.answer))}
	if _, err := w.Write(x.answer); err != nil {
		// The caller has closed the connection, and the connection's writer may still be
		// reading.
		x.answer = nil
	}
}

// finish answers for a panic, gives back the memory and reports the outcome. It is deferred.
func (h *handler) finish(w http.ResponseWriter, x *exchange) {
	if recovered := recover(); recovered != nil {
		failed := &failure{status: http.StatusInternalServerError, reason: "panic", detail: panicDetail(recovered)}
		if !x.answered {
			h.protocol.refuse(w, failed, 0, x)
		}
		x.outcome.setFailure(failed)
	}
	x.outcome.Took = h.Now().Sub(x.outcome.Started)
	x.memory.release()
	if h.Observe != nil {
		if d := x.outcome.Decision; d != Allowed && d != NoOpinion {
			// Outcomes like this one are logged, and the caller need not wait for that.
			_ = http.NewResponseController(w).Flush() // fails if the caller has closed the connection
		}
		h.Observe(&x.outcome)
	}
	for _, finished := range [...]func(*Outcome, Exchange){x.admission.Finished, x.token.Finished, x.access.Finished} {
		if finished != nil {
			finished(&x.outcome, x.public())
		}
	}
	x.free()
}

// panicDetail describes a panic for the log: its place, and of its value only what
// cannot hold any of the request.
func panicDetail(recovered any) string {
	value := fmt.Sprintf("%T", recovered)
	if err, ok := recovered.(runtime.Error); ok {
		value = err.Error()
	}
	return value + "\n" + string(debug.Stack())
}
