package status

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// fieldManager is that of all replicas, so that each goes on where another one ended.
const fieldManager = "gatehouse-status"

// maxError bounds text of other programs in the log, in bytes.
const maxError = 500

// Config is the configuration of a Controller. Fields are required unless their comment says otherwise.
type Config struct {
	// Client reads and writes custom resources. Its rate limit is that of writes, and its requests
	// need a timeout.
	Client dynamic.Interface
	// Leases are where replicas report.
	Leases typedcoordinationv1.LeasesGetter
	// Namespace is that of the Leases.
	Namespace string
	// Replica is the name of this process: that of its pod.
	Replica string
	// Record writes an Event, of type Warning or Normal. It does not block.
	Record func(object corev1.ObjectReference, warning bool, reason, note string)
	// Audits has the results of the last audit. It is nil without audits: then the status of policies has none.
	Audits Audits
	// Problems returns a line for each problem of this replica, which its Lease shows. It may be nil.
	Problems func() []string
	// Log gets a line for each problem.
	Log *slog.Logger
}

// Audits has what the last audit found, nil before the first. The caller must not change it.
type Audits interface {
	// Counts returns the results by the name of the AdmissionPolicy.
	Counts() map[string]v1alpha1.PolicyAudit
	// Pods returns the numbers of pods by the name of the SidecarProfile.
	Pods() map[string]v1alpha1.SidecarPodCounts
}

// Controller reports what this replica uses, and writes the status of custom
// resources while this replica is elected. It is safe for concurrent use.
//
// Each process keeps a Lease of its own in the namespace. The elected one reads these Leases and
// writes status, by server-side apply.
//
// The rights that it needs: in the namespace, delete, list and patch of leases in
// coordination.k8s.io; in the cluster, get and list of the kinds of gatehouse.dev, patch of
// their status.
type Controller struct {
	cfg      Config
	lease    string // the name of our own Lease
	problems *problemlog.Log
	writes   *prometheus.CounterVec
	// reported and changed receive a value after a new report: each has one receiver, and a buffer
	// of one value.
	reported, changed chan struct{}

	mu sync.Mutex
	// last is never changed. It is nil before the first report.
	last *current
}

// current is the last report of this replica.
type current struct {
	Report

	// outcomes are sorted.
	outcomes []*outcome
	byKey    map[key]*outcome
	at       time.Time
}

// key identifies an object.
type key struct{ kind, namespace, name string }

func keyOf(o *Object) key { return key{o.Kind, o.Namespace, o.Name} }

// outcome is that of an object, and since when its version has been the active one.
type outcome struct {
	*Outcome

	since time.Time
}

// New returns a Controller. It sends no request yet.
func New(cfg Config) *Controller {
	c := &Controller{
		cfg: cfg, lease: install.DefaultGroup + "-report-" + cfg.Replica,
		problems: problemlog.New(cfg.Log, "status"),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_status_writes_total",
			Help: "Writes of the status of custom resources by outcome (written, conflict, failed).",
		}, []string{"outcome"}),
		reported: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	// A rate needs the zero that it begins with.
	for _, r := range []result{written, conflict, failed} {
		c.writes.WithLabelValues(string(r))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Controller) Describe(ch chan<- *prometheus.Desc) { c.writes.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *Controller) Collect(ch chan<- prometheus.Metric) { c.writes.Collect(ch) }

// Use sets what this replica uses from now on. It does not wait for anything. The
// caller does not change the report afterwards.
func (c *Controller) Use(r Report) {
	now := time.Now()
	next := &current{Report: r, outcomes: make([]*outcome, 0, len(r.Outcomes)), byKey: make(map[key]*outcome, len(r.Outcomes)), at: now}
	before := c.current()
	for i := range r.Outcomes {
		o := &outcome{Outcome: &r.Outcomes[i], since: now}
		k := keyOf(&o.Object)
		if before != nil && before.byKey[k] != nil && isSameVersion(before.byKey[k].Outcome, o.Outcome) {
			o.since = before.byKey[k].since
		}
		next.outcomes = append(next.outcomes, o)
		next.byKey[k] = o
	}
	slices.SortFunc(next.outcomes, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	c.mu.Lock()
	c.last = next
	c.mu.Unlock()
	poke(c.reported)
	poke(c.changed)
}

// isSameVersion reports whether two outcomes are of the same version of an object, used
// in the same way.
func isSameVersion(a, b *Outcome) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.Use == b.Use
}

func (c *Controller) current() *current {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Recheck makes the elected replica compare the status of all objects soon, because there are other
// counts of pods or results of an audit.
func (c *Controller) Recheck() { poke(c.changed) }

// poke leaves a value for a receiver, unless there is one already.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// fail logs that something cannot be done. The hint says what to do, and what depends on it.
func (c *Controller) fail(ctx context.Context, what string, class apierr.Class, err error, hint string) {
	if ctx.Err() == nil {
		c.problems.Report(what, string(class), "cannot "+what+": "+truncate.Bytes(err.Error(), maxError), hint)
	}
}
