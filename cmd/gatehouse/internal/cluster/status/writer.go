package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// relistPause is the time between two lists of all objects of a kind, and page how many objects are
	// read at a time.
	relistPause, page = 10 * time.Minute, 250
	// pollPause is the time between two lists of the replicas' reports, and hurryPause that while they are
	// expected to change, which is for hurryTime after a change.
	pollPause, hurryPause, hurryTime = 10 * time.Second, time.Second, time.Minute
)

// result is what became of a write of a status, the value of a label.
type result string

const (
	written result = "written"
	// conflict is an object that changed in between; it is reconciled again.
	conflict result = "conflict"
	failed   result = "failed"
)

var errNoStatus = errors.New("the kind has no subresource status")

// writer writes status while this replica is elected. It belongs to one goroutine.
type writer struct {
	c *Controller
	// backoff delays attempts after failures, by kind and by object.
	backoff  *flowcontrol.Backoff
	replicas map[string]*replica // by the name of the Lease
	listed   map[string]time.Time
	known    map[key]*entry
	next     time.Time
}

// Lead writes status until the context ends. It is called whenever this replica is elected, and never while it
// runs.
func (c *Controller) Lead(ctx context.Context) {
	w := &writer{
		// The jitter keeps objects from being tried in step.
		c: c, backoff: flowcontrol.NewBackOffWithJitter(firstRetry, maxRetry, 0.2), replicas: map[string]*replica{},
		listed: map[string]time.Time{}, known: map[key]*entry{},
	}
	for ctx.Err() == nil {
		w.next = time.Now().Add(pollPause)
		if current := c.current(); current != nil {
			w.reconcile(ctx, current)
		}
		timer := time.NewTimer(time.Until(w.next))
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// wakeAt makes the next reconciliation begin at a time at the latest.
func (w *writer) wakeAt(t time.Time) {
	if t.Before(w.next) {
		w.next = t
	}
}

// retry postpones the next attempt at something, longer each time.
func (w *writer) retry(id string) {
	w.backoff.Next(id, time.Now())
	w.wakeAt(time.Now().Add(w.backoff.Get(id)))
}

// isWaiting reports whether the next attempt at something is not due.
func (w *writer) isWaiting(id string) bool { return w.backoff.IsInBackOffSinceUpdate(id, time.Now()) }

// reconcile writes what is due.
func (w *writer) reconcile(ctx context.Context, current *current) {
	what := fmt.Sprintf("list the Leases with label %s=%s in namespace %q, by which replicas report", reportLabel, install.DefaultGroup, w.c.cfg.Namespace)
	if w.isWaiting(what) {
		return
	}
	replicas, err := w.c.listReplicas(ctx, w.c.cfg.Leases, w.replicas, current.Digest, func(lease *coordinationv1.Lease) { w.removeStale(ctx, lease) })
	if err != nil {
		class := apierr.Classify(err).Coarse()
		w.c.fail(ctx, what, class, err, w.c.leaseHint(class, "no status is written"))
		w.retry(what)
		return
	}
	w.recover(what, what)
	w.replicas = replicas
	v := &view{current: current, now: time.Now()}
	for _, one := range w.replicas {
		if one.isAlive(v.now) {
			v.others = append(v.others, one)
			if recent := current.at; !one.differs.IsZero() && (v.now.Sub(recent) < hurryTime || v.now.Sub(one.differs) < hurryTime) {
				w.wakeAt(v.now.Add(hurryPause))
			}
		}
	}
	slices.SortFunc(v.others, func(a, b *replica) int { return cmp.Compare(a.name, b.name) })
	for k := range w.known {
		if v.byKey[k] == nil {
			delete(w.known, k)
			w.backoff.DeleteEntry(idOf(k))
		}
	}
	for _, o := range v.outcomes {
		if ctx.Err() != nil || w.c.current() != current {
			w.wakeAt(time.Now())
			return
		}
		if !w.isWaiting(o.Kind) && w.list(ctx, v, o.Kind) && !w.isWaiting(idOf(keyOf(&o.Object))) {
			w.update(ctx, v, o)
		}
	}
}

// idOf identifies an object in the retries.
func idOf(k key) string { return k.kind + "/" + k.namespace + "/" + k.name }

func resourceOf(kind string) string {
	resource, _ := meta.UnsafeGuessKindToResource(v1alpha1.GroupVersion.WithKind(kind))
	return resource.Resource
}

func (w *writer) resource(kind, namespace string) dynamic.ResourceInterface {
	all := w.c.cfg.Client.Resource(v1alpha1.GroupVersion.WithResource(resourceOf(kind)))
	if namespace == "" {
		return all
	}
	return all.Namespace(namespace)
}

// list reads all objects of a kind, if that is due, and reports whether they are known.
func (w *writer) list(ctx context.Context, v *view, kind string) bool {
	if at, is := w.listed[kind]; is && time.Since(at) < relistPause {
		return true
	}
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return w.resource(kind, "").List(ctx, o)
	})
	list.PageSize = page
	found := map[key]bool{}
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if object, ok := item.(*unstructured.Unstructured); ok {
			if k := (key{kind, object.GetNamespace(), object.GetName()}); v.byKey[k] != nil {
				found[k] = true
				w.entry(k).observe(object)
			}
		}
		return nil
	})
	what := "list " + resourceOf(kind)
	if err != nil {
		w.failed(ctx, kind, what, err)
		return false
	}
	w.recover(kind, what)
	w.listed[kind] = time.Now()
	maps.DeleteFunc(w.known, func(k key, _ *entry) bool { return k.kind == kind && !found[k] })
	return true
}

