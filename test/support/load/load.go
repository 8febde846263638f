// Package load calls an API server from many goroutines without an end, and counts the calls that fail: what tests need
// that change something in the meantime which nobody may notice.
package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Callers are more than the 25 idle connections to one webhook that an API server keeps: those beyond are closed and
// made anew. Without that churn a test sees no handshake, and no failure.
const Callers = 60

// mostReasons bounds how many different errors are kept.
const mostReasons = 20

// Load is calls that are being made. It is safe for concurrent use.
type Load struct {
	began   time.Time
	stop    atomic.Bool
	callers sync.WaitGroup

	calls, failed atomic.Int64

	mu sync.Mutex
	// reasons are what failed calls say, and how many said so.
	reasons map[string]int
}

// Start makes calls from [Callers] goroutines until End. A call is given the number of its caller, and nothing of the
// context but its values.
func Start(ctx context.Context, call func(ctx context.Context, caller int) error) *Load {
	l := &Load{began: time.Now(), reasons: map[string]int{}}
	ctx = context.WithoutCancel(ctx)
	for caller := range Callers {
		l.callers.Go(func() {
			for !l.stop.Load() {
				l.count(call(ctx, caller))
			}
		})
	}
	return l
}

func (l *Load) count(err error) {
	if err != nil {
		l.note(err)
	}
	l.calls.Add(1)
}

func (l *Load) note(err error) {
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := err.Error()
	if _, known := l.reasons[reason]; !known && len(l.reasons) >= mostReasons {
		reason = "something else"
	}
	l.reasons[reason]++
}

// Calls is how many calls have been answered, and Failed how many of them with an error.
func (l *Load) Calls() int64 { return l.calls.Load() }

// Failed is how many calls have failed.
func (l *Load) Failed() int64 { return l.failed.Load() }

// End stops the calls, waits for those in progress, and returns how many there were and how many failed. Ending twice is
// harmless.
func (l *Load) End() (calls, failed int64) {
	l.stop.Store(true)
	l.callers.Wait()
	return l.Calls(), l.Failed()
}

// String tells how many calls there were, how fast, and how many failed.
func (l *Load) String() string {
	calls, took := l.Calls(), time.Since(l.began)
	return fmt.Sprintf("%d calls in %s, %.0f a second, %d failed", calls, took.Round(time.Millisecond), float64(calls)/took.Seconds(), l.Failed())
}

// Why is the errors of calls that failed, and how many had each, as lines.
func (l *Load) Why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for reason, n := range l.reasons {
		lines = append(lines, fmt.Sprintf("\n%d times: %s", n, reason))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Create asks an API server to create an object, in JSON, and returns what it says to that. Without an object that was
// created, the error is the server's message.
func Create(ctx context.Context, client *http.Client, url, object string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(object))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusCreated {
		return answer, err
	}
	var status struct{ Message string }
	if json.Unmarshal(answer, &status) != nil || status.Message == "" {
		status.Message = string(bytes.TrimSpace(answer))
	}
	return nil, errors.New(status.Message)
}
