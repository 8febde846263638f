package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// requestTime is how long an answer of the API server is waited for.
	requestTime = 10 * time.Second
	// longestError is how much is logged of what somebody else said, in bytes.
	longestError = 500
)

// trouble is a class of errors of the API server.
type trouble string

const (
	// forbidden is a right that is missing, or credentials that are not taken.
	forbidden trouble = "forbidden"
	// unserved is a kind, or its status, that the API server does not have.
	unserved trouble = "unserved"
	// refused is what the API server takes for wrong.
	refused trouble = "refused"
	// unreachable is everything else.
	unreachable trouble = "unreachable"
)

var errNoStatus = errors.New("the kind has no subresource status")

func classify(err error) trouble {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return forbidden
	case errors.Is(err, errNoStatus), isUnserved(err):
		return unserved
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refused
	default:
		return unreachable
	}
}

// isUnserved tells a path that the API server does not serve from an object that is
// not there.
func isUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// retry is when to try again after a number of failures in a row: soon for what may
// be over in a moment, slowly for what a person has to mend.
func (t trouble) retry(failures int) time.Duration {
	first, most := time.Second, 30*time.Second
	if t == forbidden || t == unserved || t == refused {
		first, most = 15*time.Second, 2*time.Minute
	}
	d := most
	if failures < 10 {
		d = min(most, first<<max(failures-1, 0))
	}
	return d - rand.N(d/5+1) //nolint:gosec // so that replicas do not ask in step
}

// complaints logs what fails once for as long as it does. It is safe for concurrent
// use.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]trouble // by what fails
}

// failed logs that something cannot be done, unless it was said already. What it
// costs is part of the hint.
func (c *complaints) failed(ctx context.Context, what string, t trouble, err error, hint string) {
	if ctx.Err() != nil {
		return // nobody waits for it any more
	}
	c.mu.Lock()
	again := c.said[what] == t
	if c.said == nil {
		c.said = map[string]trouble{}
	}
	c.said[what] = t
	c.mu.Unlock()
	if !again {
		c.log.Warn("status", "error", fmt.Sprintf("cannot %s: %s", what, cut(err.Error(), longestError)), "hint", hint)
	}
}

// works notes that something could be done.
func (c *complaints) works(what string) {
	c.mu.Lock()
	_, failed := c.said[what]
	delete(c.said, what)
	c.mu.Unlock()
	if failed {
		c.log.Info("status", "recovered", "can "+what)
	}
}

// cut shortens a text to a number of bytes.
func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	const more = "…"
	end := longest - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimRight(text[:end], " \n") + more
}
