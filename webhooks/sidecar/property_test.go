package sidecar_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// fixtures are the pods with which upstream tests the Pod Security Standards, by
// path: they use about every field that pods have. Most versions have the same
// pods, which are left out.
func securityFixtures(t testing.TB) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	all, seen, files := make(map[string]string), make(map[string]bool), 0
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "test", "testdata"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if files++; err != nil || seen[string(text)] {
			return err
		}
		seen[string(text)] = true
		all[path] = toJSON(t, string(text))
		return nil
	})
	if err != nil || files < 4500 || len(all) < 300 {
		t.Fatalf("%d files, %d pods: %v", files, len(all), err)
	}
	return all
}

// counts counts what became of profiles.
type counts struct {
	sync.Mutex
	reasons                        map[sidecar.Reason]int
	patched, refused, failed, pods int
}

func (c *counts) add(d sidecar.Decision) {
	c.Lock()
	defer c.Unlock()
	if c.reasons == nil {
		c.reasons = make(map[sidecar.Reason]int)
	}
	c.pods++
	switch {
	case d.Err != nil:
		c.failed++
	case len(d.Refusals) > 0:
		c.refused++
	case d.Patches != nil:
		c.patched++
	}
	for _, v := range d.Verdicts {
		c.reasons[v.Reason]++
	}
}

// want fails unless every one of the reasons was given: a property that holds of
// nothing says nothing.
func (c *counts) want(t *testing.T, share int, reasons ...sidecar.Reason) {
	t.Helper()
	t.Logf("%d pods: %d patched, %d refused, %d failed; %v", c.pods, c.patched, c.refused, c.failed, c.reasons)
	if c.patched*100 < c.pods*share {
		t.Errorf("%d of %d pods are patched, and at least %d %% should be", c.patched, c.pods, share)
	}
	for _, reason := range reasons {
		if c.reasons[reason] == 0 {
			t.Errorf("no profile is %s", reason)
		}
	}
}

// TestPodSecurityFixtures decides about upstream's pods, each in a namespace and
// under a set of profiles that change from pod to pod.
func TestPodSecurityFixtures(t *testing.T) {
	t.Parallel()
	all := checkers(t)
	pods := securityFixtures(t)
	places := someNamespaces()
	var count counts
	for i, path := range slices.Sorted(maps.Keys(pods)) {
		for k := range 2 {
			w := all[(i*2+k*5)%len(all)]
			namespace := places[(i+k)%len(places)]
			count.add(w.all(t, sidecar.ForPod(namespace, []byte(pods[path]))))
			if t.Failed() {
				t.Fatalf("%s in namespace %s, profiles %s", path, namespace, w.name)
			}
		}
	}
	count.want(t, 60, sidecar.Applied, sidecar.HostNetwork, sidecar.HostProcess, sidecar.PodSecurity, sidecar.NotAsked)
}

// TestRandomPods decides about pods that nobody would write.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	const each = 40
	places := someNamespaces()
	var count counts
	t.Run("", func(t *testing.T) {
		for i, check := range checkers(t) {
			t.Run(check.name, func(t *testing.T) {
				t.Parallel()
				// Other pods in every world.
				for seed := uint64(i) * each; seed < uint64(i+1)*each; seed++ { // #nosec G115 -- not negative
					g := newGenerator(seed, seed%3 == 0)
					pod, namespace := g.pod(), places[g.IntN(len(places))]
					count.add(check.all(t, sidecar.ForPod(namespace, []byte(pod))))
					if t.Failed() {
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

// TestTemplateIsDecidedLikeItsPod decides about the template in a workload, as
// is done offline, and about the pod that its controller makes of it.
func TestTemplateIsDecidedLikeItsPod(t *testing.T) {
	t.Parallel()
	patched := 0
	for _, check := range checkers(t) {
		for seed := range uint64(40) {
			g := newGenerator(seed, false)
			pod := asObject(treeOf(t, []byte(g.pod())))
			metadata := asObject(pod["metadata"])
			pod["metadata"] = metadata
			// What the API server hands on has no null.
			maps.DeleteFunc(metadata, func(name string, v any) bool {
				return v == nil || name == "name" || name == "generateName" || name == "ownerReferences"
			})
			workload := fmt.Sprintf("checkout-%d", seed)
			template := asJSON(t, pod)
			offline, _ := check.decide(t, forOwned("shop", string(template), "Deployment/"+workload))
			metadata["generateName"] = workload + "-7d4b9c6f5d-"
			metadata["namespace"] = "shop"
			metadata["labels"] = withMember(metadata["labels"], "pod-template-hash", "7d4b9c6f5d")
			metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload + "-7d4b9c6f5d", "controller": true}}
			online, _ := check.decide(t, sidecar.ForPod("shop", asJSON(t, pod)))
			if len(offline.Patches) > 0 {
				patched++
			}
			sameDecision(t, "the decision about the pod", withoutMetadata(offline), withoutMetadata(online))
			if t.Failed() {
				t.Fatalf("profiles %s, seed %d: %s", check.name, seed, template)
			}
		}
	}
	if patched < 200 {
		t.Errorf("%d templates are patched", patched)
	}
}

// withoutMetadata returns a decision without what depends on whether the pod has
// labels.
func withoutMetadata(d sidecar.Decision) sidecar.Decision {
	d.Patches = slices.DeleteFunc(slices.Clone(d.Patches), func(op jsonpatch.Operation) bool { return strings.HasPrefix(op.Path, "/metadata") })
	return d
}
