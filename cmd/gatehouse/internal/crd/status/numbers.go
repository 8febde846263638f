package status

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// hurryPause is between two looks at counts that change all the time.
const hurryPause = 5 * time.Second

// numbers are what the counts of objects are made of.
type numbers struct {
	// next is when to count again, and last when that was done.
	next, last time.Time
	// policies are those of all replicas that are waited for, since the first of them
	// started.
	policies map[string]PolicyCount
	since    time.Time
	pods     map[string]v1alpha1.SidecarPodCounts
	// waiting are the objects whose counts may differ, the one first that was written
	// the longest ago.
	waiting []key
}

// countSoon has counts looked at soon, because there are others.
func (n *numbers) countSoon() {
	if soon := n.last.Add(hurryPause); soon.Before(n.next) {
		n.next = soon
	}
}

// writeCounts brings counts up to date: those of an object once a minute at most.
func (w *writer) writeCounts(ctx context.Context, v *view, a *agenda) {
	n := &w.numbers
	if now := time.Now(); !now.Before(n.next) {
		n.next, n.last = now.Add(countsPause), now
		w.count(v)
	}
	a.add(n.next)
	for len(n.waiting) > 0 && ctx.Err() == nil {
		o := v.outcomes[n.waiting[0]]
		if o != nil && w.isCountable(o) {
			if next := w.known[keyOf(&o.Object)].countedAt.Add(countsPause); time.Now().Before(next) {
				a.add(next)
				return // those behind were written later
			}
			if counts := w.countsOf(o); counts != nil {
				if !w.counts.Allow() {
					a.add(time.Now().Add(time.Second / countsRate))
					return
				}
				w.write(ctx, v, o, counts)
			}
		}
		n.waiting = n.waiting[1:]
	}
}

// count adds up what the replicas have counted.
func (w *writer) count(v *view) {
	n := &w.numbers
	n.policies, n.since = map[string]PolicyCount{}, w.c.started
	maps.Copy(n.policies, w.c.cfg.Policies())
	for i := range v.others {
		for name, count := range v.others[i].counts {
			n.policies[name] = n.policies[name].plus(count)
		}
		if v.others[i].started.Before(n.since) {
			n.since = v.others[i].started
		}
	}
	if w.c.cfg.Pods != nil {
		n.pods = w.c.cfg.Pods.Counts()
	}
	n.waiting = n.waiting[:0]
	for _, o := range w.order {
		if w.isCountable(o) && w.countsOf(o) != nil {
			n.waiting = append(n.waiting, keyOf(&o.Object))
		}
	}
	slices.SortStableFunc(n.waiting, func(a, b key) int { return w.known[a].countedAt.Compare(w.known[b].countedAt) })
}

// isCountable reports whether counts of an object can be written: it has conditions, and
// nothing keeps it from being written.
func (w *writer) isCountable(o *outcome) bool {
	e, k, now := w.known[keyOf(&o.Object)], w.kinds[o.Kind], time.Now()
	return e != nil && k != nil && !e.stale && !e.isOther(o) && !now.Before(e.next) && !now.Before(k.next) &&
		e.fields.ObservedGeneration == o.Generation
}

// countsOf are the counts of an object if they differ from those of the cluster, else
// nil.
func (w *writer) countsOf(o *outcome) *fields {
	found := &w.known[keyOf(&o.Object)].fields
	switch o.Kind {
	case "AdmissionPolicy":
		count, since := w.numbers.policies[o.Name], stamp(w.numbers.since)
		if found.Requests == nil && count == (PolicyCount{}) {
			return nil
		}
		if r := found.Requests; r != nil && r.Evaluations == count.Evaluations && r.Refusals == count.Refusals && r.Since.Time.Equal(since.Time) {
			return nil
		}
		return &fields{Requests: &v1alpha1.PolicyCounts{Evaluations: count.Evaluations, Refusals: count.Refusals, Since: since}}
	case "SidecarProfile":
		count, counted := w.numbers.pods[o.Name]
		if p := found.Pods; !counted || p != nil && p.Matched == count.Matched && p.Injected == count.Injected && p.Stale == count.Stale {
			return nil
		}
		count.CountedAt = stamp(count.CountedAt.Time)
		return &fields{Pods: &count}
	default:
		return nil
	}
}
