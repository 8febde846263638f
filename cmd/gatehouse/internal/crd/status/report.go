package status

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// reportLabel on a Lease tells that it is a report, and of which install.
	reportLabel       = "gatehouse.dev/report"
	digestAnnotation  = "gatehouse.dev/digest"
	startedAnnotation = "gatehouse.dev/started"
	countsAnnotation  = "gatehouse.dev/policy-counts"

	// A report is written again after renewLeast to renewMost without a change.
	renewLeast, renewMost = 20 * time.Second, 30 * time.Second
	// reportPause is between two changes of a report, and countsPause between two
	// looks at the counts.
	reportPause, countsPause = time.Second, time.Minute
	// heartbeatTimeout is how long a replica that does not renew its report is waited for, and
	// reportLife how long its report is kept.
	heartbeatTimeout, reportLife = time.Minute, 10 * time.Minute
	// removeTimeout bounds how long the removal of a report is waited for.
	removeTimeout = 5 * time.Second
)

// report keeps the Lease of this process until the context ends.
func (c *Controller) report(ctx context.Context) {
	reporter := &failureReporter{log: c.cfg.Log}
	what := fmt.Sprintf("write Lease %s/%s, by which this replica reports what it uses", c.cfg.Namespace, c.lease)
	var (
		counts    string
		countedAt time.Time
		failures  int
	)
	defer c.removeReport(ctx)
	for ctx.Err() == nil {
		if countedAt.IsZero() || time.Since(countedAt) >= countsPause {
			counts, countedAt = encodeCounts(c.cfg.Policies(), maxCounts), time.Now()
		}
		if err := c.writeReport(ctx, counts); err != nil {
			failures++
			class := classify(err)
			reporter.failed(ctx, what, class, err, c.leaseHint(class, "the status of custom resources does not count this replica; what it decides does not depend on that"))
			sleep.Context(ctx, retryDelay(class, failures))
			continue
		}
		failures = 0
		reporter.recovered(what)
		renew := time.NewTimer(renewLeast + rand.N(renewMost-renewLeast)) //nolint:gosec // so that replicas do not write in step
		sleep.Context(ctx, reportPause)
		select {
		case <-c.reported:
		case <-renew.C:
		case <-ctx.Done():
		}
		renew.Stop()
	}
}

func (c *Controller) writeReport(ctx context.Context, counts string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease := coordinationv1ac.Lease(c.lease, c.cfg.Namespace).
		WithLabels(map[string]string{reportLabel: c.labelValue()}).
		WithAnnotations(map[string]string{
			digestAnnotation: c.history.get().digest, startedAnnotation: c.started.UTC().Format(time.RFC3339), countsAnnotation: counts,
		}).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(c.cfg.Replica).
			WithLeaseDurationSeconds(int32(heartbeatTimeout / time.Second)).
			WithRenewTime(metav1.NewMicroTime(c.cfg.Now())))
	// The Lease is ours alone: whatever else is in these fields is a mistake.
	_, err := c.cfg.Leases.Leases(c.cfg.Namespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: c.manager, Force: true})
	return err
}

// removeReport removes the report, so that nobody waits for this process. Where it cannot,
// the others wait for a minute.
func (c *Controller) removeReport(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := c.cfg.Leases.Leases(c.cfg.Namespace).Delete(ctx, c.lease, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.cfg.Log.Info("status", "error", "cannot remove Lease "+c.cfg.Namespace+"/"+c.lease+": "+truncate.Bytes(err.Error(), longestError),
			"hint", "the others wait a minute for this replica, and remove the Lease after ten")
	}
}

func (c *Controller) labelValue() string {
	return shortenName(c.cfg.Group, validation.LabelValueMaxLength)
}

// leaseHint returns what to do about a failed request for a Lease, and what it costs.
func (c *Controller) leaseHint(class apierr.Class, cost string) string {
	if class != apierr.Forbidden {
		return cost
	}
	return apierr.GrantHint(fmt.Sprintf("a Role in namespace %q", c.cfg.Namespace), "create, delete, get, list, patch, update and watch",
		"leases in coordination.k8s.io; until then, "+cost)
}
