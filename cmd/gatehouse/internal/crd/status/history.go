package status

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// remembered is how many digests of this replica are known at most: enough for
// replicas that are some changes behind.
const remembered = 64

// key is what an object is found by.
type key struct{ kind, namespace, name string }

func keyOf(o *Object) key { return key{o.Kind, o.Namespace, o.Name} }

// current is the last report of this replica, and since when it has been so.
type current struct {
	digest   string
	outdated map[string]string
	outcomes map[key]*outcome
	// lastSeen is at which of our reports each digest was last ours.
	lastSeen map[string]uint64
}

// outcome is that of an object, and since which of our reports its version is the
// one that is in use.
type outcome struct {
	*Outcome
	since   uint64
	sinceAt time.Time
}

// history knows how the reports of this replica followed each other. So a replica
// with a digest that was ours a moment ago is known to use the same version of each
// object that did not change since. It is safe for concurrent use.
type history struct {
	mu     sync.Mutex
	number uint64
	last   *current // never changed once it is here
}

func newHistory() *history { return &history{last: &current{}} }

func (h *history) add(r *Report, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	next := &current{
		digest: r.Digest, outdated: r.Outdated, outcomes: make(map[key]*outcome, len(r.Outcomes)), lastSeen: maps.Clone(h.last.lastSeen),
	}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		kept := &outcome{Outcome: o, since: h.number, sinceAt: now}
		if before := h.last.outcomes[keyOf(&o.Object)]; before != nil && sameVersion(before.Outcome, o) {
			kept.since, kept.sinceAt = before.since, before.sinceAt
		}
		next.outcomes[keyOf(&o.Object)] = kept
	}
	if next.lastSeen == nil {
		next.lastSeen = map[string]uint64{}
	}
	next.lastSeen[r.Digest] = h.number
	if len(next.lastSeen) > remembered {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(next.lastSeen)), func(a, b string) int { return cmp.Compare(next.lastSeen[a], next.lastSeen[b]) })
		delete(next.lastSeen, oldest)
	}
	h.last = next
}

func (h *history) get() *current {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// sameVersion reports whether two outcomes are of the same version of an object, used
// in the same way.
func sameVersion(a, b *Outcome) bool {
	type version struct {
		uid        types.UID
		generation int64
		use        Use
	}
	return version{a.UID, a.Generation, a.Use} == version{b.UID, b.Generation, b.Use}
}
