package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// crowded is a cluster whose controllers keep workloads alive that violate a policy which is about to be introduced.
type crowded struct {
	*site
	// file is the baseline.
	file string
}

// newCrowded returns it, with pods of each workload but the CronJob.
func newCrowded(t *testing.T) *crowded {
	t.Helper()
	c := cluster.New(t, cluster.Options{ControllerManager: true})
	w := &crowded{&site{Cluster: c, admin: kubeconfig(t, c.Config())}, filepath.Join(t.TempDir(), "baseline.yaml")}
	for _, name := range []string{"shop", "pay", "gatehouse-system"} {
		must(t, c.CreateNamespace(t.Context(), name, nil))
	}
	// A DaemonSet has a pod for each node.
	_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
	must(t, err)
	w.applyDefinitions(t)
	apply(t, c, read(t, "workloads.yaml"))
	for app, n := range map[string]int{"web": 2, "agent": 1} {
		w.hasPods(t, app, n, nil)
	}
	return w
}

// pods returns the pods of an application in the namespace "shop" that are not being deleted.
func (w *crowded) pods(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	list, err := w.Client().CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	must(t, err)
	var all []corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			all = append(all, list.Items[i])
		}
	}
	return all
}

// uids returns what the pods of an application are known by.
func (w *crowded) uids(t *testing.T, app string) sets.Set[types.UID] {
	t.Helper()
	all := sets.New[types.UID]()
	for _, pod := range w.pods(t, app) {
		all.Insert(pod.UID)
	}
	return all
}

// hasPods waits until an application has a number of pods that are not among those before.
func (w *crowded) hasPods(t *testing.T, app string, n int, before sets.Set[types.UID]) {
	t.Helper()
	support.Eventually(t, fmt.Sprintf("%d new pods of %s", n, app), func() error {
		if got := w.uids(t, app).Difference(before); got.Len() < n {
			return fmt.Errorf("there are %d%s", got.Len(), w.failures(t))
		}
		return nil
	})
}

// failures returns what controllers say of pods that they cannot create.
func (w *crowded) failures(t *testing.T) string {
	t.Helper()
	events, err := w.Client().CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
	must(t, err)
	text := ""
	for i := range events.Items {
		text += "\n" + events.Items[i].InvolvedObject.Name + ": " + events.Items[i].Message
	}
	return text
}

// baselined is what the tests read of the output of audit --baseline.
type baselined struct {
	report
	Baseline struct {
		Written                      bool
		Entries, Added, Pruned, Gone int64
		New                          int64
		NotCovered                   []struct{ Policy, Rule, Reason string }
	} `json:"baseline"`
}

// audit runs audit --baseline on the strict policies.
func (w *crowded) audit(t *testing.T, args ...string) (int, *baselined) {
	t.Helper()
	code, out, messages := program(t, append([]string{
		"audit", "--kubeconfig", w.admin, "--partial", "-o", "json", "--config", "testdata/strict", "--baseline", w.file,
	}, args...)...)
	got := &baselined{}
	if err := json.Unmarshal([]byte(out), got); err != nil {
		t.Fatalf("exit code %d, %v in %.2000s\n%s", code, err, out, messages)
	}
	return code, got
}

// change runs kubectl in the namespace "shop", and checks whether the API server refuses that with a text, "" for not at all.
func (w *crowded) change(t *testing.T, refused, manifest string, args ...string) {
	t.Helper()
	text, err := kubectl(t, w.Cluster, manifest, append([]string{"--namespace", "shop"}, args...)...)
	switch {
	case refused == "" && err != nil:
		t.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, text)
	case refused != "" && (err == nil || !strings.Contains(text, "denied request: ") || !strings.Contains(text, refused)):
		t.Errorf("kubectl %s: %v: %s, want %q", strings.Join(args, " "), err, text, refused)
	}
}

