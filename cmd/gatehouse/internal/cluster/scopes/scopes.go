// Package scopes finds out whether an API server enforces the scopes of tokens: whether it asks Gatehouse about requests of users
// with a scope, and rejects them when Gatehouse cannot answer.
//
// It asks the API server itself, by SubjectAccessReviews of a user that does not exist and whose scope includes nothing. The API
// server answers them as it decides on requests: by its authorizers, in their order. RBAC allows, or has no opinion, and never
// denies. So a denial with Gatehouse's own message comes from Gatehouse, and shows that the API server asks it.
package scopes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// ErrNotEnforced means that an API server answered, and does not enforce scopes.
var ErrNotEnforced = errors.New("the API server does not enforce the scopes of tokens")

// probeUser is the user of the reviews. No binding names it.
const probeUser = "gatehouse-probe"

// pairs is how many times a check asks its two questions. A load balancer spreads them over the API servers.
const pairs = 4

// Check asks whether API servers enforce scopes, over several new connections at the same time if the client is of Client. The error
// wraps ErrNotEnforced if one of them does not; any other means that this is not known.
func Check(ctx context.Context, client authorizationv1client.SubjectAccessReviewInterface) error {
	var (
		asking sync.WaitGroup
		errs   [pairs]error
	)
	for i := range errs {
		asking.Go(func() { errs[i] = checkOne(ctx, client) })
	}
	asking.Wait()
	if i := slices.IndexFunc(errs[:], func(err error) bool { return errors.Is(err, ErrNotEnforced) }); i >= 0 {
		return errs[i]
	}
	return cmp.Or(errs[:]...)
}

// checkOne is Check over one connection for each question. The second one is asked where the first was answered well.
func checkOne(ctx context.Context, client authorizationv1client.SubjectAccessReviewInterface) error {
	asked, err := ask(ctx, client, authz.ProbeDenied)
	switch {
	case err != nil:
		return err
	case asked.Denied && asked.Reason == authz.ProbeMessage:
	case asked.Denied:
		return fmt.Errorf("the API server asks an authorization webhook, which does not answer as Gatehouse does: %s "+
			"(hint: start Gatehouse with --authorize, and let the kubeconfig of the API server's authorizer name it)", cmp.Or(asked.EvaluationError, strconv.Quote(asked.Reason)))
	default:
		return fmt.Errorf("%w: it does not ask Gatehouse (hint: gatehouse manifests --authorization prints its --authorization-config)", ErrNotEnforced)
	}
	asked, err = ask(ctx, client, authz.ProbeUndecided)
	switch {
	case err != nil:
		return err
	case !asked.Denied:
		return fmt.Errorf("%w when Gatehouse does not answer (hint: write failurePolicy: Deny into its --authorization-config)", ErrNotEnforced)
	default:
		return nil
	}
}

// ask creates a review of the probe with a scope.
func ask(ctx context.Context, client authorizationv1client.SubjectAccessReviewInterface, scope string) (authorizationv1.SubjectAccessReviewStatus, error) {
	answer, err := client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: probeUser, Extra: map[string]authorizationv1.ExtraValue{v1alpha1.ScopeExtraKey: {scope}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/" + probeUser, Verb: "get"},
	}}, metav1.CreateOptions{})
	if apierr.Classify(err) == apierr.Forbidden {
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("cannot ask the API server whether it enforces the scopes of tokens: %w (hint: bind the ServiceAccount to the ClusterRole system:auth-delegator)", err)
	}
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("cannot ask the API server whether it enforces the scopes of tokens: %w", cmp.Or(apierr.Unreached(err), err))
	}
	return answer.Status, nil
}

// Separately returns an access whose requests each have a connection of their own: behind a load balancer, these reach one API server
// after the other.
func Separately(access *rest.Config) *rest.Config {
	access = rest.CopyConfig(access)
	access.Wrap(func(next http.RoundTripper) http.RoundTripper { return closing{next} })
	return access
}

// Client returns a client whose requests go Separately.
func Client(access *rest.Config) (authorizationv1client.SubjectAccessReviewInterface, error) {
	client, err := authorizationv1client.NewForConfig(Separately(access))
	if err != nil {
		return nil, err
	}
	return client.SubjectAccessReviews(), nil
}

// closing closes the connection of each request after its answer.
type closing struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c closing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return c.next.RoundTrip(r)
}

const (
	// every is the pause between two checks.
	every = time.Minute
	// soon is the shortest pause: after a check that has failed, and between those that confirm.
	soon = 10 * time.Second
	// longest is the longest pause while the API server does not enforce scopes. A request at /authorize ends it.
	longest = 5 * time.Minute
	// confirmations is how many checks in a row must find scopes enforced after one that has found the opposite: the API server that it
	// reached may be one of several, or one that restarts.
	confirmations = 12
	// timeout bounds a check.
	timeout = 15 * time.Second
	// valid is for how long a check counts that could not be repeated.
	valid = 5 * time.Minute
)

// Monitor knows whether the API server enforces scopes. Without a client, a Check of another program shows it. It is safe for concurrent
// use.
type Monitor struct {
	client   authorizationv1client.SubjectAccessReviewInterface
	problems *problemlog.Log
	now      func() time.Time
	// asked gets a value when an API server asks at /authorize.
	asked chan struct{}

	mu sync.Mutex
	// proven is the time of the last check that found scopes enforced, zero if a later one has found the opposite.
	proven time.Time
	// refutation is the error of the last check that has found the opposite, until there are as many confirmations as it takes.
	refutation    error
	confirmations int
	// err is that of the last check that had one. It is never nil.
	err error
}

