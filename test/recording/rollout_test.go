package recording

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

const (
	// requestsVariable is the number of requests of the rollout, of which each is two reviews.
	requestsVariable = "ROLLOUT_REQUESTS"
	defaultRequests  = 2000
	// maxBytesPerReview is the bar for reviews of a rollout.
	maxBytesPerReview = 400
)

// report is what the test reads of the output of replay.
type report struct {
	Reviews   int64            `json:"reviews"`
	Unchanged int64            `json:"unchanged"`
	Changed   map[string]int64 `json:"changed"`
	Undecided map[string]int64 `json:"undecided"`
	Gaps      int64            `json:"gaps"`
	Problems  []string         `json:"problems"`
	Groups    []struct {
		Change    string            `json:"change"`
		Rule      map[string]string `json:"rule"`
		Namespace string            `json:"namespace"`
		Workloads []string          `json:"workloads"`
	} `json:"groups"`
}

func parse(t *testing.T, text string) *report {
	t.Helper()
	r := &report{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%v in\n%.2000s", err, text)
	}
	return r
}

// workloads of the rollout. Those of old have images from a registry that the candidate refuses.
func workloads() []string {
	return []string{"checkout", "cart", "search", "catalogue", "payment", "mail", "old-billing", "old-ledger"}
}

// TestRolloutReplaysToTheSame: a rollout that an API server sent is recorded; a replay under the same configuration has no
// differences, and a second one gives the same bytes; a candidate names exactly the workloads that it would refuse.
func TestRolloutReplaysToTheSame(t *testing.T) {
	requests := defaultRequests
	if text := os.Getenv(requestsVariable); text != "" {
		var err error
		requests, err = strconv.Atoi(text)
		must(t, err)
	}
	config, candidate := filepath.Join(t.TempDir(), "config"), filepath.Join(t.TempDir(), "candidate")
	profile, err := os.ReadFile(filepath.Join(root(t), "manifests/examples/log-shipper/profile.yaml"))
	must(t, err)
	for to, from := range map[string]string{config: "testdata/config", candidate: "testdata/candidate"} {
		must(t, os.CopyFS(to, os.DirFS(from)))
		must(t, os.WriteFile(filepath.Join(to, "profile.yaml"), profile, 0o600))
	}
	s := newSite(t, "rollout", config)
	must(t, s.CreateNamespace(t.Context(), "shop", map[string]string{"logs": "shipped", "team": "checkout"}))
	controller := s.controller(t)
	create := func(ctx context.Context, i int, options metav1.CreateOptions) (*corev1.Pod, error) {
		return controller.CoreV1().Pods("shop").Create(ctx, rolledOut(i), options)
	}
	size := 0 // of a pod as the API server stores it
	support.Eventually(t, "the registration", func() error {
		created, err := create(t.Context(), 0, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(created.Spec.InitContainers) == 0 {
			err = errors.New("the pod gets no sidecar")
		}
		if raw, encoded := json.Marshal(created); encoded == nil {
			size = len(raw)
		}
		if err == nil {
			if _, refused := create(t.Context(), 7, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); refused == nil {
				err = errors.New("the pod without a team is created")
			}
		}
		return err
	})

	var next, refused atomic.Int64
	var workers sync.WaitGroup
	failures := make(chan error, requests)
	const concurrency = 16
	for range concurrency {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < requests; i = int(next.Add(1)) - 1 {
				_, err := create(t.Context(), i, metav1.CreateOptions{})
				switch isRefused := err != nil && strings.Contains(err.Error(), "denied the request"); {
				case isRefused != lacksTeam(i) || err != nil && !isRefused:
					failures <- fmt.Errorf("pod %d: %w", i, cmpError(err))
				case isRefused:
					refused.Add(1)
				}
			}
		})
	}
	workers.Wait()
	close(failures)
	for err := range failures {
		t.Fatal(err)
	}
	s.stop(t)

	code, text := program(t, "replay", "--config", config, "-o", "json", s.recording)
	again, second := program(t, "replay", "--config", config, "-o", "json", s.recording)
	r := parse(t, text)
	if code != 0 || again != 0 || r.Reviews < 2*int64(requests) || r.Unchanged != r.Reviews || r.Gaps != 0 || len(r.Problems) > 0 {
		t.Errorf("the same configuration: exit codes %d and %d, want 0 and no differences:\n%.3000s", code, again, text)
	}
	if text != second {
		t.Error("two replays give different reports")
	}
	perReview := float64(s.size(t)) / float64(r.Reviews)
	t.Logf("%d requests, %d of them refused: %d reviews of pods of %d bytes, %.0f bytes on disk each", requests, refused.Load(), r.Reviews, size, perReview)
	if perReview > maxBytesPerReview {
		t.Errorf("a review takes %.0f bytes on disk, want at most %d", perReview, maxBytesPerReview)
	}

	code, text = program(t, "replay", "--config", candidate, "-o", "json", s.recording)
	r = parse(t, text)
	var named []string
	for _, g := range r.Groups {
		if g.Change != "newly-refused" || g.Rule["name"] != "registries" || g.Namespace != "shop" {
			t.Errorf("a change that the candidate does not make: %+v", g)
		}
		named = append(named, g.Workloads...)
	}
	slices.Sort(named)
	if want := []string{"Deployment/old-billing", "Deployment/old-ledger"}; code != 1 || !slices.Equal(slices.Compact(named), want) {
		t.Errorf("the candidate: exit code %d, want 1, and named are %q, want %q:\n%.3000s", code, named, want, text)
	}
	want := int64(0)
	for i := range requests {
		if isOld(i) && !lacksTeam(i) {
			want++
		}
	}
	if got := r.Changed["newly-refused"]; got != want {
		t.Errorf("%d requests are newly refused, want %d", got, want)
	}
	if code, _ := program(t, "replay", "--config", candidate, "--fail-on", "newly-admitted", s.recording); code != 0 {
		t.Errorf("exit code %d with --fail-on newly-admitted, want 0", code)
	}
}

