package tokens

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// logoutLabel is on revocations that issuers asked for.
	logoutLabel = "gatehouse.dev/logout"
	// logoutQPS and logoutBurst bound what logouts cost the API server.
	logoutQPS, logoutBurst = 50, 100
	// sweepEvery is the pause between two deletions of what is not needed any more.
	sweepEvery = time.Hour
	// maxLogouts bounds the revocations of logouts, which every replica holds in memory.
	maxLogouts = 100_000
)

// ErrTooManyLogouts is the error for a logout that is not stored, because too many are.
var ErrTooManyLogouts = errors.New("too many logouts are stored already")

// Logouts keeps the revocations that issuers ask for as objects of a cluster, so that they
// take effect on all replicas. It is safe for concurrent use.
type Logouts struct {
	cluster *Cluster
	keep    time.Duration
	log     *slog.Logger
	most    int64
	// stored is how many revocations there are, at most. Those of other replicas are counted by each sweep.
	stored atomic.Int64
}

// NewLogouts returns Logouts that deletes revocations after so long. It connects to nothing
// yet.
func NewLogouts(access *rest.Config, keep time.Duration, log *slog.Logger) (*Logouts, error) {
	access = rest.CopyConfig(access)
	access.QPS, access.Burst, access.RateLimiter = logoutQPS, logoutBurst, nil
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for %s: %w", access.Host, err)
	}
	return &Logouts{cluster: NewCluster(client), keep: keep, log: log, most: maxLogouts}, nil
}

// Revoke creates the object of a revocation. Its name is made of what it revokes, so that
// the same one from another replica, or again, is no other object. The error wraps ErrTooManyLogouts if there
// are too many.
func (l *Logouts) Revoke(ctx context.Context, spec *v1alpha1.TokenRevocationSpec) error {
	if l.stored.Add(1) > l.most {
		l.stored.Add(-1)
		return fmt.Errorf("%w: %d (hint: find out why the issuer ends so many sessions, and delete TokenRevocations that have the label %s, or set a shorter --back-channel-logout)",
			ErrTooManyLogouts, l.most, logoutLabel)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d", spec.Issuer, spec.SessionID, spec.Subject, spec.IssuedBefore.Unix()))
	_, err := l.cluster.Revoke(ctx, &v1alpha1.TokenRevocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TokenRevocation"},
		ObjectMeta: metav1.ObjectMeta{Name: "logout-" + hex.EncodeToString(sum[:16]), Labels: map[string]string{logoutLabel: "true"}},
		Spec:       *spec,
	}, false)
	if err != nil {
		l.stored.Add(-1)
	}
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// Run deletes revocations that are not needed any more, until ctx is done.
func (l *Logouts) Run(ctx context.Context) {
	for {
		if err := l.sweep(ctx); err != nil && ctx.Err() == nil {
			// Logged when a TokenRevocation of /logout cannot be written or removed.
			l.log.Warn("revocations of logouts", "error", "cannot delete those that are not needed any more: "+err.Error())
		}
		if !sleep.Context(ctx, sweepEvery) {
			return
		}
	}
}

// sweep reads page by page, so that a replica does not hold all logouts once more. If a page expires meanwhile, the next sweep
// goes on. It counts what stays.
func (l *Logouts) sweep(ctx context.Context) error {
	before, known, kept := time.Now().Add(-l.keep), l.stored.Load(), int64(0)
	var failed error
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return l.cluster.revocations.List(ctx, o)
	})
	list.PageBufferSize = 0
	err := list.EachListItem(ctx, metav1.ListOptions{LabelSelector: logoutLabel}, func(item runtime.Object) error {
		u := item.(*unstructured.Unstructured) //nolint:forcetypeassert // the client's lists have nothing else
		if !u.GetCreationTimestamp().Time.Before(before) {
			kept++
			return nil
		}
		uid := u.GetUID()
		err := explain(l.cluster.revocations.Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), "delete", revocationResource, u.GetName())
		if err != nil && !errors.Is(err, ErrNotFound) { // by another replica
			failed = err
		}
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case apierr.Classify(err) == apierr.Expired:
		return nil
	case err == nil:
		l.stored.Add(kept - known) // a logout of meanwhile may count twice, until the next sweep
	}
	return explain(err, "list", revocationResource, "")
}
