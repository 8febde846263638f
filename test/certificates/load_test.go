package certificates

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
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// workers are more than the 25 idle connections to one webhook that an API server keeps: those beyond are closed and
// made anew. Without that churn a test sees no handshake, and no failure.
const workers = 60

// load is calls without an end: ConfigMaps that the API server is asked to create as a dry run, which it asks the hook
// about.
type load struct {
	client *http.Client
	url    string
	// work is what servers do, and before what they had done before.
	work   func() work
	before work

	calls, failed atomic.Int64
	begin         time.Time
	stop          atomic.Bool
	callers       sync.WaitGroup

	mu sync.Mutex
	// errors are what failed calls say, and how many said so.
	errors map[string]int
}

// load begins to call servers that do work. It ends with the test.
func (h *hook) load(t *testing.T, does func() work) *load {
	t.Helper()
	l := h.caller(t)
	l.work = does
	eventually(t, "a first call", func() error { return l.call(t.Context()) })
	l.before = l.work()
	l.begin = time.Now()
	ctx := context.WithoutCancel(t.Context())
	for range workers {
		l.callers.Go(func() {
			for !l.stop.Load() {
				l.count(l.call(ctx))
			}
		})
	}
	t.Cleanup(func() { l.end() })
	return l
}

// caller is a load that does not run: its calls are made one by one.
func (h *hook) caller(t *testing.T) *load {
	t.Helper()
	client, err := rest.HTTPClientFor(h.Config())
	must(t, err)
	client.Timeout = deadline
	return &load{
		client: client, errors: map[string]int{},
		url: h.Config().Host + "/api/v1/namespaces/" + h.name + "/configmaps?dryRun=All",
	}
}

func (l *load) call(ctx context.Context) error {
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"load"}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusCreated {
		return err
	}
	var status struct{ Message string }
	if json.Unmarshal(answer, &status) != nil || status.Message == "" {
		status.Message = string(bytes.TrimSpace(answer))
	}
	return errors.New(status.Message)
}

func (l *load) count(err error) {
	l.calls.Add(1)
	if err == nil {
		return
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 20
	if len(l.errors) < most {
		l.errors[err.Error()]++
	}
}

// more waits until n more calls have been made.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	target := l.calls.Load() + n
	eventually(t, fmt.Sprintf("%d more calls", n), func() error {
		if missing := target - l.calls.Load(); missing > 0 {
			return fmt.Errorf("%d are missing", missing)
		}
		return nil
	})
}

// last goes on for a time, and for some calls.
func (l *load) last(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		l.more(t, workers)
	}
}

// end stops the calls and returns how many there were, and how many failed.
func (l *load) end() (calls, failed int64) {
	l.stop.Store(true)
	l.callers.Wait()
	return l.calls.Load(), l.failed.Load()
}

// noneFailed ends the load. There must have been enough calls, with enough handshakes at the servers, and none that
// failed.
func (l *load) noneFailed(t *testing.T, least int64) {
	t.Helper()
	if missing := least - l.calls.Load(); missing > 0 {
		l.more(t, missing)
	}
	calls, failed := l.end()
	took := time.Since(l.begin)
	done := l.work()
	handshakes, refused := done.handshakes-l.before.handshakes, done.refused-l.before.refused
	t.Logf("%d calls in %s, %.0f a second, %d failed; %d handshakes, %d failed",
		calls, took.Round(time.Millisecond), float64(calls)/took.Seconds(), failed, handshakes, refused)
	if failed > 0 {
		t.Errorf("%d of %d calls failed: %s", failed, calls, l.why())
	}
	if refused > 0 {
		t.Errorf("servers say that an API server did not accept their certificates, %d times", refused)
	}
	// That no call failed means something only if calls needed new connections all the time.
	const plenty = 250
	if least := min(int(calls/100), plenty); handshakes < least {
		t.Errorf("there were %d handshakes for %d calls, want %d at least", handshakes, calls, least)
	}
}

// someFailed ends the load, of which calls must have failed for a reason: the control of a test that none does.
func (l *load) someFailed(t *testing.T, because string) {
	t.Helper()
	calls, failed := l.end()
	t.Logf("%d calls, %d failed", calls, failed)
	if failed == 0 {
		t.Errorf("none of %d calls failed: this load does not see failures", calls)
	}
	if why := l.why(); failed > 0 && !strings.Contains(why, because) {
		t.Errorf("calls failed for another reason than %q: %s", because, why)
	}
}

func (l *load) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for text, n := range l.errors {
		lines = append(lines, fmt.Sprintf("\n%d times: %s", n, text))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
