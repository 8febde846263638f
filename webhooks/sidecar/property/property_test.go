package property_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

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

// TestPodSecurityFixtures decides about the pods with which upstream tests the Pod Security Standards: they use about
// every field that pods have. Each is in a namespace and under a set of profiles that change from pod to pod.
func TestPodSecurityFixtures(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{} // Most versions have the same pods.
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "test", "testdata"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			pods[string(text)] = path
		}
		return err
	})
	if err != nil || len(pods) < 300 {
		t.Fatalf("%d pods: %v", len(pods), err)
	}
	all := worlds(t)
	count := counts{reasons: map[sidecar.Reason]int{}}
	for i, text := range slices.Sorted(maps.Keys(pods)) {
		pod, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		w, namespace := all[i%len(all)], someNamespaces[i%len(someNamespaces)]
		if count.add(w.all(t, sidecar.ForPod(namespace, pod))); t.Failed() {
			t.Fatalf("%s in namespace %s, profiles %s", pods[text], namespace, w.name)
		}
	}
	count.want(t, 50, sidecar.Applied, sidecar.HostNetwork, sidecar.HostProcess, sidecar.PodSecurity, sidecar.NotAsked)
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
