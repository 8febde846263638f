package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// reportLabel on a Lease tells that it is a report, and of which install.
	reportLabel      = "gatehouse.dev/report"
	digestAnnotation = "gatehouse.dev/digest"
	// problemsAnnotation has the problems of the replica, a line each.
	problemsAnnotation = "gatehouse.dev/problems"
	maxProblems        = 4 << 10 // bytes

	// renewPause is the shortest time after which a report without a change is written again, and
	// reportPause that between two writes.
	renewPause, reportPause = 20 * time.Second, time.Second
	// heartbeatTimeout is how long a replica that does not renew its report is waited for, and
	// reportLife how long its report is kept.
	heartbeatTimeout, reportLife = time.Minute, 10 * time.Minute
	// firstRetry is the first pause after a failure of a kind, an object or the report. It doubles up to
	// maxRetry.
	firstRetry, maxRetry = time.Second, 2 * time.Minute
	// removeTimeout bounds how long the removal of a report is waited for.
	removeTimeout = 5 * time.Second
	// mostReports bounds what is kept in memory: more processes than that are not one install.
	mostReports = 2000
)

// Run keeps the report of this replica, a Lease, until the context ends, from the first Use on. At the
// end it removes the Lease, which takes five seconds at most. It is called once.
func (c *Controller) Run(ctx context.Context) {
	what := fmt.Sprintf("write Lease %s/%s, by which this replica reports what it uses", c.cfg.Namespace, c.lease)
	renew := time.NewTimer(0)
	<-renew.C
	defer renew.Stop()
	retry := firstRetry
	for {
		select {
		case <-c.reported:
		case <-renew.C:
		case <-ctx.Done():
			c.removeReport(ctx)
			return
		}
		pause := wait.Jitter(renewPause, 0.5) // so that replicas do not write in step
		if err := c.writeReport(ctx); err != nil {
			class := apierr.Classify(err).Coarse()
			c.fail(ctx, what, class, err, c.leaseHint(class, "the status of custom resources does not count this replica; what it decides does not depend on that"))
			pause, retry = wait.Jitter(retry, 0.2), min(2*retry, maxRetry)
		} else {
			c.problems.Recover(what)
			retry = firstRetry
		}
		renew.Reset(pause)
		sleep.Context(ctx, reportPause)
	}
}

func (c *Controller) writeReport(ctx context.Context) error {
	annotations := map[string]string{digestAnnotation: c.current().Digest}
	if c.cfg.Problems != nil {
		if problems := c.cfg.Problems(); len(problems) > 0 {
			annotations[problemsAnnotation] = truncate.Bytes(strings.Join(problems, "\n"), maxProblems)
		}
	}
	lease := coordinationv1ac.Lease(c.lease, c.cfg.Namespace).
		WithLabels(map[string]string{reportLabel: install.DefaultGroup}).
		WithAnnotations(annotations).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(c.cfg.Replica).
			WithLeaseDurationSeconds(int32(heartbeatTimeout / time.Second)).
			WithRenewTime(metav1.NewMicroTime(time.Now())))
	// The Lease is ours alone: whatever else is in these fields is a mistake.
	_, err := c.cfg.Leases.Leases(c.cfg.Namespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// removeReport removes the report, so that nobody waits for this process. Where it cannot,
// the others wait for a minute.
func (c *Controller) removeReport(ctx context.Context) {
	if c.current() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := c.cfg.Leases.Leases(c.cfg.Namespace).Delete(ctx, c.lease, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.cfg.Log.Info("status", "error", "cannot remove Lease "+c.cfg.Namespace+"/"+c.lease+": "+truncate.Bytes(err.Error(), maxError),
			"hint", "the other replicas wait a minute for this one, and remove the Lease after ten")
	}
}

// ReplicaProblems returns the problems that the replicas of a namespace report, with the name of the replica in front. A replica that is
// gone has none.
func ReplicaProblems(ctx context.Context, leases typedcoordinationv1.LeasesGetter, namespace string) ([]string, error) {
	list, err := leases.Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{reportLabel: install.DefaultGroup}.String(), Limit: mostReports})
	if err != nil {
		return nil, err
	}
	var problems []string
	for i := range list.Items {
		lease := &list.Items[i]
		if renewed := lease.Spec.RenewTime; renewed == nil || time.Since(renewed.Time) > heartbeatTimeout || lease.Spec.HolderIdentity == nil {
			continue
		}
		for line := range strings.SplitSeq(lease.Annotations[problemsAnnotation], "\n") {
			if line != "" {
				problems = append(problems, *lease.Spec.HolderIdentity+": "+line)
			}
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// leaseHint returns what to do about a failed request for a Lease, and what it costs.
func (c *Controller) leaseHint(class apierr.Class, cost string) string {
	if class != apierr.Forbidden {
		return cost
	}
	return apierr.GrantHint(fmt.Sprintf("the Role gatehouse-resources in namespace %q", c.cfg.Namespace), "delete, list and patch",
		"leases in coordination.k8s.io; until then, "+cost)
}

// replica is another process of the install.
type replica struct {
	name, version, digest string
	// seen is when its report was last seen to change, by our clock: the clocks of replicas differ.
	seen time.Time
	// agreed is when it last reported what this replica uses, and differs since when it has
	// reported something else.
	agreed, differs time.Time
}

func (r *replica) isAlive(now time.Time) bool { return now.Sub(r.seen) <= heartbeatTimeout }

// listReplicas reads the reports of the other processes. It returns what was known of them and is new, by the names of their
// Leases, and calls stale with those of processes that are gone.
func (c *Controller) listReplicas(ctx context.Context, leases typedcoordinationv1.LeasesGetter, known map[string]*replica, digest string, stale func(*coordinationv1.Lease)) (map[string]*replica, error) {
	selector := labels.SelectorFromSet(labels.Set{reportLabel: install.DefaultGroup}).String()
	list, err := leases.Leases(c.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	found := make(map[string]*replica, len(list.Items))
	for i := range list.Items[:min(len(list.Items), mostReports)] {
		lease := &list.Items[i]
		if lease.Name == c.lease {
			continue
		}
		one := known[lease.Name]
		if one == nil {
			one = &replica{name: lease.Name}
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
				one.name = *holder
			}
		}
		one.note(lease, digest, now)
		if now.Sub(one.seen) > reportLife {
			stale(lease)
			continue
		}
		found[lease.Name] = one
	}
	return found, nil
}

// note stores what a report says.
func (r *replica) note(lease *coordinationv1.Lease, digest string, now time.Time) {
	if r.version != lease.ResourceVersion {
		r.version, r.digest, r.seen = lease.ResourceVersion, lease.Annotations[digestAnnotation], now
	}
	switch {
	case r.digest == digest:
		r.agreed, r.differs = now, time.Time{}
	case r.differs.IsZero():
		r.differs = now
	}
}

// removeStale removes a Lease as it was read: one that was written since stays.
func (w *writer) removeStale(ctx context.Context, lease *coordinationv1.Lease) {
	const what = "remove Leases of replicas that are gone"
	err := w.c.cfg.Leases.Leases(lease.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		w.c.problems.Recover(what)
		return
	}
	class := apierr.Classify(err).Coarse()
	w.c.fail(ctx, what, class, err, w.c.leaseHint(class, "the Leases stay, which has no other effect"))
}
