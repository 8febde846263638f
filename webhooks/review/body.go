package review

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// A body must arrive within these times after the header: firstByteTime is for the
	// first byte, smallBodyTime for as many bytes as a small review has, and bodyTime
	// for all. See BodyTime.
	firstByteTime = 2 * time.Second
	smallBodyTime = 5 * time.Second
	bodyTime      = 15 * time.Second
	// smallBuffer and largeBuffer are the first two buffers for a body, which are pooled, and bufferGrowth the factor by which
	// a further one is larger.
	smallBuffer  = 16 << 10
	largeBuffer  = 64 << 10
	bufferGrowth = 4
	// hugeBuffer is the size from which on a body gets all the memory that was
	// announced for it.
	hugeBuffer = 512 << 10
)

var errBodyTooLarge = errors.New("body too large")

// largeBuffers are pooled for themselves: fewer requests have one than wait for their bodies.
//
//nolint:gochecknoglobals // a pool is shared by its nature
var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// BodyTime returns how long after its header a body may take of which n bytes have
// arrived. The server sets it as the read deadline, with n = 0, before it calls an
// endpoint. Bodies of callers with a verified certificate may come late, as on a busy
// machine: such callers do not hold memory on purpose.
func BodyTime(certified bool, n int) time.Duration {
	switch {
	case certified || n >= requestBytes:
		return bodyTime
	case n == 0:
		return firstByteTime
	default:
		return smallBodyTime
	}
}

// readBody reads the body into the exchange.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) *failure {
	err := h.read(ctx, w, r, x)
	if err == nil {
		err = x.memory.arrived(ctx)
	}
	x.outcome.Bytes = len(x.body)
	if err != nil {
		return bodyFailure(err, h.MaxBytes)
	}
	return nil
}

// read reads the body. Memory is reserved for a buffer before it is made, and a buffer is at most bufferGrowth times as large as the
// bytes that have arrived, until that is hugeBuffer.
func (h *handler) read(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) error {
	limit := h.MaxBytes + 1
	if r.ContentLength >= 0 {
		if r.ContentLength > h.MaxBytes {
			return errBodyTooLarge
		}
		limit = r.ContentLength + 1 // one more, to see the end
	}
	certified := x.memory.client.Certified
	deadline := BodyTime(certified, 0)
	for {
		if len(x.body) == cap(x.body) {
			size := nextBuffer(int64(len(x.body)), limit, r.ContentLength >= 0)
			if err := x.memory.grow(ctx, size); err != nil {
				return err
			}
			full := x.body
			x.body = append(x.newBuffer(size), full...)
			x.memory.shrink(int64(cap(full)))
		}
		n, err := r.Body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		switch {
		case int64(len(x.body)) > h.MaxBytes:
			return errBodyTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if next := BodyTime(certified, len(x.body)); next > deadline && int64(len(x.body)) != r.ContentLength {
			deadline = next
			_ = http.NewResponseController(w).SetReadDeadline(x.outcome.Started.Add(deadline)) // both protocols support it
		}
	}
}

// newBuffer returns an empty buffer of one of the sizes of nextBuffer.
func (x *exchange) newBuffer(size int64) []byte {
	switch size {
	case smallBuffer:
		if x.small == nil {
			x.small = new([smallBuffer]byte)
		}
		return x.small[:0]
	case largeBuffer:
		x.large = largeBuffers.Get().(*[largeBuffer]byte) //nolint:forcetypeassert // the pool has no others
		return x.large[:0]
	default:
		return make([]byte, 0, size)
	}
}

// nextBuffer is the size of the buffer that follows one of full bytes. The body has at
// most limit bytes, exactly so many if that was announced. The last buffer is not made beside one that is almost
// as large. An announced body that is huge by then gets all of its memory at once:
// otherwise many such bodies could grow side by side and none reach its end.
func nextBuffer(full, limit int64, announced bool) int64 {
	next := full * bufferGrowth
	switch {
	case full < smallBuffer:
		return smallBuffer
	case full < largeBuffer:
		return largeBuffer
	case next > limit/2 || announced && full >= hugeBuffer:
		return max(limit, full+1)
	default:
		return next
	}
}

// WithBody calls a handler of calls that are no reviews once the body has arrived, or MaxBytes of it. It needs the options
// MaxBytes, MaxTime, InFlight and Now.
func WithBody(next http.Handler, o Options) http.Handler {
	h := newHandler(nil, o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := h.newExchange(r, o.MaxTime)
		defer x.free()
		defer x.memory.release()
		if err := h.read(r.Context(), w, r, x); errors.Is(err, errOverload) {
			http.Error(w, "too many calls", http.StatusServiceUnavailable)
			return
		} // the handler gets any other error from the body
		x.connection.Begin()
		defer x.connection.End()
		call := *r
		call.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(x.body), r.Body), r.Body}
		next.ServeHTTP(w, &call)
	})
}
