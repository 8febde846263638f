package review

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// A body must arrive within these times after the header: firstByteTime is for the
	// first byte, smallBodyTime for as many bytes as a small review has, and bodyTime
	// for all. See BodyTime.
	firstByteTime = 2 * time.Second
	smallBodyTime = 5 * time.Second
	bodyTime      = 15 * time.Second
	// minBuffer is the first buffer for a body of unknown size, and bufferGrowth the
	// factor by which the next one is larger.
	minBuffer    = 8 << 10
	bufferGrowth = 4
	// largeBuffer is the size from which on a body gets all the memory that was
	// announced for it.
	largeBuffer = 512 << 10
)

var errBodyTooLarge = errors.New("body too large")

// BodyTime returns how long after its header a body may take of which n bytes have
// arrived. The server sets it as the read deadline, with n = 0, before it calls an
// endpoint. Bodies of callers with a verified certificate may come late, as on a busy
// machine: such callers do not hold memory on purpose.
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

// readBody reads the body into the exchange. Memory is reserved for a buffer before it
// is made, and a buffer is at most bufferGrowth times as large as the bytes that have
// arrived, until that is largeBuffer.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) *failure {
	err := h.read(ctx, w, r, x)
	x.outcome.Bytes = len(x.body)
	if err != nil {
		return bodyFailure(err, h.MaxBytes)
	}
	return nil
}

func (h *handler) read(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) error {
	limit := h.MaxBytes + 1
	if r.ContentLength >= 0 {
		if r.ContentLength > h.MaxBytes {
			return errBodyTooLarge
		}
		limit = r.ContentLength + 1 // one more, to see the end
	}
	body := x.body[:0]
	if !x.memory.tryGrow(int64(cap(body))) {
		body = nil
	}
	defer func() { x.body = body }()
	deadline := BodyTime(x.memory.caller, 0)
	for {
		if len(body) == cap(body) {
			size := nextBuffer(int64(len(body)), limit, r.ContentLength >= 0)
			if err := x.memory.grow(ctx, size); err != nil {
				return err
			}
			grown := make([]byte, len(body), size)
			copy(grown, body)
			x.memory.shrink(int64(cap(body)))
			body = grown
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > h.MaxBytes:
			return errBodyTooLarge
		case errors.Is(err, io.EOF):
			return x.memory.place(ctx)
		case err != nil:
			return err
		}
		if len(body) >= requestBytes {
			if err := x.memory.place(ctx); err != nil {
				return err
			}
		}
		if next := BodyTime(x.memory.caller, len(body)); next > deadline && int64(len(body)) != r.ContentLength {
			deadline = next
			_ = http.NewResponseController(w).SetReadDeadline(x.outcome.Started.Add(deadline)) // both protocols support it
			// The deadline of one that was dropped was in the past.
			if x.memory.isDropped() {
				return errOverload
			}
		}
	}
}

// WithBody calls a handler of calls that are no reviews once the body has arrived, or MaxBytes of it. It needs the options
// MaxBytes, MaxTime, InFlight and Now. It aborts a call for which there is no memory until then.
func WithBody(next http.Handler, o Options) http.Handler {
	h := &handler{Options: o}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := h.newExchange(w, r, h.callerOf(r), o.MaxTime)
		defer x.free()
		if !h.enter(x, r) {
			panic(http.ErrAbortHandler)
		}
		defer x.memory.release()
		_ = h.read(r.Context(), w, r, x) // the handler gets the same error from the body
		if x.memory.isDropped() || x.memory.place(r.Context()) != nil {
			panic(http.ErrAbortHandler)
		}
		connection := h.connectionOf(r)
		connection.BeginWhole()
		defer connection.EndWhole()
		call := *r
		call.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(x.body), r.Body), r.Body}
		next.ServeHTTP(w, &call)
		if r.ProtoMajor > 1 {
			Flush(w, h.Now())
		}
	})
}

// nextBuffer is the size of the buffer that follows one of full bytes. The body has at
// most limit bytes, exactly so many if that was announced. Sizes are a power of
// bufferGrowth below the limit, so that the last one is not made beside one that is almost
// as large. An announced body that is large by then gets all of its memory at once:
// otherwise many large bodies could grow side by side and none reach its end.
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
