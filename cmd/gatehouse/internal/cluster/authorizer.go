package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// allowedTTL and deniedTime are for how long an answer about a right is
	// believed. A right that is given shows sooner than one that is taken away,
	// because people wait for it.
	allowedTTL = 10 * time.Second
	deniedTTL  = time.Second
	// reviewTimeout bounds a question of a request without a deadline.
	reviewTimeout = 5 * time.Second
)

// access asks the API server who may do what, by SubjectAccessReviews.
type access struct {
	delegate authorizer.Authorizer
	reviews  *prometheus.CounterVec
	problems *problemlog.Log
	// lines bounds how often errors are logged: callers choose what is asked, and so when errors come and go.
	lines *rate.Limiter
}

func newAccess(client authorizationv1client.AuthorizationV1Interface, log *slog.Logger, reviews *prometheus.CounterVec) (*access, error) {
	delegate, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client,
		AllowCacheTTL:             allowedTTL,
		DenyCacheTTL:              deniedTTL,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3},
	}.New()
	if err != nil {
		return nil, err
	}
	return &access{
		delegate: delegate, reviews: reviews, problems: problemlog.New(log, "the authorizer of policies"), lines: rate.NewLimiter(rate.Every(10*time.Second), 10),
	}, nil
}

// authorizer is what a Spec takes.
func (a *access) authorizer() authorizer.Authorizer { return authorizer.AuthorizerFunc(a.authorize) }

// authorize asks within the deadline of ctx. An error means that it could not be
// told, and never comes with a decision to allow.
func (a *access) authorize(ctx context.Context, what authorizer.Attributes) (authorizer.Decision, string, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
	}
	decision, reason, err := a.delegate.Authorize(ctx, what)
	result := "denied"
	switch {
	case err != nil:
		result = "error"
		err = fmt.Errorf("cannot check authorization with the API server: %w", err)
		if classify(err) == apierr.Forbidden {
			err = fmt.Errorf("%w (hint: bind the ServiceAccount to the ClusterRole system:auth-delegator)", err)
		}
	case decision == authorizer.DecisionAllow:
		result = "allowed"
	}
	a.reviews.WithLabelValues(result).Inc()
	const check, longest = "check authorization", 1 << 10
	if err == nil {
		a.problems.Recover(check)
	} else if ctx.Err() == nil && a.lines.Allow() {
		a.problems.Report(check, string(classify(err)), truncate.Bytes(err.Error(), longest), "policies that check the authorizer cannot be decided until then")
	}
	return decision, reason, err
}