func (w *writer) entry(k key) *entry {
	if w.known[k] == nil {
		w.known[k] = &entry{stale: true}
	}
	return w.known[k]
}

// update writes the status of an object if it is not as it should be.
func (w *writer) update(ctx context.Context, v *view, o *outcome) {
	k := keyOf(&o.Object)
	e := w.entry(k)
	if e.mustRead(o) && !w.read(ctx, o, e) || e.version != versionOf(o) {
		return // there will be a report of it as it is
	}
	for _, at := range []time.Time{o.Begins, o.Expires, o.Remove} {
		if at.After(v.now) {
			w.wakeAt(at)
		}
	}
	if !o.Remove.IsZero() && !v.now.Before(o.Remove) {
		w.remove(ctx, o, e)
		return
	}
	f, again := w.wanted(v, o, &e.fields)
	if !again.IsZero() {
		w.wakeAt(again)
		return
	}
	if f.isWritten(&e.fields) {
		return
	}
	outcome := written
	what := "write the status of " + resourceOf(o.Kind)
	object, err := w.apply(ctx, o, e, f)
	class := apierr.Classify(err)
	if class == apierr.NotFound {
		// Either the object was removed, or it has no status.
		if !w.read(ctx, o, e) {
			return
		}
		class, err = apierr.Unserved, fmt.Errorf("%w: %w", errNoStatus, err)
	}
	switch class { //nolint:exhaustive // the others are failures
	case apierr.None:
		before := e.fields
		e.observe(object)
		w.recover(o.Kind, what)
		w.backoff.DeleteEntry(idOf(k))
		w.announce(o, &before, f)
	case apierr.Conflict:
		outcome, e.stale = conflict, true
		w.retry(idOf(k))
	default:
		outcome, e.stale = failed, true
		// The others of its kind go first next time: it may be to blame.
		w.failed(ctx, o.Kind, what, err)
		w.retry(idOf(k))
		w.retry(idOf(k))
	}
	w.c.writes.WithLabelValues(string(outcome)).Inc()
}

// remove deletes an object whose time has come, if it is still as it was read.
func (w *writer) remove(ctx context.Context, o *outcome, e *entry) {
	what := "delete " + resourceOf(o.Kind) + " that ended"
	err := w.resource(o.Kind, o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &e.resourceVersion},
	})
	switch class := apierr.Classify(err); class { //nolint:exhaustive // the others are failures
	case apierr.None, apierr.NotFound:
		w.recover(idOf(keyOf(&o.Object)), what)
	case apierr.Conflict:
		e.stale = true
		w.retry(idOf(keyOf(&o.Object)))
	default:
		w.retry(idOf(keyOf(&o.Object)))
		hint := "it is tried again; they have no effect meanwhile"
		if class.Coarse() == apierr.Forbidden {
			hint = apierr.GrantHint("the ClusterRole gatehouse-resources", "delete", resourceOf(o.Kind)+" in gatehouse.dev; they have no effect meanwhile")
		}
		w.c.fail(ctx, what, class.Coarse(), err, hint)
	}
}

