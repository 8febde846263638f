package e2e

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDebugCopy copies an injected pod with kubectl debug, which keeps the containers and drops the annotations. The copy is
// injected as the pod is: its sidecar is not added again, and is in the status.
func TestDebugCopy(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	pods := w.Client().CoreV1().Pods("order")
	original, err := pods.Create(t.Context(), pod("debugged"), metav1.CreateOptions{})
	must(t, err)
	if injected(original) != 1 {
		t.Fatalf("the pod is %v", original)
	}
	kubectl := w.Kubectl(t.Context(), "debug", "debugged", "--namespace", "order", "--copy-to", "debugged-copy", "--container", "app", "--set-image", "app=registry.example/debug:1",
		"--attach=false")
	if output, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("kubectl debug: %v: %s", err, output)
	}
	copied, err := pods.Get(t.Context(), "debugged-copy", metav1.GetOptions{})
	must(t, err)
	if len(copied.Spec.InitContainers) != len(original.Spec.InitContainers) || copied.Annotations[statusAnnotation] == "" || copied.Spec.Containers[0].Image != "registry.example/debug:1" {
		t.Errorf("the copy is %v", copied)
	}
}
