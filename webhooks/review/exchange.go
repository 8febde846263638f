package review

import (
	"net/http"
	"sync"
	"time"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// exchange is one request in progress. Exchanges are pooled: new memory for each
// would be most of what a small review allocates.
type exchange struct {
	outcome    Outcome
	connection Connection
	memory     reservation
	// body is in small, in large, or in memory of its own.
	body    []byte
	small   *[smallBuffer]byte
	large   *[largeBuffer]byte
	answer  []byte
	members [maxMembers]rawjson.Member
	// indexBytes is the memory that the Index of the body uses.
	indexBytes int64

	// One of these is the decoded request.
	admission  AdmissionRequest
	token      TokenRequest
	apiVersion string // of a TokenReview
	access     AccessRequest
	// accessVersion is the apiVersion of a SubjectAccessReview.
	accessVersion string

	// slots has the slot that the exchange holds, nil while it holds none.
	slots *Slots

	// answered reports whether the answer, or a refusal, may have been written.
	answered bool
}

//nolint:gochecknoglobals // a pool is shared by its nature
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// indexes are pooled for themselves: fewer requests have one than wait for their bodies. The first pool is for bodies of up to
// largeBody bytes, so that small reviews do not hold what large ones needed.
//
//nolint:gochecknoglobals // a pool is shared by its nature
var indexes [2]sync.Pool

// largeBody is the size of a body from which on its Index is not used for small ones.
const largeBody = 16 << 10

func (x *exchange) indexPool() *sync.Pool {
	if len(x.body) > largeBody {
		return &indexes[1]
	}
	return &indexes[0]
}

// withIndex calls a function with an Index for the body, or with nil if there is no memory for it. Once it is filled, only the
// memory that it has is used.
func (x *exchange) withIndex(fill func(*rawjson.Index)) {
	most := rawjson.OutlineBytes(len(x.body))
	if !x.memory.tryGrow(most) {
		fill(nil)
		return
	}
	index, _ := x.indexPool().Get().(*rawjson.Index)
	if index == nil || index.Bytes() > most {
		index = new(rawjson.Index)
	}
	fill(index)
	x.admission.Index, x.indexBytes = index, min(most, index.Bytes())
	x.memory.shrink(most - x.indexBytes)
	if _, filled := index.Root(); !filled {
		x.dropIndex()
	}
}

// dropIndex gives the Index back, if there is one.
func (x *exchange) dropIndex() {
	if x.admission.Index == nil {
		return
	}
	x.memory.shrink(x.indexBytes)
	x.admission.Index.Forget()
	x.indexPool().Put(x.admission.Index)
	x.admission.Index = nil
}

// Exchange is a review as it was received and answered. Its bytes are valid during the call
// that gets it only, and must not be changed.
type Exchange struct {
	// Body is an AdmissionReview or a SubjectAccessReview. It is nil for a TokenReview, which holds the token.
	Body []byte
	// Answer is the review that was sent, nil if there was none or the caller did not take it.
	Answer []byte
}

// public returns what of the exchange others than the protocol may see.
func (x *exchange) public() Exchange {
	out := Exchange{Body: x.body, Answer: x.answer}
	switch x.outcome.Decision {
	case Allowed, Denied, NoOpinion:
	case Unknown, Refused, Shed:
		out.Answer = nil
	}
	if x.apiVersion != "" {
		out.Body = nil
	}
	return out
}

// newExchange begins an exchange, for which nothing is reserved yet.
func (h *handler) newExchange(r *http.Request, timeout time.Duration) *exchange {
	x := exchanges.Get().(*exchange) //nolint:forcetypeassert // the pool has no others
	x.connection = h.connectionOf(r)
	client := x.connection.Client()
	x.outcome.Endpoint, x.outcome.Client, x.outcome.Started = h.Name, client, h.Now()
	x.admission.Client, x.token.Client, x.access.Client = client, client, client
	x.outcome.TraceParent = r.Header.Get("Traceparent")
	x.memory = reservation{budget: h.InFlight, client: client, now: h.Now, patience: timeout / 4} // the rest is for the decision
	return x
}

// free gives the exchange back. The pool keeps nothing of the request but small
// buffers.
func (x *exchange) free() {
	x.dropIndex()
	if x.large != nil {
		largeBuffers.Put(x.large)
	}
	answer := x.answer[:0]
	if cap(answer) > maxPooled {
		answer = nil
	}
	*x = exchange{small: x.small, answer: answer}
	exchanges.Put(x)
}
