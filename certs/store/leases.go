package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

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
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// groupLabel has the same value on the Leases of all replicas that share a state.
	groupLabel = "gatehouse.dev/certificates"

	issuerAnnotation   = "gatehouse.dev/issuer"
	sha256Annotation   = "gatehouse.dev/certificate-sha256"
	notAfterAnnotation = "gatehouse.dev/not-after"
	versionAnnotation  = "gatehouse.dev/version"

	// mostLeases is how many Leases are read.
	mostLeases = 5000
	// tidied is how many of them are removed by one List at most.
	tidied = 10

	// unreachableTime is after how long without a heartbeat a replica is unreachable.
	unreachableTime = 4 * ReportInterval
	// UnreadableIssuer is the Issuer of a Report that cannot be read, and of one whose
	// certificate leads to none of the CAs of the state. A rotation waits for such a
	// replica.
	UnreadableIssuer = "unreadable"
	// longestLeafLife is how long a serving certificate may last where nobody says
	// how long they do.
	longestLeafLife = 366 * 24 * time.Hour
	// clockTolerance is how much the clocks of replicas may differ. It is also how
	// long a report is kept that no rotation waits for.
	clockTolerance = 24 * time.Hour
	// longestName is the longest name that is taken over from a report.
	longestName = 253
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

// Leases is a Replicas in Leases of coordination.k8s.io, one for each replica. A process
// takes over the Lease of the one before it with the same name, such as a container that
// restarts. If two processes use a name in spite of everything, rotations wait only for
// the one that wrote last.
//
// It needs the rights to list, create, patch and delete leases in the namespace. The
// names are not known in advance, so that a Role cannot name them. List removes Leases
// of replicas that have been unreachable for a day and whose certificates have ended. No
// request takes longer than ten seconds.
type Leases struct {
	cfg LeasesConfig
	// name is that of this replica's Lease.
	name string
	// timeout is how long an answer is waited for.
	timeout time.Duration
}

var _ Replicas = (*Leases)(nil)

// NewLeases sends no request yet.
func NewLeases(cfg LeasesConfig) *Leases {
	return &Leases{cfg: cfg, name: shortName(cfg.Group, cfg.Replica, validation.DNS1123SubdomainMaxLength), timeout: kube.Timeout}
}

// Report implements Replicas. It overwrites its fields of the Lease, and keeps all others.
func (l *Leases) Report(ctx context.Context, r *rotation.Report) error {
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
	if _, err := l.leases().Apply(ctx, lease, metav1.ApplyOptions{FieldManager: stateManager, Force: true}); err != nil {
		return l.request("patch").Explain(ctx, err)
	}
	return nil
}

// List implements Replicas. The issuer of a Lease that does not say what its replica
// serves is UnreadableIssuer, for as long as a certificate lasts. There may be 5000 Leases:
// with more of them it returns an error, and a rotation waits.
func (l *Leases) List(ctx context.Context) ([]rotation.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	now := clock.Wall(l.cfg.Now)
	selector := labels.SelectorFromSet(labels.Set{groupLabel: labelOf(l.cfg.Group)}).String()
	list, err := l.leases().List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: mostLeases})
	if err != nil {
		return nil, l.request("list").Explain(ctx, err)
	}
	if list.Continue != "" {
		return nil, fmt.Errorf("%s: there are more than %d, the others are ignored (hint: delete those of pods that do not exist any more: kubectl -n %s get leases -l %s)",
			l.request("list").Object, mostLeases, shell.Quote(l.cfg.Namespace), shell.Quote(selector))
	}
	var (
		reports []rotation.Report
		removed int
	)
	for i := range list.Items {
		lease := &list.Items[i]
		report, over := reportOf(lease, now, l.cfg.LeafLife)
		switch {
		case !over:
			reports = append(reports, report)
		case l.cfg.Replica != "" && removed < tidied:
			removed++
			// A replica that cannot remove it leaves it to another replica.
			_ = l.leases().Delete(ctx, lease.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
			})
		}
	}
	slices.SortStableFunc(reports, func(a, b rotation.Report) int { return cmp.Compare(a.Replica, b.Replica) })
	return reports, nil
}