// TestBaseline introduces a strict policy in a cluster full of violations, which denies from its first day: what controllers make anew of
// what existed passes, and everything else is refused.
func TestBaseline(t *testing.T) {
	w := newCrowded(t)
	const registry, limit = "images must come from registry.example", "at most 512Mi of memory"
	code, got := w.audit(t, "--expires", "2099-12-31", "--reason", "TEST-1: images move until the end of the year")
	// web violates both rules, the other two one.
	if code != 0 || !got.Baseline.Written || got.Baseline.Entries != 4 || got.Baseline.Added != 4 || len(got.Baseline.NotCovered) != 1 || got.Baseline.NotCovered[0].Policy != "teams" {
		t.Fatalf("exit code %d, the baseline is %+v, and %q", code, got.Baseline, got.violations())
	}
	if code, again := w.audit(t); code != 0 || again.Baseline.Written || again.Baseline.New != 0 || again.Baseline.Gone != 0 {
		t.Errorf("a second run: exit code %d, %+v", code, again.Baseline)
	}

	server := w.serve(t, "testdata/strict")
	apply(t, w.Cluster, w.baseline(t))
	w.isReady(t, "True") // before its policies exist
	if text, err := kubectl(t, w.Cluster, "", "--namespace", "gatehouse-system", "get", "policybaseline", "baseline", "-o", "jsonpath={.status.entries}"); err != nil || text != "4" {
		t.Errorf("the status has %s entries, %v", text, err)
	}
	apply(t, w.Cluster, read(t, "strict/policies.yaml"))
	manifest := func(name, namespace string) string {
		web, _, _ := strings.Cut(read(t, "workloads.yaml"), "---\n")
		return strings.NewReplacer("name: web, namespace: shop", "name: "+name+", namespace: "+namespace).Replace(web)
	}
	support.Eventually(t, "the policy denies", func() error {
		if text, err := kubectl(t, w.Cluster, manifest("canary", "shop"), "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(text, registry) {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New("not yet")), text)
		}
		return nil
	})

	for _, c := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"a drained node", func(t *testing.T) {
			before := w.uids(t, "web")
			for _, pod := range w.pods(t, "web") {
				must(t, w.Client().PolicyV1().Evictions("shop").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: "shop"}}))
			}
			w.hasPods(t, "web", 2, before)
		}},
		{"a larger scale", func(t *testing.T) {
			before := w.uids(t, "web")
			w.change(t, "", "", "scale", "deployment/web", "--replicas=4")
			w.hasPods(t, "web", 2, before)
		}},
		{"a rollout", func(t *testing.T) {
			before := w.uids(t, "web")
			w.change(t, "", "", "rollout", "restart", "deployment/web")
			w.hasPods(t, "web", 1, before)
		}},
		{"a DaemonSet", func(t *testing.T) {
			before := w.uids(t, "agent")
			w.change(t, "", "", "delete", "pods", "-l", "app=agent")
			w.hasPods(t, "agent", 1, before)
		}},
		{"a CronJob", func(t *testing.T) { w.hasPods(t, "report", 1, w.uids(t, "report")) }},
		{"a value changes that no rule reads", func(t *testing.T) {
			before := w.uids(t, "web")
			w.change(t, "", "", "set", "env", "deployment/web", "B=2")
			w.hasPods(t, "web", 1, before)
		}},
		{"another image", func(t *testing.T) {
			w.change(t, registry, "", "set", "image", "deployment/web", "web=docker.io/library/web:2")
		}},
		{"a value changes that a rule reads", func(t *testing.T) {
			w.change(t, limit, "", "set", "resources", "deployment/web", "--limits=memory=2Gi")
		}},
		{"a new Deployment with the same image", func(t *testing.T) { w.change(t, registry, manifest("web-2", "shop"), "create", "-f", "-") }},
		{"a pod without a controller", func(t *testing.T) {
			w.change(t, registry, "", "run", "web", "--image=docker.io/library/web:1")
		}},
		{"another namespace", func(t *testing.T) {
			w.change(t, registry, manifest("web", "pay"), "--namespace", "pay", "create", "-f", "-")
		}},
		{"what was mended comes back", func(t *testing.T) {
			w.change(t, "", "", "set", "image", "deployment/web", "web=registry.example/web:1")
			code, got := w.audit(t)
			if code != 0 || got.Baseline.Written || got.Baseline.Gone != 1 {
				t.Errorf("before: exit code %d, %+v", code, got.Baseline)
			}
			if code, got = w.audit(t, "--prune"); code != 0 || got.Baseline.Pruned != 1 || got.Baseline.Entries != 3 {
				t.Errorf("exit code %d, %+v", code, got.Baseline)
			}
			apply(t, w.Cluster, w.baseline(t))
			support.Eventually(t, "the entry is gone", func() error {
				text, err := kubectl(t, w.Cluster, "", "--namespace", "shop", "set", "image", "deployment/web", "web=docker.io/library/web:1", "--dry-run=server")
				if err == nil || !strings.Contains(text, registry) {
					return fmt.Errorf("%w: %s", errors.Join(err, errors.New("it is admitted")), text)
				}
				return nil
			})
		}},
		{"the end of the baseline", func(t *testing.T) {
			text, err := kubectl(t, w.Cluster, "", "--namespace", "gatehouse-system", "patch", "policybaseline", "baseline", "--type=merge", "-p", `{"spec":{"expiresAt":"2026-01-01T00:00:00Z"}}`)
			if err != nil || !strings.Contains(text, "has passed") {
				t.Errorf("%v: %s", err, text)
			}
			w.isReady(t, "False")
			w.change(t, "", "", "delete", "pods", "-l", "app=agent")
			support.Eventually(t, "the DaemonSet gets no pod", func() error {
				if got := w.failures(t); !strings.Contains(got, registry) {
					return fmt.Errorf("the events are%s", got)
				}
				return nil
			})
		}},
	} {
		t.Run(c.name, c.do)
	}
	used, err := server.Metric(t.Context(), "gatehouse_policy_baselines_used_total", `baseline="gatehouse-system/baseline"`)
	if err != nil || used < 10 {
		t.Errorf("the baseline was used %v times, %v", used, err)
	}
}

