package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// mostReports bounds what is kept in memory: more processes than that are not one
	// install.
	mostReports = 2000
	// tidied is how many reports are removed in a row at most, and tidyPause is what
	// comes between.
	tidied, tidyPause = 5, time.Minute
)

// replica is the report of another process of the install.
type replica struct {
	lease, name string
	uid         types.UID
	version     string // metadata.resourceVersion
	created     time.Time
	digest      string
	started     time.Time
	text        string // of the counts
	counts      map[string]PolicyCount
	// lastSeen is when the report was last seen to change, by our clock.
	lastSeen time.Time
	// alive is true if Ready waits for it.
	alive bool
}

// replicas are the other processes of the install. It is safe for concurrent use.
//
// A replica is alive if its report was seen to change recently. The times in the report are
// not used, because clocks differ. Liveness is updated with each event, of our own report
// too, which changes three times a minute: without events no replica is taken for dead.
type replicas struct {
	c        *Controller
	reporter *failureReporter
	// changed receives a value after a change that status may depend on. Its buffer is one
	// value.
	changed chan struct{}

	mu     sync.Mutex
	known  map[string]*replica // by name of the Lease
	listed bool
	tidyAt time.Time
}

func newReplicas(c *Controller, reporter *failureReporter) *replicas {
	return &replicas{c: c, reporter: reporter, changed: make(chan struct{}, 1), known: map[string]*replica{}}
}

// alive returns the other replicas that are alive, by name, and false until all are known.
func (r *replicas) alive() ([]replica, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []replica
	for _, one := range r.known {
		if one.alive && one.lease != r.c.lease {
			list = append(list, *one)
		}
	}
	slices.SortFunc(list, func(a, b replica) int { return strings.Compare(a.name+"\x00"+a.lease, b.name+"\x00"+b.lease) })
	return list, r.listed
}

// follow keeps up with the reports until the context ends.
func (r *replicas) follow(ctx context.Context) {
	what := fmt.Sprintf("follow the Leases with label %s in namespace %q, by which replicas report", r.selector(), r.c.cfg.Namespace)
	leases := r.c.cfg.Leases.Leases(r.c.cfg.Namespace)
	failed := func(err error) {
		class := classify(err)
		r.reporter.failed(ctx, what, class, err, r.c.leaseHint(class, "conditions are written late or not at all"))
	}
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			o.LabelSelector = r.selector()
			list, err := leases.List(ctx, o)
			if err != nil {
				failed(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = r.selector()
			w, err := leases.Watch(ctx, o)
			switch {
			case err == nil:
				r.reporter.recovered(what)
			case o.SendInitialEvents == nil: // else a list is tried next
				failed(err)
			}
			return w, err
		},
	}, &coordinationv1.Lease{}, &reportStore{r, ctx}, cache.ReflectorOptions{Name: "reports"})
	quiet := klog.NewContext(ctx, logr.Discard())
	for failures := 0; ctx.Err() == nil; {
		began, class := time.Now(), apierr.Unreachable
		if err := reflector.ListAndWatchWithContext(quiet); err != nil {
			class = classify(err)
		}
		if failures++; time.Since(began) > requestTimeout {
			failures = 0
		}
		sleep.Context(ctx, retryDelay(class, failures))
	}
}

// reportStore has a reflector change replicas.
type reportStore struct {
	*replicas

	ctx context.Context //nolint:containedctx // the methods of a cache.ReflectorStore have none
}

var _ cache.ReflectorStore = (*reportStore)(nil)

// Add implements cache.ReflectorStore.
func (s *reportStore) Add(object any) error { return s.observeEvent(s.ctx, watch.Added, object) }

// Update implements cache.ReflectorStore.
func (s *reportStore) Update(object any) error { return s.observeEvent(s.ctx, watch.Modified, object) }

// Delete implements cache.ReflectorStore.
func (s *reportStore) Delete(object any) error { return s.observeEvent(s.ctx, watch.Deleted, object) }

// Resync implements cache.ReflectorStore.
func (*reportStore) Resync() error { return nil }

func (r *replicas) selector() string {
	return labels.SelectorFromSet(labels.Set{reportLabel: r.c.labelValue()}).String()
}

