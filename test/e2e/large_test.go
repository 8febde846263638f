package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// The API server writes "<" as six bytes, so that a review may be far larger than what a user may send: 17 MiB for the
// largest pod that can be created in a dry run, 16 MiB for a change of the largest that can be stored.
func TestLargePods(t *testing.T) {
	// Not parallel: the API server needs seconds of processor time for a request of this size, and the memory is that of these
	// requests alone.
	w := sharedWorld(t)
	// Written as JSON the pods would be too large for the API server.
	config := w.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	pods := client.CoreV1().Pods("large")

	const mebibyte = 1 << 20
	large := func(name string, size int, last string) *corev1.Pod {
		return pod(name, func(p *corev1.Pod) {
			const each = 100_000
			for i := 0; size > 0; i++ {
				value := strings.Repeat("<", min(size, each))
				size -= each
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: value})
			}
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "LAST", Value: last})
		})
	}
	var group sync.WaitGroup
	for _, size := range []int{14 * mebibyte / 10, 28 * mebibyte / 10} {
		group.Go(func() {
			created, err := pods.Create(t.Context(), large("good", size, "allowed"), dryRun)
			if err == nil && injected(created) != 1 {
				err = errors.New("it is not injected")
			}
			if err != nil {
				t.Errorf("a pod of %d bytes: %v", size, err)
			}
		})
		group.Go(func() {
			_, err := pods.Create(t.Context(), large("bad", size, "forbidden"), dryRun)
			err = refusal(err, 422, "an environment variable holds the forbidden word")
			if err != nil {
				t.Errorf("a pod of %d bytes: %v", size, err)
			}
		})
		group.Wait() // more at one time would take the API server longer than it gives a request
	}

	_, err = pods.Create(t.Context(), large("stored", 135*mebibyte/100, "allowed"), metav1.CreateOptions{})
	must(t, err)
	for i := range 4 {
		group.Go(func() {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, i)
			_, err := pods.Patch(t.Context(), "stored", types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun.DryRun})
			if err != nil {
				t.Errorf("a change of a large pod: %v", err)
			}
		})
	}
	group.Wait()

	const allowance = 400 * mebibyte
	peak, err := w.gatehouse.PeakMemory()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Log("this system does not tell how much memory a process has used")
		return
	}
	must(t, err)
	t.Logf("at most %d MiB of memory were used", peak/mebibyte)
	if peak > allowance {
		t.Errorf("%d MiB of memory were used, want at most %d MiB", peak/mebibyte, allowance/mebibyte)
	}
}
