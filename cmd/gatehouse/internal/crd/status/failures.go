package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// requestTimeout bounds a request to the API server.
	requestTimeout = 10 * time.Second
	// longestError bounds text of other programs in the log, in bytes.
	longestError = 500
)

var errNoStatus = errors.New("the kind has no subresource status")

// classify returns what has to be done about an error: one of Forbidden, Unserved,
// Invalid and Unreachable.
func classify(err error) apierr.Class {
	if errors.Is(err, errNoStatus) {
		return apierr.Unserved
	}
	return apierr.Classify(err).Coarse()
}

// retryDelay returns when to try again after a number of failures in a row: soon for
// what may be over in a moment, slowly for what a person has to correct.
func retryDelay(class apierr.Class, failures int) time.Duration {
	first, most := time.Second, 30*time.Second
	if class != apierr.Unreachable {
		first, most = 15*time.Second, 2*time.Minute
	}
	d := most
	if failures < 10 {
		d = min(most, first<<max(failures-1, 0))
	}
	return d - rand.N(d/5+1) //nolint:gosec // so that replicas do not ask in step
}

// failureReporter logs each failure once for as long as it lasts. It is safe for
// concurrent use.
type failureReporter struct {
	log *slog.Logger

	mu       sync.Mutex
	reported map[string]apierr.Class // by what fails
}

// failed logs that something cannot be done, unless it was logged already. The hint
// says what to do, and what depends on it.
func (r *failureReporter) failed(ctx context.Context, what string, class apierr.Class, err error, hint string) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	again := r.reported[what] == class
	if r.reported == nil {
		r.reported = map[string]apierr.Class{}
	}
	r.reported[what] = class
	r.mu.Unlock()
	if !again {
		r.log.Warn("status", "error", fmt.Sprintf("cannot %s: %s", what, truncate.Bytes(err.Error(), longestError)), "hint", hint)
	}
}

// recovered logs that something can be done again, if it could not.
func (r *failureReporter) recovered(what string) {
	r.mu.Lock()
	_, failed := r.reported[what]
	delete(r.reported, what)
	r.mu.Unlock()
	if failed {
		r.log.Info("status", "recovered", "can "+what)
	}
}
