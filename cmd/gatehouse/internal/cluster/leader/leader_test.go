package leader

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// candidate is a replica whose work counts itself.
type candidate struct {
	working, begun atomic.Int32
	away           atomic.Bool
	log            logbuffer.Buffer
	stop           func()
}

// start begins a candidate. Its work takes a second to stop, in which no other candidate may work.
func start(t *testing.T, server *fakeapi.Server, replica string, all *atomic.Int32) *candidate {
	t.Helper()
	c := &candidate{}
	access := server.Config(replica)
	access.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if c.away.Load() {
			return nil, errors.New("connection refused")
		}
		return server.RoundTrip(r)
	})
	leases, err := typedcoordinationv1.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	c.stop = func() { cancel(); <-done }
	work := func(ctx context.Context) {
		c.begun.Add(1)
		c.working.Add(1)
		if n := all.Add(1); n > 2 { // two functions
			t.Errorf("%d functions work", n)
		}
		<-ctx.Done()
		time.Sleep(time.Second)
		all.Add(-1)
		c.working.Add(-1)
	}
	one := New(Config{Leases: leases, Namespace: "gatehouse-system", Name: "gatehouse-leader", Replica: replica, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	go func() {
		defer close(done)
		one.Run(ctx, work, work)
	}()
	return c
}

// TestElection has the leader cut off and stopped: another one follows, and never do two work.
func TestElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Resource{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease", Namespaced: true})
		var all atomic.Int32
		a := start(t, server, "a", &all)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(time.Second)
		b := start(t, server, "b", &all)
		want := func(what string, inA, inB int32) {
			t.Helper()
			if a.working.Load() != inA || b.working.Load() != inB {
				t.Errorf("%s: %d functions of a work and %d of b, want %d and %d", what, a.working.Load(), b.working.Load(), inA, inB)
			}
		}
		pass(time.Minute)
		want("at first", 2, 0)
		a.away.Store(true)
		pass(time.Minute)
		want("a is cut off", 0, 2)
		if text := a.log.String(); strings.Count(text, "WARN") != 1 || !strings.Contains(text, "cannot take part in the election by Lease gatehouse-system/gatehouse-leader") {
			t.Errorf("a logged\n%s", text)
		}
		a.away.Store(false)
		pass(time.Minute)
		want("a is back", 0, 2)
		if text := a.log.String(); !strings.Contains(text, "recovered") {
			t.Errorf("a logged\n%s", text)
		}
		b.stop()
		pass(10 * time.Second) // b has given up the Lease
		want("b is stopped", 2, 0)
		a.stop()
		want("a is stopped", 0, 0)
		if a.begun.Load() != 4 || b.begun.Load() != 2 {
			t.Errorf("a was elected %d times and b %d times", a.begun.Load()/2, b.begun.Load()/2)
		}
	})
}
