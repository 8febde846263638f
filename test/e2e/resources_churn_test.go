package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// lastDigest is that of the active configuration, and how many there were.
func (c *resourceInstall) lastDigest(t *testing.T) (digest string, n int) {
	t.Helper()
	for _, line := range c.lines(t) {
		if line.Message == "configuration activated" {
			digest = line.Digest
			n++
		}
	}
	return digest, n
}

// Through any order of changes, a server ends with what a fresh one begins with, and compiles no more often than it must.
func TestCustomResourcesChurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	c := newResourceInstall(t, w, resourceOptions{}).start(t)
	client, err := dynamic.NewForConfig(w.Config())
	must(t, err)
	resource := func(plural string) dynamic.NamespaceableResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: plural})
	}
	policies, profiles := resource("admissionpolicies"), resource("sidecarprofiles")

	const lasts, workers, objects = 6 * time.Second, 4, 50
	began := time.Now()
	var group sync.WaitGroup
	changes := make([]int, workers)
	for worker := range workers {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		group.Go(func() {
			for i := 0; time.Since(began) < lasts; i++ {
				name := fmt.Sprintf("p-%d-%d", worker, random.IntN(objects))
				kind, made := policies, object(t, policyNamed(name, fmt.Sprintf("object.metadata.name != '%s-%d'", name, i), ""))
				patch := fmt.Sprintf(`{"spec":{"validations":[{"expression":"object.metadata.name != '%s-%d'","message":"no %s"}]}}`, name, i, name)
				if random.IntN(4) == 0 {
					kind, made = profiles, object(t, profileNamed(name))
					patch = fmt.Sprintf(`{"spec":{"template":{"spec":{"initContainers":[{"name":%q,"image":"x-%d","restartPolicy":"Always","startupProbe":{"tcpSocket":{"port":1}}}]}}}}`, name, i)
				}
				switch random.IntN(5) {
				case 0, 1:
					_, _ = kind.Create(t.Context(), made, metav1.CreateOptions{}) // it may be there
				case 2, 3:
					_, _ = kind.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}) // it may not be there
				default:
					_ = kind.Delete(t.Context(), name, metav1.DeleteOptions{})
				}
				changes[worker]++
			}
		})
	}
	// Reviews go on meanwhile, and none fails.
	var reviews, failed int
	r := c.reviewer(t)
	group.Go(func() {
		for time.Since(began) < lasts {
			reviews++
			if got, err := r.ask(t.Context(), "green"); err != nil || got != "" {
				failed++
			}
		}
	})
	group.Wait()
	if failed > 0 {
		t.Errorf("%d of %d reviews did not end in a yes", failed, reviews)
	}

	must(t, w.CreateNamespace(t.Context(), "another", nil))
	fresh := newResourceInstall(t, w, resourceOptions{namespace: "another", name: "gatehouse-fresh", alone: true})
	fresh.start(t)
	want, _ := fresh.lastDigest(t)
	n := 0
	support.Eventually(t, "what is in use", func() error {
		var got string
		if got, n = c.lastDigest(t); got != want {
			return fmt.Errorf("it is %s, and a fresh server uses %s", got, want)
		}
		return nil
	})
	total := 0
	for _, one := range changes {
		total += one
	}
	t.Logf("%d changes, %d configurations in use, %d reviews", total, n, reviews)
	if most := int(time.Since(began)/(100*time.Millisecond)) + 2; n > most {
		t.Errorf("it has compiled %d times, want %d at most", n, most)
	}
	fresh.server.Kill() // what it writes would be contested
	for _, kind := range []dynamic.NamespaceableResourceInterface{policies, profiles} {
		support.Eventually(t, "the status of each", func() error {
			all, err := kind.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range all.Items {
				o := &all.Items[i]
				observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
				conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
				if observed != o.GetGeneration() || !strings.Contains(fmt.Sprint(conditions), "InUse") {
					return fmt.Errorf("%s %s of generation %d: %d %v", o.GetKind(), o.GetName(), o.GetGeneration(), observed, conditions)
				}
			}
			return nil
		})
	}
}