// read reads an object, and reports whether it exists.
func (w *writer) read(ctx context.Context, o *outcome, e *entry) bool {
	what := "get " + resourceOf(o.Kind)
	object, err := w.resource(o.Kind, o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		w.c.problems.Recover(what)
		e.observe(object)
		e.readFor = versionOf(o)
	case apierr.Classify(err) == apierr.NotFound:
		*e = entry{readFor: versionOf(o)} // a report will say that it was removed
	default:
		w.failed(ctx, o.Kind, what, err)
	}
	return err == nil
}

// announce writes Events about what has changed with a write.
func (w *writer) announce(o *outcome, before, after *fields) {
	was, is := find(before.Conditions, v1alpha1.CompiledCondition), find(after.Conditions, v1alpha1.CompiledCondition)
	switch {
	case is.Status == metav1.ConditionFalse && (was.Status != is.Status || was.Message != is.Message || was.ObservedGeneration != is.ObservedGeneration):
		w.c.cfg.Record(reference(o), true, is.Reason, is.Message)
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		w.c.cfg.Record(reference(o), false, v1alpha1.CompiledReason, "Gatehouse uses the object again: "+is.Message)
	}
	switch {
	case before.Phase == after.Phase:
	case after.Phase == v1alpha1.GrantActive:
		w.c.cfg.Record(reference(o), false, v1alpha1.GrantStartedReason, "Gatehouse gives "+o.Gives+" until "+stamp(o.Expires).UTC().Format(time.RFC3339)+".")
	case before.Phase == v1alpha1.GrantActive:
		w.c.cfg.Record(reference(o), false, v1alpha1.GrantEndedReason, "Gatehouse does not give "+o.Gives+" any more. API servers forget it when their cache of tokens ends.")
	}
	if was, is = find(before.Conditions, v1alpha1.NativeCondition), find(after.Conditions, v1alpha1.NativeCondition); was.Status == metav1.ConditionTrue && is.Status != was.Status {
		w.c.cfg.Record(reference(o), true, cmp.Or(is.Reason, v1alpha1.OutOfDateReason), cmp.Or(is.Message, "The API server does not enforce the policy itself any more: its compiled documents are gone."))
	}
	was, is = find(before.Conditions, v1alpha1.DegradedCondition), find(after.Conditions, v1alpha1.DegradedCondition)
	switch is.Reason {
	case v1alpha1.PreviousVersionReason, v1alpha1.NotSentReason, v1alpha1.ParamsNotFoundReason:
		if was.Message != is.Message {
			w.c.cfg.Record(reference(o), true, is.Reason, is.Message)
		}
	}
}

// reference returns the object of an Event.
func reference(o *outcome) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}
}

// failed logs a failure of a kind, and postpones all requests about the kind.
func (w *writer) failed(ctx context.Context, kind, what string, err error) {
	w.retry(kind)
	class, resource := apierr.Classify(err).Coarse(), resourceOf(kind)
	if errors.Is(err, errNoStatus) {
		class = apierr.Unserved
	}
	hint := "Gatehouse tries again; decisions do not depend on the status"
	switch class { //nolint:exhaustive // the others need nothing but time
	case apierr.Forbidden:
		hint = apierr.GrantHint("the ClusterRole gatehouse-resources", "get and list", fmt.Sprintf("%s and patch of %s/status in gatehouse.dev; decisions do not depend on the status", resource, resource))
	case apierr.Unserved:
		hint = fmt.Sprintf("apply the CustomResourceDefinition %s.gatehouse.dev of this version of Gatehouse, which then tries again", resource)
	case apierr.Invalid:
		hint = fmt.Sprintf("the CustomResourceDefinition %s.gatehouse.dev may be of another version: apply that of this version of Gatehouse, which then tries again", resource)
	}
	w.c.fail(ctx, what, class, err, hint)
}

// recover ends the pauses after failures.
func (w *writer) recover(id, what string) {
	w.backoff.DeleteEntry(id)
	w.c.problems.Recover(what)
}
