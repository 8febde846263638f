package scopes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// apiServer answers reviews, by the scope of their users.
type apiServer map[string]authorizationv1.SubjectAccessReviewStatus

// asking is an API server that enforces scopes.
func asking() apiServer {
	return apiServer{
		authz.ProbeDenied:    {Denied: true, Reason: authz.ProbeMessage},
		authz.ProbeUndecided: {Denied: true, EvaluationError: "the server is currently unable to handle the request"},
	}
}

// client returns a client of an API server, which answers with an error if there is one.
func (a apiServer) client(err *error) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status = a[review.Spec.Extra[v1alpha1.ScopeExtraKey][0]]
		return true, review, *err
	})
	return client
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change      func(apiServer)
		err         error
		want        string
		notEnforced bool
	}{
		"enforced":       {func(apiServer) {}, nil, "", false},
		"not asked":      {func(a apiServer) { a[authz.ProbeDenied] = authorizationv1.SubjectAccessReviewStatus{} }, nil, "it does not ask Gatehouse (hint: gatehouse manifests --authorization", true},
		"allowed before": {func(a apiServer) { a[authz.ProbeDenied] = authorizationv1.SubjectAccessReviewStatus{Allowed: true} }, nil, "it does not ask Gatehouse", true},
		"another webhook": {func(a apiServer) {
			a[authz.ProbeDenied] = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no"}
		}, nil, "does not answer as Gatehouse does", false},
		"no answer of Gatehouse": {func(a apiServer) { a[authz.ProbeDenied] = a[authz.ProbeUndecided] }, nil, "does not answer as Gatehouse does: the server is currently unable", false},
		"no opinion on failure": {func(a apiServer) {
			a[authz.ProbeUndecided] = authorizationv1.SubjectAccessReviewStatus{EvaluationError: "x"}
		}, nil, "write failurePolicy: Deny", true},
		"unreachable": {func(apiServer) {}, errors.New("connection refused"), "cannot ask the API server", false},
		"no right":    {func(apiServer) {}, apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("no")), "system:auth-delegator", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := asking()
			c.change(server)
			err := Check(t.Context(), server.client(&c.err).AuthorizationV1().SubjectAccessReviews())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNotEnforced) != c.notEnforced {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestMonitor: what was shown once counts for a while if the API server cannot be asked, and no longer if it says the opposite.
func TestMonitor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	server, outage := asking(), error(nil)
	m := NewMonitor(server.client(&outage).AuthorizationV1().SubjectAccessReviews(), slog.New(slog.DiscardHandler), func() time.Time { return now })
	expect := func(what string, enforced bool, detail string) {
		t.Helper()
		err := m.Err()
		if (err == nil) != enforced || !strings.Contains(m.Details()[0], detail) {
			t.Errorf("%s: got %v, %q", what, err, m.Details())
		}
	}
	probe := review.Outcome{Endpoint: webhooks.AuthorizeName, Decision: review.Unknown, Reason: string(authz.ReasonProbe)}
	m.Observe(&probe) // a check shows more
	expect("at the start", false, "ScopesEnforced=False: the API server has not been asked yet")
	_ = m.check(t.Context())
	expect("checked", true, "ScopesEnforced=True")
	outage = errors.New("connection refused")
	now = now.Add(valid)
	_ = m.check(t.Context())
	expect("in an outage", true, "True")
	now = now.Add(time.Second)
	expect("after a long outage", false, "connection refused")
	outage = nil
	_ = m.check(t.Context())
	expect("checked again", true, "True")
	delete(server, authz.ProbeDenied)
	_ = m.check(t.Context())
	expect("not asked any more", false, "it does not ask Gatehouse")

	server[authz.ProbeDenied] = asking()[authz.ProbeDenied]
	for range confirmations - 1 {
		_ = m.check(t.Context())
	}
	outage = errors.New("connection refused")
	_ = m.check(t.Context())
	now = now.Add(time.Hour)
	expect("asked again, but not often", false, "it does not ask Gatehouse (hint: gatehouse manifests --authorization prints its --authorization-config); 11 of 12 checks since then")
	outage = nil
	_ = m.check(t.Context())
	expect("asked again often", true, "True")

	alone := NewMonitor(nil, slog.New(slog.DiscardHandler), func() time.Time { return now })
	alone.Run(t.Context())
	if err := alone.Err(); err == nil || !strings.Contains(err.Error(), "gatehouse probe --authorization") {
		t.Errorf("without a cluster: %v", err)
	}
	for name, o := range map[string]review.Outcome{
		"a token's request inside":    {Endpoint: webhooks.AuthorizeName, Decision: review.NoOpinion, Reason: string(authz.ReasonRule)},
		"a token's request outside":   {Endpoint: webhooks.AuthorizeName, Decision: review.Denied, Reason: string(authz.ReasonOutside)},
		"an undecided request":        {Endpoint: webhooks.AuthorizeName, Decision: review.Unknown, Reason: string(authz.ReasonUnknownScope)},
		"the first question":          {Endpoint: webhooks.AuthorizeName, Decision: review.Denied, Reason: string(authz.ReasonProbe)},
		"a caller without a right":    {Endpoint: webhooks.AuthorizeName, Decision: review.Refused},
		"a review of something other": {Endpoint: "authenticate", Decision: review.Unknown, Reason: string(authz.ReasonProbe)},
	} {
		if alone.Observe(&o); alone.Err() == nil {
			t.Errorf("without a cluster, %s counts", name)
		}
	}
	alone.Observe(&probe)
	now = now.Add(24 * time.Hour)
	if err := alone.Err(); err != nil {
		t.Errorf("without a cluster, asked: %v", err)
	}
}

