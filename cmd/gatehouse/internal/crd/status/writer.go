package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// Conditions are written at this rate per second, for all objects together, and
	// this many at once. Counts are less urgent: each write costs every replica that
	// follows the object.
	conditionsRate, conditionsBurst = 20, 50
	countsRate, countsBurst         = 2, 10
	// relistPause is the time between two lists of all objects of a kind.
	relistPause = 10 * time.Minute
	// mostConflicts is how often in a row a write is retried at once after a conflict.
	mostConflicts = 3
	// contestPause is how long the manager of a field must not have written before the field
	// is taken over, and contestMost the longest pause between two attempts.
	contestPause, contestMost = 10 * time.Minute, time.Hour
)

// writer writes status while this replica is elected. All but its channels belongs to one
// goroutine.
type writer struct {
	c        *Controller
	reporter *failureReporter
	replicas *replicas
	// podsMoved and audited are told that there are other counts.
	podsMoved, audited <-chan struct{}

	conditions, counts *rate.Limiter

	kinds map[string]*kind
	known map[key]*entry
	// order is that of the objects of the report that it was made of.
	order   []*outcome
	orderOf *current
	unknown map[string]time.Time
	// outdated are the remarks on kinds, and contestants the managers, that an Event was
	// written about.
	outdated    map[string]string
	contestants map[string]bool

	numbers numbers
}

// kind is the state of all objects of a kind.
type kind struct {
	listed time.Time // zero until they were
	// next is the time of the next attempt, after failures in a row.
	next     time.Time
	failures int
}

// lead writes status until the context ends.
func (c *Controller) lead(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.cfg.Log.Info("status", "leader", c.cfg.Replica)
	c.metrics.leader.Set(1)
	defer c.metrics.leader.Set(0)
	reporter := &failureReporter{log: c.cfg.Log}
	w := &writer{
		c: c, reporter: reporter, replicas: newReplicas(c, reporter),
		conditions: rate.NewLimiter(conditionsRate, conditionsBurst), counts: rate.NewLimiter(countsRate, countsBurst),
		kinds: map[string]*kind{}, known: map[key]*entry{}, unknown: map[string]time.Time{},
		outdated: map[string]string{}, contestants: map[string]bool{},
		numbers: numbers{next: time.Now().Add(countsPause)},
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.replicas.follow(ctx) })
	if c.cfg.Pods != nil {
		w.podsMoved = c.cfg.Pods.Changed()
		wg.Go(func() { c.cfg.Pods.Run(ctx) })
	}
	if c.cfg.Audit != nil {
		w.audited = c.cfg.Audit.Changed()
		wg.Go(func() { c.cfg.Audit.Run(ctx) })
	}
	w.run(ctx)
	wg.Wait()
}

func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		next := w.reconcile(ctx)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-w.c.decided:
		case <-w.replicas.changed:
		case <-w.podsMoved:
			w.numbers.countSoon()
		case <-w.audited:
			w.numbers.countSoon()
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// agenda is the earliest time at which there is something to do.
type agenda struct{ next time.Time }

func (a *agenda) add(t time.Time) {
	if a.next.IsZero() || t.Before(a.next) {
		a.next = t
	}
}

// reconcile writes what is due, and returns when to reconcile next.
func (w *writer) reconcile(ctx context.Context) time.Time {
	a := &agenda{}
	a.add(time.Now().Add(relistPause))
	v, ok := w.view()
	if !ok {
		return a.next // whoever finds the replicas tells
	}
	for _, name := range w.listKinds() {
		w.relist(ctx, v, name, a)
	}
	for _, o := range w.order {
		if ctx.Err() != nil {
			return a.next
		}
		if w.isOutdated(v) {
			a.add(time.Now())
			return a.next
		}
		if w.isDue(v, o, a) {
			if err := w.conditions.Wait(ctx); err != nil {
				return a.next
			}
			w.write(ctx, v, o, nil)
			w.isDue(v, o, a) // when to try again, if that failed
		}
	}
	w.writeCounts(ctx, v, a)
	return a.next
}

