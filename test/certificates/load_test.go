package certificates

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	calling "github.com/gatehouse-dev/gatehouse/test/support/load"
)

// workers are how many call at one time.
const workers = calling.Callers

// load is calls without an end: ConfigMaps that the API server is asked to create as a dry run, which it asks the hook
// about.
type load struct {
	*calling.Load
	// connections is how many were made to servers, and before how many there had been before.
	connections func() int64
	before      int64
}

// load begins to call servers to which there are so many connections. It ends with the test.
func (h *hook) load(t *testing.T, connections func() int64) *load {
	t.Helper()
	c := h.caller(t)
	support.Eventually(t, "a first call", func() error { return c.call(t.Context()) })
	l := &load{connections: connections, before: connections()}
	l.Load = calling.Start(t.Context(), func(ctx context.Context, _ int) error { return c.call(ctx) })
	t.Cleanup(func() { l.End() })
	return l
}

// caller makes calls one by one.
type caller struct {
	client *http.Client
	url    string
}

func (h *hook) caller(t *testing.T) *caller {
	t.Helper()
	client, err := rest.HTTPClientFor(h.Config())
	must(t, err)
	client.Timeout = support.Deadline
	return &caller{client, h.Config().Host + "/api/v1/namespaces/" + h.name + "/configmaps?dryRun=All"}
}

func (c *caller) call(ctx context.Context) error {
	_, err := calling.Create(ctx, c.client, c.url, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"load"}}`)
	return err
}

// more waits until n more calls have been made.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	target := l.Calls() + n
	support.Eventually(t, fmt.Sprintf("%d more calls", n), func() error {
		if missing := target - l.Calls(); missing > 0 {
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

// noneFailed ends the load. There must have been enough calls, over enough connections, and none that
// failed.
func (l *load) noneFailed(t *testing.T, least int64) {
	t.Helper()
	if missing := least - l.Calls(); missing > 0 {
		l.more(t, missing)
	}
	calls, failed := l.End()
	made := l.connections() - l.before
	t.Logf("%s; %d connections", l.Load, made)
	if failed > 0 {
		t.Errorf("%d of %d calls failed: %s", failed, calls, l.Why())
	}
	// That no call failed means something only if calls needed new connections all the time. How many they need depends
	// on how many calls are in progress at one time, and so on the machine: fewer where answers come faster.
	const plenty = 100
	if least := min(calls/100, plenty); made < least {
		t.Errorf("there were %d connections for %d calls, want %d at least", made, calls, least)
	}
}
