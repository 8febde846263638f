package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// crowd is the namespace of many pods.
const crowd = "crowd"

// Five thousand pods are made through Deployments as fast as kube-controller-manager can, and Gatehouse is replaced
// meanwhile: every pod is there, once, and was injected once; none was refused; and the status of the profile counts them.
func TestManyPods(t *testing.T) {
	const (
		deployments, replicas = 50, 100
		all                   = deployments * replicas
		patience              = 10 * time.Minute
	)
	s := newSite(t, cluster.Options{ControllerManagerFlags: []string{
		"--kube-api-qps=5000", "--kube-api-burst=5000", "--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20",
	}})
	// The right that the component count-pods adds.
	const before = "\n- apiGroups:\n  - \"\"\n  resources:\n  - events\n"
	rights := strings.Split(s.kustomized(t), "\n---\n")
	for i, document := range rights {
		if strings.Contains(document, "\nkind: ClusterRole\n") && strings.Contains(document, "\n  name: gatehouse-resources\n") {
			rights[i] = strings.Replace(document, before, "\n- apiGroups:\n  - \"\"\n  resources:\n  - pods\n  verbs:\n  - list"+before, 1)
		}
	}
	s.applyInstall(t, adjusted(t, strings.Join(rights, "\n---\n"), 2, "--count-pods-every=5s"))
	must(t, s.CreateNamespace(t.Context(), crowd, nil))
	must(t, s.apply(t.Context(), profile("logs")))
	s.everywhere(t, "logs")

	began := time.Now()
	for i := range deployments {
		d := deployment(fmt.Sprintf("crowd-%d", i))
		d.Spec.Replicas = new(int32(replicas))
		d.Spec.Template.Annotations = asking("").Annotations
		_, err := s.Client().AppsV1().Deployments(crowd).Create(t.Context(), d, metav1.CreateOptions{})
		must(t, err)
	}
	s.crowded(t, patience, all/4)
	used, atRestart := s.processor(t), s.pods(t)
	s.restart(t)
	meanwhile := s.pods(t) - atRestart
	s.crowded(t, patience, all)
	took := time.Since(began)
	t.Logf("%d pods in %s, %.0f a second, %d of them while the replicas were replaced; these had %.1f seconds of the processor, and their successors %.1f",
		all, took.Round(time.Millisecond), all/took.Seconds(), meanwhile, used, s.processor(t))
	if meanwhile == 0 {
		t.Error("no pod was made while the replicas were replaced")
	}

	names, injected := map[string]bool{}, 0
	for token := ""; ; {
		page, err := s.Client().CoreV1().Pods(crowd).List(t.Context(), metav1.ListOptions{Limit: 500, Continue: token})
		must(t, err)
		for i := range page.Items {
			pod := &page.Items[i]
			names[pod.Name] = true
			err := injectedOnce(pod)
			if err == nil {
				injected++
			} else if len(names)-injected < 5 {
				t.Errorf("the pod %s: %v", pod.Name, err)
			}
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	if len(names) != all || injected != all {
		t.Errorf("there are %d pods, and %d were injected once, want %d", len(names), injected, all)
	}
	events, err := s.Client().CoreV1().Events(crowd).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
	must(t, err)
	for _, event := range events.Items {
		t.Errorf("a pod could not be created: %s", event.Message)
	}
	want := fmt.Sprintf("%d %d", all, all)
	support.Eventually(t, "the status of the profile counts the pods", func() error {
		got, err := s.kubectl(t.Context(), "", "get", "sidecarprofile/logs", "--output", "jsonpath={.status.pods.matched} {.status.pods.injected}")
		if err == nil && got != want {
			err = fmt.Errorf("got %q, want %q", got, want)
		}
		return err
	})
}

// injectedOnce tells what is wrong with a pod that was to be injected with "logs".
func injectedOnce(pod *corev1.Pod) error {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			names = append(names, container.Name)
		}
	}
	if got := strings.Join(names, " "); got != "logs app" {
		return fmt.Errorf("it has the containers %q, want logs and app", got)
	}
	status := pod.Annotations[v1alpha1.StatusAnnotation]
	if status == "" || !json.Valid([]byte(status)) || strings.Count(status, `"logs"`) < 1 {
		return fmt.Errorf("its annotation is %q", status)
	}
	return nil
}

// everywhere waits until so many pods in a row are injected with a profile that every replica has done some.
func (s *site) everywhere(t *testing.T, profile string) {
	t.Helper()
	support.Eventually(t, "every replica injects", func() error {
		const rounds = 30
		for range rounds {
			pod, err := s.Client().CoreV1().Pods(crowd).Create(t.Context(), asking("first"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Name != profile {
				return errors.New("a pod was not injected")
			}
		}
		return nil
	})
}

// pods is how many pods the Deployments of the crowd have.
func (s *site) pods(t *testing.T) int {
	t.Helper()
	n, err := s.counted(t.Context())
	must(t, err)
	return n
}

func (s *site) counted(ctx context.Context) (int, error) {
	list, err := s.Client().AppsV1().ReplicaSets(crowd).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		n += int(list.Items[i].Status.Replicas)
	}
	return n, nil
}

// crowded waits until there are so many pods at least.
func (s *site) crowded(t *testing.T, patience time.Duration, least int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := s.counted(ctx)
		if err == nil && n >= least {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("there are %d pods after %s, want %d: %v", n, patience, least, err)
		case <-tick.C:
		}
	}
}

// processor is how long the replicas that run have had the processor, in seconds.
func (s *site) processor(t *testing.T) float64 {
	t.Helper()
	total := 0.0
	for _, pod := range s.kubelet.Pods() {
		seconds, err := metric(t.Context(), pod, "process_cpu_seconds_total")
		if err == nil { // one that ends does not answer
			total += seconds
		}
	}
	return total
}