// isOutdated reports whether there was a change since the view was made.
func (w *writer) isOutdated(v *view) bool {
	select {
	case <-w.replicas.changed:
		return true
	default:
		return w.c.history.get() != v.current
	}
}

// view returns the current view, and false until all replicas are known.
func (w *writer) view() (*view, bool) {
	others, ok := w.replicas.alive()
	now := time.Now()
	v := &view{current: w.c.history.get(), others: others, unknown: w.unknown, now: now}
	if w.orderOf != v.current {
		w.orderOf = v.current
		w.order = slices.SortedFunc(maps.Values(v.outcomes), func(a, b *outcome) int {
			return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		maps.DeleteFunc(w.known, func(k key, _ *entry) bool { return v.outcomes[k] == nil })
	}
	still := make(map[string]bool, len(others))
	for i := range others {
		lease := others[i].lease
		still[lease] = true
		if _, ours := v.lastSeen[others[i].digest]; ours {
			delete(w.unknown, lease)
		} else if w.unknown[lease].IsZero() {
			w.unknown[lease] = now
		}
	}
	maps.DeleteFunc(w.unknown, func(lease string, _ time.Time) bool { return !still[lease] })
	return v, ok
}

// listKinds returns the kinds of the objects, in order.
func (w *writer) listKinds() []string {
	var names []string
	for _, o := range w.order {
		if len(names) == 0 || names[len(names)-1] != o.Kind {
			names = append(names, o.Kind)
		}
	}
	return names
}

// relist reads all objects of a kind, if that is due.
func (w *writer) relist(ctx context.Context, v *view, name string, a *agenda) {
	k := w.kinds[name]
	if k == nil {
		k = &kind{}
		w.kinds[name] = k
	}
	now := time.Now()
	if !k.listed.IsZero() && now.Sub(k.listed) < relistPause {
		a.add(k.listed.Add(relistPause))
		return
	}
	if now.Before(k.next) {
		a.add(k.next)
		return
	}
	found := map[key]bool{}
	err := w.c.list(ctx, name, func(object *unstructured.Unstructured) {
		at := key{name, object.GetNamespace(), object.GetName()}
		if v.outcomes[at] == nil {
			return
		}
		found[at] = true
		e := w.known[at]
		if e == nil {
			e = &entry{}
			w.known[at] = e
		}
		e.observe(object)
		if degraded := find(e.fields.Conditions, v1alpha1.DegradedCondition); degraded != nil {
			if text := v.outdated[name]; text != "" && strings.Contains(degraded.Message, truncate.Bytes(text, maxRemark)) {
				w.outdated[name] = text
			}
		}
	})
	if err != nil {
		w.failed(ctx, k, name, "list "+resourceOf(name), err)
		a.add(k.next)
		return
	}
	w.recovered(k, "list "+resourceOf(name))
	k.listed = time.Now()
	a.add(k.listed.Add(relistPause))
	maps.DeleteFunc(w.known, func(at key, _ *entry) bool { return at.kind == name && !found[at] })
}

func resourceOf(kind string) string {
	resource, _ := meta.UnsafeGuessKindToResource(v1alpha1.GroupVersion.WithKind(kind))
	return resource.Resource
}

// isDue reports whether the conditions of an object must be written now. It adds a later
// time to the agenda.
func (w *writer) isDue(v *view, o *outcome, a *agenda) bool {
	k := w.kinds[o.Kind]
	if k.listed.IsZero() {
		return false // its list is on the agenda
	}
	now := time.Now()
	e := w.known[keyOf(&o.Object)]
	wanted := e == nil || e.stale || e.mustRead(o)
	if !wanted {
		if e.isOther(o) {
			return false // there will be a report of it as it is
		}
		conditions, again := v.conditions(o, &e.fields)
		if !again.IsZero() {
			a.add(again)
			return false
		}
		wanted = !v.isWritten(o, &e.fields, conditions)
	}
	if !wanted {
		return false
	}
	next := k.next
	if e != nil && e.next.After(next) {
		next = e.next
	}
	if now.Before(next) {
		a.add(next)
		return false
	}
	return true
}

// isWritten reports whether a status in the cluster is as it should be, but for counts.
func (v *view) isWritten(o *outcome, f *fields, conditions []metav1.Condition) bool {
	return f.ObservedGeneration == o.Generation && sameConditions(conditions, f.Conditions) && slices.Equal(v.rules(o, f), f.Rules)
}

// isOther reports whether the object in the cluster is not the one that the outcome is of.
func (e *entry) isOther(o *outcome) bool { return e.uid != o.UID || e.generation != o.Generation }

// mustRead reports whether the object may have become what the outcome is of since it
// was read. One that is newer than the outcome is not read again.
func (e *entry) mustRead(o *outcome) bool {
	return (e.uid != o.UID || e.generation < o.Generation) && e.readFor != version{o.UID, o.Generation}
}

// write updates the status of an object, with counts if there are any. It reads the object
// if it may have changed.
func (w *writer) write(ctx context.Context, v *view, o *outcome, counts *fields) {
	at := keyOf(&o.Object)
	e := w.known[at]
	if e == nil {
		e = &entry{stale: true}
		w.known[at] = e
	}
	for tries := 1; ; tries++ {
		if e.stale || e.mustRead(o) {
			if object := w.readAgain(ctx, o, e); object == nil {
				return
			}
		}
		if e.isOther(o) {
			return
		}
		conditions, again := v.conditions(o, &e.fields)
		if !again.IsZero() {
			return
		}
		f := &fields{
			ObjectStatus: v1alpha1.ObjectStatus{
				ObservedGeneration: o.Generation, Conditions: withTransitionTimes(conditions, e.fields.Conditions, w.c.cfg.Now()),
			},
			Requests: e.fields.Requests, Audit: e.fields.Audit, Pods: e.fields.Pods, Rules: v.rules(o, &e.fields),
		}
		if counts != nil {
			f.Requests, f.Audit, f.Pods = counts.Requests, counts.Audit, counts.Pods
		} else if v.isWritten(o, &e.fields, conditions) {
			return // another replica wrote it
		}
		if !w.send(ctx, v, o, e, f) || tries == mostConflicts {
			return
		}
	}
}

// readAgain reads an object, and returns nil if that cannot be done, or there is
// none.
func (w *writer) readAgain(ctx context.Context, o *outcome, e *entry) *unstructured.Unstructured {
	k := w.kinds[o.Kind]
	object, err := w.c.read(ctx, keyOf(&o.Object))
	switch {
	case err == nil:
		w.recovered(k, "get "+resourceOf(o.Kind))
		e.observe(object)
		e.readFor = version{o.UID, o.Generation}
		return object
	case apierr.Classify(err) == apierr.NotFound:
		// It was removed, and a report will say so.
		*e = entry{memory: memory{readFor: version{o.UID, o.Generation}}}
		return nil
	default:
		w.failed(ctx, k, o.Kind, "get "+resourceOf(o.Kind), err)
		return nil
	}
}

// send writes a status, and reports whether to retry at once.
func (w *writer) send(ctx context.Context, v *view, o *outcome, e *entry, f *fields) (again bool) {
	k := w.kinds[o.Kind]
	what := "write the status of " + resourceOf(o.Kind)
	object, err := w.c.apply(ctx, keyOf(&o.Object), e, f, false)
	if manager, is := conflictingManager(err); is {
		w.c.metrics.count(contested)
		object, err = w.contested(ctx, o, e, f, manager)
		if object == nil && err == nil {
			return false // later
		}
	}
	switch class := apierr.Classify(err); {
	case err == nil:
		w.c.metrics.count(written)
		w.recovered(k, what)
		before := e.fields
		e.observe(object)
		e.failures, e.hasNoStatus, e.next = 0, false, time.Time{}
		if f.Requests != before.Requests || f.Audit != before.Audit || f.Pods != before.Pods {
			e.countedAt = time.Now()
		}
		w.announce(ctx, v, o, &before, f.Conditions)
		return false
	case class == apierr.Conflict:
		w.c.metrics.count(conflict)
		e.stale = true
		w.postpone(e, time.Second) // if it is not tried at once
		return true
	case class == apierr.NotFound && !e.hasNoStatus:
		// Either the object was removed, or it has no status.
		e.hasNoStatus, e.stale = true, true
		return true
	case class == apierr.NotFound, class == apierr.Unserved:
		err = fmt.Errorf("%w: %w", errNoStatus, err)
	}
	w.c.metrics.count(failed)
	w.failed(ctx, k, o.Kind, what, err)
	// The others of its kind go first next time: it may be to blame.
	e.failures++
	e.stale = true
	w.postpone(e, retryDelay(classify(err), e.failures)+time.Second)
	return false
}

func (w *writer) postpone(e *entry, d time.Duration) { e.next = time.Now().Add(d) }

// contested handles another manager that owns a field of ours. A manager that has not
// written for contestPause is taken to be gone, and its fields are taken over. If it writes
// after that, its fields are never taken over again.
func (w *writer) contested(ctx context.Context, o *outcome, e *entry, f *fields, manager string) (*unstructured.Unstructured, error) {
	if !w.contestants[manager] {
		w.contestants[manager] = true
		text := fmt.Sprintf("the status is written by %q too", truncate.Bytes(manager, longestError))
		hint := "look who that is: kubectl get --show-managed-fields -o yaml; it is left alone, and its fields are taken over if it has not written for ten minutes"
		if install, ours := strings.CutPrefix(manager, managerPrefix); ours {
			hint = fmt.Sprintf("another install of Gatehouse, namespace/name %q, runs in this cluster: remove one of them; it is left alone, and its status is taken over if it has not written for ten minutes",
				install)
		}
		w.c.cfg.Log.Warn("status", "error", text, "object", o.Kind+" "+o.Name, "hint", hint)
		w.c.cfg.Record(reference(&o.Object), true, "StatusContested", text+" (hint: "+hint+")")
	}
	object := w.readAgain(ctx, o, e)
	if object == nil {
		return nil, nil //nolint:nilnil // it is told, and tried again
	}
	if e.isOther(o) {
		return nil, nil //nolint:nilnil // a report will come
	}
	now, wrote := time.Now(), lastWrite(object, manager)
	known := e.managerConflict
	if known == nil || known.manager != manager {
		e.managerConflict = &managerConflict{manager: manager, wrote: wrote, since: now}
		w.postpone(e, contestPause)
		return nil, nil //nolint:nilnil // as above
	}
	if !known.wrote.Equal(wrote) {
		known.wrote, known.since = wrote, now
		known.alive = known.taken
	} else if !known.alive && now.Sub(known.since) >= contestPause {
		known.taken = true
		w.c.cfg.Log.Info("status", "takenOverFrom", truncate.Bytes(manager, longestError), "object", o.Kind+" "+o.Name)
		return w.c.apply(ctx, keyOf(&o.Object), e, f, true)
	}
	known.tries++
	w.postpone(e, min(contestMost, contestPause<<min(known.tries-1, 3)))
	return nil, nil //nolint:nilnil // as above
}

// failed logs a failure of a kind, and postpones all writes of the kind.
func (w *writer) failed(ctx context.Context, k *kind, name, what string, err error) {
	class := classify(err)
	k.failures++
	k.next = time.Now().Add(retryDelay(class, k.failures))
	resource := resourceOf(name)
	hint := "it is tried again; only status is late, what is decided does not depend on it"
	switch class { //nolint:exhaustive // the others need nothing but time
	case apierr.Forbidden:
		hint = apierr.GrantHint("a ClusterRole", "get and list", fmt.Sprintf("%s and patch of %s/status in gatehouse.dev; nothing but status depends on it", resource, resource))
	case apierr.Unserved:
		hint = fmt.Sprintf("apply the CustomResourceDefinition %s.gatehouse.dev of this version of Gatehouse; status is tried again", resource)
	case apierr.Invalid:
		hint = fmt.Sprintf("the CustomResourceDefinition %s.gatehouse.dev may be of another version: apply that of this version of Gatehouse; status is tried again", resource)
	default:
	}
	w.reporter.failed(ctx, what, class, err, hint)
}

func (w *writer) recovered(k *kind, what string) {
	k.failures, k.next = 0, time.Time{}
	w.reporter.recovered(what)
}

// stamp returns a time with the precision of a status.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
