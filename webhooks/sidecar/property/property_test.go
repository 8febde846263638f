package property_test

import (
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// counts counts what became of profiles.
type counts struct {
	sync.Mutex
	reasons       map[sidecar.Reason]int
	patched, pods int
}

func (c *counts) add(d sidecar.Decision) {
	c.Lock()
	defer c.Unlock()
	c.pods++
	if d.Patches != nil {
		c.patched++
	}
	for _, v := range d.Verdicts {
		c.reasons[v.Reason]++
	}
}

// want fails unless a share of the pods is patched and every one of the reasons was given: a property that
// holds of nothing says nothing.
func (c *counts) want(t *testing.T, percent int, reasons ...sidecar.Reason) {
	t.Helper()
	t.Logf("%d pods: %d patched; %v", c.pods, c.patched, c.reasons)
	if c.patched*100 < c.pods*percent {
		t.Errorf("%d of %d pods are patched, and at least %d %% should be", c.patched, c.pods, percent)
	}
	for _, reason := range reasons {
		if c.reasons[reason] == 0 {
			t.Errorf("no profile is %s", reason)
		}
	}
}

// TestRandomPods decides about pods that nobody would write.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	const each = 40
	count := counts{reasons: map[sidecar.Reason]int{}}
	t.Run("", func(t *testing.T) {
		for i, w := range worlds(t) {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				// Other pods in every world.
				for seed := uint64(i) * each; seed < uint64(i+1)*each; seed++ { // #nosec G115 -- not negative
					g := newGenerator(seed, seed%3 == 0)
					pod, namespace := g.pod(), g.one(someNamespaces...)
					if count.add(w.all(t, sidecar.ForPod(namespace, []byte(pod)))); t.Failed() {
						t.Fatalf("seed %d, namespace %s: %s", seed, namespace, pod)
					}
				}
			})
		}
	})
	count.want(t, 25,
		sidecar.ObjectNotSelected, sidecar.Declined, sidecar.DeclinedByNamespace, sidecar.NotAsked, sidecar.NotInRollout, sidecar.HostNetwork,
		sidecar.MustEnd, sidecar.ConditionFalse, sidecar.Replaced, sidecar.InvalidParameter, sidecar.Conflict, sidecar.PodSecurity,
		sidecar.Refused, sidecar.AlreadyThere, sidecar.Applied,
	)
}