// NewMonitor returns a Monitor that knows nothing yet. The client may be nil.
func NewMonitor(client authorizationv1client.SubjectAccessReviewInterface, log *slog.Logger, now func() time.Time) *Monitor {
	m := &Monitor{client: client, problems: problemlog.New(log, "scopes of tokens"), now: now, asked: make(chan struct{}, 1)}
	m.err = errors.New("the API server has not been asked yet whether it enforces the scopes of tokens")
	if client == nil {
		m.err = errors.New("no probe has reached /authorize through an API server since this server started (hint: run gatehouse probe --authorization; with --kubeconfig or --in-cluster, this server does that itself)")
	}
	return m
}

// Err returns nil as long as scopes are known to be enforced, and else why they are not.
func (m *Monitor) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.refutation == nil:
	case m.confirmations == 0:
		return m.refutation
	default:
		return fmt.Errorf("%w; %d of %d checks since then have found that it does", m.refutation, m.confirmations, confirmations)
	}
	if m.proven.IsZero() || m.client != nil && m.now().Sub(m.proven) > valid {
		return m.err
	}
	return nil
}

// Observe notes the second question of a Check: it is asked where the first one, which only the answer of a Gatehouse that an API
// server asks denies, was denied. It counts if there is no client, as a check shows more. Requests of tokens do not count: they show
// nothing about the API server's other requests. With a client, each request lets Run check soon.
func (m *Monitor) Observe(o *review.Outcome) {
	// Only a caller with a client certificate gets an answer, or as far as to a reason.
	isProbe := o.Reason == string(authz.ReasonProbe) && o.Decision == review.Unknown
	switch {
	case o.Endpoint != webhooks.AuthorizeName:
	case m.client == nil && isProbe:
		m.note(nil)
	case m.client != nil && (isProbe || o.Decision == review.Denied || o.Decision == review.NoOpinion):
		select {
		case m.asked <- struct{}{}:
		default:
		}
	}
}

// Run checks until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	if m.client == nil {
		return
	}
	for failed := 0; ; {
		err := m.check(ctx)
		if failed++; err == nil {
			failed = 0
		}
		if !m.wait(ctx, pause(err, failed, m.Err() == nil), err != nil) {
			return
		}
	}
}

// pause returns the time until the next check after one with an error, or nil, that was the last of so many in a row which have failed.
func pause(err error, failed int, enforced bool) time.Duration {
	most := every
	switch {
	case err == nil && enforced:
		return every
	case err == nil:
		return soon
	case errors.Is(err, ErrNotEnforced):
		most = longest
	}
	const doublings = 5 // more than it takes to the longest
	return min(soon<<min(failed-1, doublings), most)
}

// wait waits for a pause, and returns false if the context has ended. If it may be shorter, a request at /authorize ends what is left of it
// after the shortest pause: the API server has perhaps been configured.
func (m *Monitor) wait(ctx context.Context, pause time.Duration, shorter bool) bool {
	if !shorter {
		return sleep.Context(ctx, pause)
	}
	select {
	case <-m.asked: // by the check itself
	default:
	}
	if !sleep.Context(ctx, soon) {
		return false
	}
	rest := time.NewTimer(pause - soon)
	defer rest.Stop()
	select {
	case <-m.asked:
	case <-rest.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// check checks once.
func (m *Monitor) check(ctx context.Context) error {
	const what = "enforce the scopes of tokens"
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := Check(bounded, m.client)
	switch {
	case ctx.Err() != nil: // the server ends
	case err != nil:
		m.note(err)
		// Logged when an API server does not enforce the scopes of tokens, or this cannot be checked: tokens with a scope are
		// rejected then, and until twelve checks in a row, which take two minutes, have found that the API server enforces them.
		m.problems.Report(what, kind(err), err.Error(), "tokens with a scope are rejected until then")
	default:
		m.note(nil)
		if m.Err() == nil {
			m.problems.Recover(what)
		}
	}
	return err
}

func kind(err error) string {
	if errors.Is(err, ErrNotEnforced) {
		return "not-enforced"
	}
	return string(apierr.Classify(err))
}

// note notes the result of a check. That an API server could not be asked proves nothing.
func (m *Monitor) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.proven = m.now()
		if m.confirmations++; m.confirmations >= confirmations {
			m.refutation = nil
		}
		return
	}
	m.err = err
	if errors.Is(err, ErrNotEnforced) {
		m.proven, m.refutation, m.confirmations = time.Time{}, err, 0
	}
}

// Details returns the state for /readyz?verbose.
func (m *Monitor) Details() []string {
	if err := m.Err(); err != nil {
		return []string{"ScopesEnforced=False: " + err.Error()}
	}
	return []string{"ScopesEnforced=True"}
}

// Collector returns the metric of the Monitor.
func (m *Monitor) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_scopes_enforced",
		Help: "1 if the API server is known to enforce the scopes of tokens, 0 if tokens with a scope are rejected. Only with --authorize.",
	}, func() float64 {
		if m.Err() != nil {
			return 0
		}
		return 1
	})
}