// reportOf returns the verified part of the report in a Lease, for a reader whose own
// certificates last for life. Those of others may last for the usual time all the same.
// A Lease is not trusted: anyone with the right may have written it. over reports whether
// the replica has been unreachable for a day, and its certificate has ended.
//
// A certificate has ended at the latest when one has that was issued when its replica was
// last seen, so that no report delays a rotation for ever. A report that cannot be read
// delays it for as long: an isolated replica may still serve its certificate.
func reportOf(lease *coordinationv1.Lease, now time.Time, life time.Duration) (r rotation.Report, over bool) {
	if life <= 0 {
		life = longestLeafLife
	}
	life = max(life, rotation.DefaultLeafLife)
	// The API server writes down by its own clock when a field manager last wrote.
	written := lease.CreationTimestamp.Time
	for _, managed := range lease.ManagedFields {
		if managed.Manager == stateManager && managed.Time != nil && managed.Time.After(written) {
			written = managed.Time.Time
		}
	}
	lastSeen := written
	if lease.Spec.RenewTime != nil {
		lastSeen = lease.Spec.RenewTime.Time
	}
	if lastSeen.After(now.Add(clockTolerance)) || lastSeen.Before(written.Add(-clockTolerance)) {
		lastSeen = written // no clock says that
	}
	latest := lastSeen.Add(life)
	r = rotation.Report{
		Replica: printable(lease.Name), Issuer: UnreadableIssuer, NotAfter: latest, Seen: clock.Earlier(lastSeen, now),
		Version: truncate.Runes(printable(lease.Annotations[versionAnnotation]), 64), Lease: lease.Name,
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && printable(*holder) != "" {
		r.Replica = printable(*holder)
	}
	if issuer, ok := lease.Annotations[issuerAnnotation]; ok && (issuer == "" || isFingerprint(issuer)) {
		r.Issuer = issuer
	}
	if isFingerprint(lease.Annotations[sha256Annotation]) {
		r.SHA256 = lease.Annotations[sha256Annotation]
	}
	if end, err := time.Parse(time.RFC3339, lease.Annotations[notAfterAnnotation]); err == nil {
		r.NotAfter = clock.Earlier(end.UTC(), latest)
	}
	if r.Issuer == "" {
		r.NotAfter = time.Time{}
	}
	return r, now.After(lastSeen.Add(clockTolerance)) && now.After(r.NotAfter)
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

// labelOf returns a group's name as a label's value, which has to be shorter than the
// name of a Secret may be.
func labelOf(group string) string {
	if len(validation.IsValidLabelValue(group)) == 0 {
		return group
	}
	return shortName(group, "", validation.LabelValueMaxLength)
}

// isFingerprint reports whether a string is lower-case hexadecimal of at most the length
// of an Authority's ID.
func isFingerprint(text string) bool {
	if text == "" || len(text) > hex.EncodedLen(sha256.Size) || strings.ToLower(text) != text {
		return false
	}
	_, err := hex.DecodeString(text)
	return err == nil
}

// printable returns a string without control characters, truncated.
func printable(text string) string {
	return truncate.Runes(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text), longestName)
}

// shortName returns a unique name of at most so many characters for a group's replica, or
// for the group with "". It is a DNS subdomain if the length allows it, and begins with the
// names themselves.
func shortName(group, replica string, most int) string {
	sum := sha256.Sum256([]byte(group + "\x00" + replica))
	name := hex.EncodeToString(sum[:8])
	each := (most-len(name))/2 - 1
	for _, part := range []string{replica, group} {
		part = strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
				return r
			case r >= 'A' && r <= 'Z':
				return r - 'A' + 'a'
			default:
				return '-'
			}
		}, part)
		if part = strings.Trim(part[:min(len(part), each)], "-"); part != "" {
			name = part + "-" + name
		}
	}
	return name
}