// cmpError makes no error an error.
func cmpError(err error) error {
	if err == nil {
		return errors.New("it is created without a team")
	}
	return err
}

// controller is the client of the ReplicaSet controller, which creates the pods of a rollout.
func (s *site) controller(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := s.ConfigFor("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts", "system:masters")
	must(t, err)
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

func workloadOf(i int) string { return workloads()[i%len(workloads())] }
func isOld(i int) bool        { return strings.HasPrefix(workloadOf(i), "old-") }

// lacksTeam is true for a pod that is refused as it is.
func lacksTeam(i int) bool { return i%50 == 7 }

// rolledOut is the i-th pod, as the ReplicaSet controller creates it: of 5 KB.
func rolledOut(i int) *corev1.Pod {
	workload := workloadOf(i)
	revision := workload + "-7d9f8b6c5"
	registry := "registry.example/"
	if isOld(i) {
		registry = "old.example/"
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: revision + "-", Namespace: "shop",
			Labels: map[string]string{"app": workload, "team": "checkout", "pod-template-hash": "7d9f8b6c5", "app.kubernetes.io/part-of": "shop"},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": fmt.Sprintf("%064x", i%len(workloads())),
				"description": strings.Repeat("What this workload is for, and whom to call when it fails. ", 12),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: revision, UID: types.UID(fmt.Sprintf("1c9a7c0e-6a0e-4a53-9d39-%012d", i%len(workloads()))),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
	}
	if lacksTeam(i) {
		delete(p.Labels, "team")
	}
	for c := range 2 {
		container := corev1.Container{
			Name: fmt.Sprintf("%s-%d", workload, c), Image: registry + workload + ":1.4.2",
			Args: []string{"--listen=:8080", "--log-format=json", "--shutdown-delay=10s"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
		}
		for e := range 16 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", e), Value: fmt.Sprintf("value-of-%s-%02d", workload, e)})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	return p
}