// Replace implements cache.ReflectorStore.
func (r *replicas) Replace(list []any, _ string) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]bool{}
	for _, item := range list[:min(len(list), mostReports)] {
		if lease, ok := item.(*coordinationv1.Lease); ok {
			found[lease.Name] = true
			r.put(lease, now)
			// Nobody knows when it was last written while nobody looked.
			r.known[lease.Name].lastSeen = now
		}
	}
	maps.DeleteFunc(r.known, func(name string, _ *replica) bool { return !found[name] })
	r.listed = true
	r.updateLiveness(now)
	poke(r.changed)
	return nil
}

func (r *replicas) observeEvent(ctx context.Context, how watch.EventType, object any) error {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("a %T is no Lease", object)
	}
	now := time.Now()
	r.mu.Lock()
	var different bool
	if how == watch.Deleted {
		different = r.known[lease.Name] != nil
		delete(r.known, lease.Name)
	} else {
		different = r.put(lease, now)
	}
	different = r.updateLiveness(now) || different
	over := r.over(now)
	r.mu.Unlock()
	if different {
		poke(r.changed)
	}
	for _, one := range over {
		r.remove(ctx, &one)
	}
	return nil
}

// put stores the report of a Lease, and reports whether its digest has changed.
func (r *replicas) put(lease *coordinationv1.Lease, now time.Time) (different bool) {
	before := r.known[lease.Name]
	if before != nil && before.version == lease.ResourceVersion {
		return false
	}
	one := &replica{
		lease: lease.Name, name: lease.Name, uid: lease.UID, version: lease.ResourceVersion, created: lease.CreationTimestamp.Time,
		digest: lease.Annotations[digestAnnotation], text: lease.Annotations[countsAnnotation], lastSeen: now,
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		one.name = *holder
	}
	// Without a time it counts as started when the Lease was made.
	one.started = one.created
	if started, err := time.Parse(time.RFC3339, lease.Annotations[startedAnnotation]); err == nil {
		one.started = started
	}
	if before != nil && before.text == one.text {
		one.counts = before.counts
	} else if counts, err := decodeCounts(one.text); err == nil {
		one.counts = counts // what cannot be read is not counted
	}
	if before != nil {
		one.alive = before.alive
	}
	r.known[lease.Name] = one
	return before == nil || before.digest != one.digest
}

// updateLiveness updates which replicas are alive, and reports whether that has changed. A
// process whose name a newer one has is not alive.
func (r *replicas) updateLiveness(now time.Time) (different bool) {
	newest := r.newest()
	for _, one := range r.known {
		alive := now.Sub(one.lastSeen) <= heartbeatTimeout && !one.created.Before(newest[one.name])
		different = different || alive != one.alive
		one.alive = alive
	}
	return different
}

// newest returns when the newest process of each name reported first.
func (r *replicas) newest() map[string]time.Time {
	newest := make(map[string]time.Time, len(r.known))
	for _, one := range r.known {
		if one.created.After(newest[one.name]) {
			newest[one.name] = one.created
		}
	}
	return newest
}

// over returns the stale reports.
func (r *replicas) over(now time.Time) []replica {
	if now.Before(r.tidyAt) {
		return nil
	}
	newest := r.newest()
	var over []replica
	for _, one := range r.known {
		life := reportLife
		if one.created.Before(newest[one.name]) {
			life = heartbeatTimeout
		}
		if now.Sub(one.lastSeen) > life && one.lease != r.c.lease && len(over) < tidied {
			over = append(over, *one)
		}
	}
	if len(over) > 0 {
		r.tidyAt = now.Add(tidyPause)
	}
	return over
}

// remove deletes a Lease as it was seen: one that was written since stays.
func (r *replicas) remove(ctx context.Context, one *replica) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	what := "remove Leases of replicas that are gone"
	err := r.c.cfg.Leases.Leases(r.c.cfg.Namespace).Delete(ctx, one.lease, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &one.uid, ResourceVersion: &one.version},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		r.reporter.recovered(what)
	default:
		class := classify(err)
		r.reporter.failed(ctx, what, class, err, r.c.leaseHint(class, "they stay, and nothing else comes of it"))
	}
}
