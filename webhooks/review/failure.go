package review

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// retryAfter is the pause that a refused caller is asked for, with time left
// for the attempt itself. Below it the caller could not come back in time.
const retryAfter = 1200 * time.Millisecond

// failure is a review that ends without an answer of its function.
type failure struct {
	status int
	// reason is one of a bounded set of words.
	reason string
	// message is for the caller. Of the request it holds no more than the name of a
	// member, and nothing of the configuration.
	message string
	// detail is for the log.
	detail string
	// decision is how the review ended, if that does not follow from the status.
	decision Decision
}

// publicMessage is the message for the caller.
func (f *failure) publicMessage() string {
	if f.status == http.StatusInternalServerError {
		return "cannot decide: the log of Gatehouse has the reason (hint: try again, then ask the people who operate the cluster)"
	}
	return f.message
}

// refuse answers with the failure's status. The API server then does what the
// webhook's failurePolicy says, or, if retry is set, tries once more.
func refuse(w http.ResponseWriter, f *failure, retry bool) {
	header := w.Header()
	switch {
	case f.status == http.StatusServiceUnavailable && retry:
		// A new connection may find another replica.
		header.Set("Retry-After", "1")
		header.Set("Connection", "close")
	case f.status == http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	}
	http.Error(w, f.publicMessage(), f.status)
}

// valuesFailure is the failure of a review whose values need more memory than there
// can be, nil for any other error.
func valuesFailure(err error, values, bodyBytes int) *failure {
	available, ok := errors.AsType[tooLargeError](err)
	if !ok {
		return nil
	}
	return &failure{
		status: http.StatusRequestEntityTooLarge, reason: "too-large",
		message: fmt.Sprintf("the review has %d JSON values; with its %d bytes, at most %d can be decoded (hint: raise the memory limit of Gatehouse or --max-in-flight-bytes)", values, bodyBytes, int64(available)/valueBytes),
	}
}

// bodyFailure is the failure of a body that could not be read.
func bodyFailure(err error, limit int64) *failure {
	available, tooLarge := errors.AsType[tooLargeError](err)
	switch {
	case tooLarge:
		return &failure{
			status: http.StatusRequestEntityTooLarge, reason: "too-large",
			message: fmt.Sprintf("the body needs more memory than the %d bytes that are left for it (hint: send the header Content-Length)", int64(available)),
		}
	case errors.Is(err, errBodyTooLarge):
		return &failure{
			status: http.StatusRequestEntityTooLarge, reason: "too-large",
			message: fmt.Sprintf("the body is larger than %d bytes", limit),
		}
	case isTimeout(err):
		return &failure{
			status: http.StatusRequestTimeout, reason: "aborted",
			message: fmt.Sprintf("the body did not arrive in time (hint: its first byte must follow the header within %s, %d bytes within %s, all within %s)", firstByteTime, requestBytes, smallBodyTime, bodyTime),
		}
	case errors.Is(err, errOverload):
		return &failure{status: http.StatusServiceUnavailable, reason: "overload", message: "too many bytes of concurrent reviews"}
	default:
		return &failure{status: http.StatusBadRequest, reason: "aborted", message: "the body could not be read", detail: err.Error()}
	}
}

// isTimeout reports whether a read ended at its deadline.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