// baseline returns the file.
func (w *crowded) baseline(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(w.file)
	must(t, err)
	return string(text)
}

// isReady waits until the baseline in the cluster has a status.
func (w *crowded) isReady(t *testing.T, status string) {
	t.Helper()
	support.Eventually(t, "the baseline is Ready="+status, func() error {
		text, err := kubectl(t, w.Cluster, "", "--namespace", "gatehouse-system", "get", "policybaseline", "baseline", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		if err != nil || !strings.Contains(text, `"status":"`+status+`"`) {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New("not yet")), text)
		}
		return nil
	})
}

// TestBaselineGuide runs the audit of docs/tasks/introduce-a-strict-policy.md, and compares what it prints and writes with the page and
// its example.
func TestBaselineGuide(t *testing.T) {
	const page, example = "../../docs/tasks/introduce-a-strict-policy.md", "../../manifests/examples/introduce-a-strict-policy"
	s := &site{Cluster: cluster.New(t, cluster.Options{})}
	s.admin = kubeconfig(t, s.Config())
	must(t, s.CreateNamespace(t.Context(), "shop", nil))
	existing, err := os.ReadFile(filepath.Join(example, "existing.yaml"))
	must(t, err)
	apply(t, s.Cluster, string(existing))
	text, err := os.ReadFile(page)
	must(t, err)
	shown := regexp.MustCompile("(?s)```sh cluster\ngatehouse (audit [^`]* --baseline baseline.yaml [^`]*)\n```\n\n```console\n(.*?)```\n").FindStringSubmatch(string(text))
	if shown == nil {
		t.Fatal("the page shows no audit")
	}
	words := regexp.MustCompile(`"[^"]*"|[^\s\\]+`).FindAllString(shown[1], -1)
	for i := range words {
		words[i] = strings.Trim(words[i], `"`)
	}
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(example, "config"))))
	t.Setenv("KUBECONFIG", s.admin)
	code, got, messages := programIn(t, dir, append(words, "--partial")...)
	got = times.ReplaceAllString(strings.Replace(got, ", without the documents of the servers' own --config", "", 1), "2026-11-20T09:00:00Z, in 200ms")
	written, err := os.ReadFile(filepath.Join(dir, "baseline.yaml"))
	must(t, err)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.WriteFile(page, []byte(strings.Replace(string(text), "```console\n"+shown[2]+"```", "```console\n"+got+"```", 1)), 0o600))
		must(t, os.WriteFile(filepath.Join(example, "baseline.yaml"), written, 0o600))
		return
	}
	want, err := os.ReadFile(filepath.Join(example, "baseline.yaml"))
	must(t, err)
	if code != 0 || got != shown[2] || string(written) != string(want) {
		t.Errorf("exit code %d: %s\n%swant\n%s\nthe file is\n%swant\n%s", code, messages, got, shown[2], written, want)
	}
}