// TestMonitorOfSeveral: behind a load balancer, where one API server of two lacks the configuration, no token with a scope is accepted at
// any time, whichever of the requests reach it. After the other one is mended, tokens are accepted when nothing spoke against it for
// long.
func TestMonitorOfSeveral(t *testing.T) {
	t.Parallel()
	for name, reachesOther := range map[string]func(request int64) bool{
		"in turn":                 func(request int64) bool { return request%2 == 0 },
		"one request of a check":  func(request int64) bool { return request%(2*pairs) == 5 },
		"one request in a while":  func(request int64) bool { return request%(2*pairs*4) == 0 },
		"one whole check of four": func(request int64) bool { return request/(2*pairs)%4 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var (
					requests atomic.Int64
					mended   atomic.Bool
				)
				client := fake.NewClientset()
				client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
					review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
					if !reachesOther(requests.Add(1)-1) || mended.Load() {
						review.Status = asking()[review.Spec.Extra[v1alpha1.ScopeExtraKey][0]]
					}
					return true, review, nil
				})
				m := NewMonitor(client.AuthorizationV1().SubjectAccessReviews(), slog.New(slog.DiscardHandler), time.Now)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { m.Run(ctx) })
				defer running.Wait()
				defer cancel()
				for range 3600 {
					synctest.Wait()
					if m.Err() == nil {
						t.Fatal("scopes count as enforced")
					}
					time.Sleep(time.Second) // of the bubble's clock
				}
				mended.Store(true)
				time.Sleep(longest + confirmations*soon)
				synctest.Wait()
				if err := m.Err(); err != nil {
					t.Errorf("mended: %v", err)
				}
			})
		})
	}
}

// TestPause: checks are rare while nothing changes, and never more frequent than the shortest pause.
func TestPause(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	for _, c := range []struct {
		err      error
		failed   int
		enforced bool
		want     time.Duration
	}{
		{nil, 0, true, time.Minute},
		{nil, 0, false, 10 * time.Second},
		{ErrNotEnforced, 1, false, 10 * time.Second},
		{ErrNotEnforced, 2, false, 20 * time.Second},
		{ErrNotEnforced, 5, false, 160 * time.Second},
		{ErrNotEnforced, 6, false, 5 * time.Minute},
		{ErrNotEnforced, 1_000_000, false, 5 * time.Minute},
		{away, 1, true, 10 * time.Second},
		{away, 3, true, 40 * time.Second},
		{away, 4, false, time.Minute},
	} {
		if got := pause(c.err, c.failed, c.enforced); got != c.want {
			t.Errorf("after %v, the %dth, enforced %t: %s, want %s", c.err, c.failed, c.enforced, got, c.want)
		}
	}
}

// TestFirstSetup: an API server that does not ask Gatehouse is asked rarely. When it is configured, a request at /authorize lets the Monitor
// find that out at once, however many requests there are; without one it finds out by itself.
func TestFirstSetup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests bool
		within   time.Duration
	}{
		"asked at /authorize": {true, (confirmations + 1) * soon},
		"not asked":           {false, longest + confirmations*soon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var configured atomic.Bool
				var questions atomic.Int64
				client := fake.NewClientset()
				client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
					review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
					if questions.Add(1); configured.Load() {
						review.Status = asking()[review.Spec.Extra[v1alpha1.ScopeExtraKey][0]]
					}
					return true, review, nil
				})
				m := NewMonitor(client.AuthorizationV1().SubjectAccessReviews(), slog.New(slog.DiscardHandler), time.Now)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { m.Run(ctx) })
				defer running.Wait()
				defer cancel()
				// Strangers without a client certificate cause no check.
				m.Observe(&review.Outcome{Endpoint: webhooks.AuthorizeName, Decision: review.Refused})
				time.Sleep(time.Hour) // of the bubble's clock
				if n := questions.Load(); n > 17*pairs {
					t.Errorf("%d questions in an hour", n)
				}
				configured.Store(true)
				began := time.Now()
				for m.Err() != nil && time.Since(began) <= c.within {
					if c.requests {
						m.Observe(&review.Outcome{Endpoint: webhooks.AuthorizeName, Decision: review.Denied, Reason: string(authz.ReasonProbe)})
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if err := m.Err(); err != nil || time.Since(began) < (confirmations-1)*soon {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestClosing: each request has a connection of its own, and the caller's request stays as it is.
func TestClosing(t *testing.T) {
	t.Parallel()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://192.0.2.1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	var sent *http.Request
	_, _ = closing{roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r
		return nil, errors.New("none")
	})}.RoundTrip(request)
	if !sent.Close || request.Close {
		t.Errorf("sent with close %t, and the caller's has %t", sent.Close, request.Close)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
