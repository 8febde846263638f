package status

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// hurryPause is between two looks at counts that change all the time.
	hurryPause = 5 * time.Second
	// auditAge is how old the time of an audit may be in a status whose numbers stay the same.
	auditAge = 24 * time.Hour
)

// numbers are what the counts of objects are made of.
type numbers struct {
	// next is when to count again, and last when that was done.
	next, last time.Time
	// policies are those of all replicas that are waited for, since the first of them
	// started.
	policies map[string]PolicyCount
	since    time.Time
	audits   map[string]v1alpha1.PolicyAudit
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
			if counts := w.countsOf(v, o); counts != nil {
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
	if w.c.cfg.Audit != nil {
		n.audits = w.c.cfg.Audit.Counts()
	}
	n.waiting = n.waiting[:0]
	for _, o := range w.order {
		if w.isCountable(o) && w.countsOf(v, o) != nil {
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
func (w *writer) countsOf(v *view, o *outcome) *fields {
	found := &w.known[keyOf(&o.Object)].fields
	switch o.Kind {
	case "AdmissionPolicy":
		requests, audit := w.requestsOf(o, found), w.auditOf(v, o, found)
		if requests == found.Requests && audit == found.Audit {
			return nil
		}
		return &fields{Requests: requests, Audit: audit}
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

// requestsOf are the counts of requests: those of the cluster if they are the same.
func (w *writer) requestsOf(o *outcome, found *fields) *v1alpha1.PolicyCounts {
	count, since := w.numbers.policies[o.Name], stamp(w.numbers.since)
	if r := found.Requests; r == nil && count == (PolicyCount{}) ||
		r != nil && r.Evaluations == count.Evaluations && r.Refusals == count.Refusals && r.Since.Time.Equal(since.Time) {
		return found.Requests
	}
	return &v1alpha1.PolicyCounts{Evaluations: count.Evaluations, Refusals: count.Refusals, Since: since}
}

// auditOf is the result of the audit: that of the cluster if it is the same, and not old. Without
// audits there is none. An outdated definition may not have the field, and then the API server
// refuses the whole status.
func (w *writer) auditOf(v *view, o *outcome, found *fields) *v1alpha1.PolicyAudit {
	if w.c.cfg.Audit == nil {
		return nil
	}
	last, audited := w.numbers.audits[o.Name]
	if !audited || v.outdated[o.Kind] != "" {
		return found.Audit
	}
	if was := found.Audit; was != nil {
		same := *was
		same.AuditedAt = last.AuditedAt
		if equality.Semantic.DeepEqual(same, last) && last.AuditedAt.Sub(was.AuditedAt.Time) < auditAge {
			return was
		}
	}
	return &last
}
