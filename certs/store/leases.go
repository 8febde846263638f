package store

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// groupLabel has the same value on the Leases of all replicas that share a state.
	groupLabel = "gatehouse.dev/certificates"

	issuerAnnotation   = "gatehouse.dev/issuer"
	sha256Annotation   = "gatehouse.dev/certificate-sha256"
	notAfterAnnotation = "gatehouse.dev/not-after"
	versionAnnotation  = "gatehouse.dev/version"

	// leasePage is how many Leases are read at a time, and mostLeases altogether.
	leasePage  = 250
	mostLeases = 5000
)

// LeasesConfig configures Leases.
type LeasesConfig struct {
	Client certs.Client
	// Namespace is that of the Leases.
	Namespace string
	// Group is the name of the Secret that the replicas share.
	Group string
	// Replica is the name of this one: that of its pod, which belongs to one process
	// at a time. Without one it cannot report, and List removes nothing.
	Replica string
	// LeafLife is the life of a serving certificate: a rotation waits for a replica no
	// longer than that after it was last seen, and for DefaultLeafLife at least, because
	// others may be configured otherwise. Zero is a year, for readers that do not know it.
	LeafLife time.Duration
	// Now returns the time by the wall clock; nil is time.Now. It must be safe for
	// concurrent use.
	Now func() time.Time
}

// Leases is a Replicas in Leases of coordination.k8s.io, one for each process: its
// name is that of the replica and a random suffix. So two processes of one name are both
// listed, and a container that restarts does not have to wait for the Lease before.
//
// The Lease of a process that was killed is removed by its successor of the same
// name, once it has been silent for 4*ReportInterval by the API server's clock;
// until then, a rotation waits for it. The price: if two processes use a name in
// spite of everything, and one is isolated when the other starts, rotations do not wait
// for the isolated one. They wait for a process that starts later or still writes.
//
// It needs the rights to list, create, patch and delete leases in the namespace. The
// names are not known in advance, so that a Role cannot name them. List removes Leases
// of replicas that have been unreachable for a day and whose certificates have ended. No
// request takes longer than ten seconds.
type Leases struct {
	cfg LeasesConfig
	// name is that of this process's Lease.
	name string
	// timeout is how long an answer is waited for.
	timeout time.Duration
	stale   staleReports
}

var _ Replicas = (*Leases)(nil)

// NewLeases sends no request yet.
func NewLeases(cfg LeasesConfig) *Leases {
	instance := "-" + newInstance()
	name := shortName(cfg.Group, cfg.Replica, validation.DNS1123SubdomainMaxLength-len(instance)) + instance
	return &Leases{cfg: cfg, name: name, timeout: kube.Timeout}
}

// Report implements Replicas. It overwrites its fields of the Lease, and keeps all others.
func (l *Leases) Report(ctx context.Context, r *rotation.Report) error {
	lease, err := l.apply(ctx, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	l.stale.remove(ctx, clock.Monotonic(l.cfg.Now), reportOfLease(lease), l)
	return nil
}

func (l *Leases) apply(ctx context.Context, r *rotation.Report) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	annotations := map[string]string{issuerAnnotation: r.Issuer, versionAnnotation: r.Version}
	if r.Issuer != "" {
		annotations[sha256Annotation] = r.SHA256
		annotations[notAfterAnnotation] = r.NotAfter.UTC().Format(time.RFC3339)
	}
	lease := coordinationv1ac.Lease(l.name, l.cfg.Namespace).
		WithLabels(map[string]string{kube.ManagedByLabel: kube.ManagedBy, groupLabel: labelOf(l.cfg.Group)}).
		WithAnnotations(annotations).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(l.cfg.Replica).
			WithLeaseDurationSeconds(int32(unreachableTime / time.Second)).
			WithRenewTime(metav1.NewMicroTime(clock.Wall(l.cfg.Now))))
	applied, err := l.leases().Apply(ctx, lease, metav1.ApplyOptions{FieldManager: stateManager, Force: true})
	if err != nil {
		return nil, l.request("patch").Explain(ctx, err)
	}
	return applied, nil
}

// each reads all Leases of the group, not from a cache.
func (l *Leases) each(ctx context.Context, do func(*storedReport)) error {
	selector := labels.SelectorFromSet(labels.Set{groupLabel: labelOf(l.cfg.Group)}).String()
	options := metav1.ListOptions{LabelSelector: selector, Limit: leasePage}
	for count := 0; ; {
		list, err := l.leases().List(ctx, options)
		if err != nil {
			return l.request("list").Explain(ctx, err)
		}
		if count += len(list.Items); count > mostLeases {
			return fmt.Errorf("%s: there are more than %d, the others are ignored (hint: delete those of pods that do not exist any more: kubectl -n %s get leases -l %s)",
				l.request("list").Object, mostLeases, l.cfg.Namespace, selector)
		}
		for i := range list.Items {
			lease := &list.Items[i]
			t := reportOfLease(lease)
			t.remove = func(ctx context.Context) {
				_ = l.leases().Delete(ctx, lease.Name, metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
				})
			}
			do(t)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// List implements Replicas. The issuer of a Lease that does not say what its replica
// serves is UnreadableIssuer, for as long as a certificate lasts. There may be 5000 Leases:
// with more of them it returns an error, and a rotation waits.
func (l *Leases) List(ctx context.Context) ([]rotation.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return listReports(ctx, l, clock.Wall(l.cfg.Now), l.cfg.LeafLife, l.cfg.Replica != "")
}

// reportOfLease returns the report in a Lease.
func reportOfLease(lease *coordinationv1.Lease) *storedReport {
	t := &storedReport{
		place: lease.Name, location: lease.Name, sha256: lease.Annotations[sha256Annotation], notAfter: lease.Annotations[notAfterAnnotation],
		version: lease.Annotations[versionAnnotation], written: lease.CreationTimestamp.Time,
	}
	if issuer, ok := lease.Annotations[issuerAnnotation]; ok {
		t.issuer = &issuer
	}
	if lease.Spec.HolderIdentity != nil {
		t.replica = *lease.Spec.HolderIdentity
	}
	if lease.Spec.RenewTime != nil {
		t.claimed = lease.Spec.RenewTime.Time
	}
	// The API server writes down by its own clock when a field manager last wrote.
	for _, managed := range lease.ManagedFields {
		if managed.Manager == stateManager && managed.Time != nil && managed.Time.After(t.written) {
			t.written = managed.Time.Time
		}
	}
	return t
}

// Leave implements Replicas.
func (l *Leases) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := l.leases().Delete(ctx, l.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return l.request("delete").Explain(ctx, err)
	}
	return nil
}

// labelOf returns a group's name as a label's value, which has to be shorter than the
// name of a Secret may be.
func labelOf(group string) string {
	if len(validation.IsValidLabelValue(group)) == 0 {
		return group
	}
	return shortName(group, "", validation.LabelValueMaxLength)
}

func (l *Leases) leases() typedcoordinationv1.LeaseInterface {
	return l.cfg.Client.CoordinationV1().Leases(l.cfg.Namespace)
}

func (l *Leases) request(verb string) *kube.Request {
	r := &kube.Request{Object: "Lease " + l.cfg.Namespace + "/" + l.name, Verb: verb, Resource: "leases"}
	if verb == "list" {
		r.Object = fmt.Sprintf("Leases of %q in namespace %q", l.cfg.Group, l.cfg.Namespace)
	}
	r.Right = fmt.Sprintf("a Role in namespace %q must allow list, create, patch and delete of leases in coordination.k8s.io", l.cfg.Namespace)
	return r
}
