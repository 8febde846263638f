package certs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// groupLabel tells whose reports belong together: those of the replicas that
	// share a state.
	groupLabel = "gatehouse.dev/certificates"

	issuerAnnotation   = "gatehouse.dev/issuer"
	sha256Annotation   = "gatehouse.dev/certificate-sha256"
	notAfterAnnotation = "gatehouse.dev/not-after"
	versionAnnotation  = "gatehouse.dev/version"

	// tidied is how many reports are removed by one List at most.
	tidied = 10
)

// LeasesConfig says where replicas report.
type LeasesConfig struct {
	// Client asks the API server.
	Client Client
	// Namespace is that of the Leases.
	Namespace string
	// Group is what all replicas that share a state have in common: the name of
	// its Secret.
	Group string
	// Replica is the name of this one, which no other replica has: that of its pod.
	// One without a name looks on: it cannot report, and List removes nothing.
	Replica string
	// LeafLife is how long a serving certificate lasts: nobody is waited for longer
	// than that after having been heard of. Zero is a year, for whoever does not
	// know.
	LeafLife time.Duration
	// Now is the time by the clock on the wall; nil is time.Now. It must be safe for
	// concurrent use.
	Now func() time.Time
}

// Leases is a Replicas in Leases of coordination.k8s.io, one for each replica.
//
// It needs the rights to list, create, patch and delete leases in the namespace.
// Which names there will be is not known in advance, so they cannot be named in a
// Role. Leases that nobody waits for any more, of replicas that have been away for
// a day, are removed by any replica that lists. No request takes longer than ten
// seconds.
type Leases struct {
	cfg LeasesConfig
	// patience is how long an answer is waited for.
	patience time.Duration
}

var _ Replicas = (*Leases)(nil)

// NewLeases asks nothing yet.
func NewLeases(cfg LeasesConfig) *Leases { return &Leases{cfg: cfg, patience: requestTime} }

// Report implements Replicas. What others wrote into the fields of the Lease that
// are ours is overwritten, and whatever else they wrote stays.
func (l *Leases) Report(ctx context.Context, r *rotation.Report) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	annotations := map[string]string{issuerAnnotation: r.Issuer, versionAnnotation: r.Version}
	if r.Issuer != "" {
		annotations[sha256Annotation] = r.SHA256
		annotations[notAfterAnnotation] = r.NotAfter.UTC().Format(time.RFC3339)
	}
	lease := coordinationv1ac.Lease(l.name(), l.cfg.Namespace).
		WithLabels(map[string]string{managedBy: managedByValue, groupLabel: labelOf(l.cfg.Group)}).
		WithAnnotations(annotations).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(l.cfg.Replica).
			WithLeaseDurationSeconds(int32(4 * ReportInterval / time.Second)).
			WithRenewTime(metav1.NewMicroTime(wall(l.cfg.Now))))
	_, err := l.leases().Apply(ctx, lease, metav1.ApplyOptions{FieldManager: stateManager, Force: true})
	if err != nil {
		return l.request("patch").failed(ctx, err)
	}
	return nil
}

// List implements Replicas. A Lease that does not say what its replica serves
// counts as one of an issuer that is not known, UnreadableIssuer, for as long as a
// certificate lasts.
func (l *Leases) List(ctx context.Context) ([]rotation.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	selector := labels.SelectorFromSet(labels.Set{groupLabel: labelOf(l.cfg.Group)})
	list, err := l.leases().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, l.request("list").failed(ctx, err)
	}
	now := wall(l.cfg.Now)
	var (
		reports []rotation.Report
		removed int
	)
	for i := range list.Items {
		lease := &list.Items[i]
		report, over := toldBy(lease).report(now, l.cfg.LeafLife)
		if !over {
			reports = append(reports, report)
			continue
		}
		if removed++; removed <= tidied && l.cfg.Replica != "" {
			// Whoever cannot remove it leaves it to somebody who can. A replica that
			// has come back in the meantime keeps its own.
			_ = l.leases().Delete(ctx, lease.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
			})
		}
	}
	sortReports(reports)
	return reports, nil
}

// sortReports puts reports in the order of their names.
func sortReports(reports []rotation.Report) {
	slices.SortStableFunc(reports, func(a, b rotation.Report) int { return cmp.Compare(a.Replica, b.Replica) })
}

// toldBy is what a Lease says.
func toldBy(lease *coordinationv1.Lease) *told {
	t := &told{
		place: lease.Name, sha256: lease.Annotations[sha256Annotation], notAfter: lease.Annotations[notAfterAnnotation],
		version: lease.Annotations[versionAnnotation], written: lease.CreationTimestamp.Time,
	}
	if issuer, ok := lease.Annotations[issuerAnnotation]; ok {
		t.issuer = &issuer
	}
	if lease.Spec.HolderIdentity != nil {
		t.replica = *lease.Spec.HolderIdentity
	}
	if lease.Spec.RenewTime != nil {
		t.renewed = lease.Spec.RenewTime.Time
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
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	err := l.leases().Delete(ctx, l.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return l.request("delete").failed(ctx, err)
	}
	return nil
}

func (l *Leases) name() string {
	return shortName(l.cfg.Group, l.cfg.Replica, validation.DNS1123SubdomainMaxLength)
}

// labelOf is a group's name as a label's value, which has to be shorter than the
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

func (l *Leases) request(verb string) *apiRequest {
	r := &apiRequest{object: "Lease " + l.cfg.Namespace + "/" + l.name(), verb: verb, resource: "leases"}
	if verb == "list" {
		r.object = fmt.Sprintf("Leases of %q in namespace %q", l.cfg.Group, l.cfg.Namespace)
	}
	r.right = fmt.Sprintf("a Role in namespace %q must allow list, create, patch and delete of leases in coordination.k8s.io", l.cfg.Namespace)
	return r
}
