//go:build registration

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// registered are the resources that policies of this test are about. An object of each is valid without a spec.
func registered() []string {
	return []string{"configmaps", "limitranges", "resourcequotas", "serviceaccounts"}
}

func kindOfResource(resource string) string {
	return map[string]string{
		"configmaps": "ConfigMap", "limitranges": "LimitRange", "resourcequotas": "ResourceQuota", "serviceaccounts": "ServiceAccount",
	}[resource]
}

// policyState is a policy as it was last applied, and whether its status says that it is enforced.
type policyState struct {
	resource, failurePolicy string
	uid                     string
	generation              int64
	enforced                bool
}

// reviewLoad creates objects that every policy refuses, all the time, and holds that the policies that are enforced do.
type reviewLoad struct {
	objects dynamic.Interface

	// pause is held for as long as no call may be in progress.
	pause                   sync.RWMutex
	calls, refused, checked atomic.Int64

	mu       sync.Mutex
	policies map[string]*policyState
	problems []string
}

func newReviewLoad(t *testing.T, w *world) *reviewLoad {
	t.Helper()
	access := rest.CopyConfig(w.Config())
	access.QPS = -1
	objects, err := dynamic.NewForConfig(access)
	must(t, err)
	l := &reviewLoad{objects: objects, policies: map[string]*policyState{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			for i := n; ctx.Err() == nil; i++ {
				l.call(ctx, registered()[i%len(registered())])
			}
		})
	}
	running.Go(func() { l.observe(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return l
}

// enforced are the policies about a resource that are.
func (l *reviewLoad) enforced(resource string) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.policies {
		if p.enforced && p.resource == resource {
			ids = append(ids, fmt.Sprint(p.uid, "/", p.generation))
		}
	}
	return ids
}

func (l *reviewLoad) call(ctx context.Context, resource string) {
	l.pause.RLock()
	defer l.pause.RUnlock()
	before := l.enforced(resource)
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kindOfResource(resource), "metadata": map[string]any{"name": "red"}}}
	_, err := l.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace("shop").Create(ctx, object, dryRun)
	if ctx.Err() != nil {
		return
	}
	l.calls.Add(1)
	problem := ""
	switch {
	case err == nil:
		after := l.enforced(resource)
		if slices.ContainsFunc(before, func(id string) bool { return slices.Contains(after, id) }) {
			problem = resource + ": an object passed that enforced policies refuse"
		}
	case strings.Contains(err.Error(), "denied the request"):
		l.refused.Add(1)
	default:
		problem = "a call failed: " + err.Error()
	}
	if len(before) > 0 {
		l.checked.Add(1)
	}
	if problem != "" {
		l.mu.Lock()
		l.problems = append(l.problems, time.Now().UTC().Format(time.TimeOnly)+" "+problem)
		l.mu.Unlock()
	}
}

var admissionPolicies = schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "admissionpolicies"}

// observe reads the status of the policies.
func (l *reviewLoad) observe(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		list, err := l.objects.Resource(admissionPolicies).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		l.mu.Lock()
		for i := range list.Items {
			o := &list.Items[i]
			if p := l.policies[o.GetName()]; p != nil && p.uid == string(o.GetUID()) && p.generation == o.GetGeneration() && isEnforced(o) {
				p.enforced = true
			}
		}
		l.mu.Unlock()
	}
}

// isEnforced reports whether the status says that every replica uses the object, and that it is sent.
func isEnforced(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	is := map[any]any{}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["observedGeneration"] == o.GetGeneration() {
			is[c["type"]] = c["status"]
		}
	}
	return is["Ready"] == "True" && is["Degraded"] == "False"
}

// change applies, changes or deletes a policy.
func (l *reviewLoad) change(t *testing.T, random *rand.Rand) {
	t.Helper()
	name := fmt.Sprint("p", random.IntN(12))
	l.mu.Lock()
	exists := l.policies[name] != nil
	delete(l.policies, name)
	l.mu.Unlock()
	if exists && random.IntN(3) == 0 {
		must(t, l.objects.Resource(admissionPolicies).Delete(t.Context(), name, metav1.DeleteOptions{}))
		return
	}
	state := &policyState{resource: registered()[random.IntN(len(registered()))], failurePolicy: []string{"Fail", "Ignore"}[random.IntN(2)]}
	var object unstructured.Unstructured
	must(t, yaml.Unmarshal([]byte(strings.TrimPrefix(policyAbout(name, state.resource, state.failurePolicy), "\n---\n")), &object.Object))
	applied, err := l.objects.Resource(admissionPolicies).Apply(t.Context(), name, &object, metav1.ApplyOptions{FieldManager: "test", Force: true})
	must(t, err)
	state.uid, state.generation = string(applied.GetUID()), applied.GetGeneration()
	l.mu.Lock()
	l.policies[name] = state
	l.mu.Unlock()
}

// needed are the rules that the policies need.
func (l *reviewLoad) needed() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := map[string]map[string]bool{"Fail": {}, "Ignore": {}}
	for _, p := range l.policies {
		sent[p.failurePolicy]["/"+p.resource+" CREATE"] = true
	}
	maps.DeleteFunc(sent["Ignore"], func(rule string, _ bool) bool { return sent["Fail"][rule] })
	want := map[string][]string{}
	for failurePolicy, webhook := range map[string]string{"Fail": "fail.validate", "Ignore": "ignore.validate"} {
		if rules := slices.Sorted(maps.Keys(sent[failurePolicy])); len(rules) > 0 {
			want[webhook] = rules
		}
	}
	return want
}

// waitForCalls waits until there were more.
func (l *reviewLoad) waitForCalls(t *testing.T, more int64) {
	t.Helper()
	want := l.calls.Load() + more
	support.Eventually(t, "more calls", func() error {
		if now := l.calls.Load(); now < want {
			return fmt.Errorf("there were %d of %d", now, want)
		}
		return nil
	})
}

// check fails for each problem that there was.
func (l *reviewLoad) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) > 0 {
		t.Errorf("%d problems, first\n%s", len(l.problems), strings.Join(l.problems[:min(10, len(l.problems))], "\n"))
	}
	t.Logf("%d calls, %d refused, %d while a policy was enforced", l.calls.Load(), l.refused.Load(), l.checked.Load())
	if l.checked.Load() == 0 || l.refused.Load() == 0 {
		t.Error("no policy was enforced")
	}
}

// leaderOf is the replica that was elected last.
func (m *managedInstall) leaderOf(t *testing.T) string {
	t.Helper()
	lease, err := m.Client().CoordinationV1().Leases(system).Get(t.Context(), "gatehouse-leader", metav1.GetOptions{})
	must(t, err)
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name
}

// Policies come, change and go in random order, while objects are created: no call fails, and every object that an enforced
// policy refuses is refused, also while the leader is killed and the API server starts again. At the end the rules are exactly
// those of the policies that are left.
func TestRegistrationUnderChange(t *testing.T) {
	w := newWorld(t)
	m := newManagedInstall(t, w)
	m.start(t, "gatehouse-a")
	m.start(t, "gatehouse-b")
	l := newReviewLoad(t, w)
	random := rand.New(rand.NewPCG(1, 2))
	const changes = 100
	began := time.Now()
	for i := range changes {
		l.change(t, random)
		l.waitForCalls(t, int64(20+random.IntN(300)))
		switch i {
		case changes * 2 / 5:
			l.pause.Lock()
			leader := m.leaderOf(t)
			m.replicas[leader].Kill()
			delete(m.replicas, leader)
			m.route(t)
			m.start(t, leader)
			l.pause.Unlock()
		case changes * 4 / 5:
			l.pause.Lock()
			must(t, w.APIServer().Kill())
			must(t, w.APIServer().Start(t.Context()))
			l.pause.Unlock()
		}
	}
	m.hasRules(t, l.needed())
	l.waitForCalls(t, 500)
	t.Logf("%.0f calls a second", float64(l.calls.Load())/time.Since(began).Seconds())
	l.check(t)
	text, err := w.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	if open, err := gatehouse.Sum(string(text), "apiserver_admission_webhook_fail_open_count"); err != nil || open != 0 {
		t.Errorf("%g calls failed open, %v", open, err)
	}
	output, err := gatehouse.Run(t.Context(), "uninstall", "--kubeconfig", w.Kubeconfig(), "--yes")
	if err != nil {
		t.Fatalf("uninstall: %v: %s", err, output)
	}
}

// An install that does not manage its registration becomes one that does, as docs/tasks/deploy-with-gitops.md says: at every
// step what its policies match is sent.
func TestRegistrationIsTakenOver(t *testing.T) {
	w := newWorld(t)
	m := newManagedInstall(t, w)
	apply := func(documents string) {
		t.Helper()
		kubectl := w.Kubectl(t.Context(), "apply", "--server-side", "--field-manager", "gitops", "--filename", "-")
		kubectl.Stdin = strings.NewReader(documents)
		output, err := kubectl.CombinedOutput()
		if err != nil {
			t.Fatalf("apply: %v: %s", err, output)
		}
	}
	// As it was before.
	output, err := w.Kubectl(t.Context(), "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "gatehouse").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	static := m.printing
	m.printing = slices.DeleteFunc(slices.Clone(static), func(word string) bool { return word == "--manage-registration" })
	config := t.TempDir()
	policy := policyNamed("all", "true", "")
	must(t, os.WriteFile(filepath.Join(config, "all.yaml"), []byte(strings.ReplaceAll(policy, "resources: [pods]", "resources: ["+strings.Join(registered(), ", ")+"]")), 0o600))
	apply(gatehouse.Patient(m.manifests(t, "--part", "registration", "--config", config)))
	managed := m.flags
	m.flags = slices.DeleteFunc(slices.Clone(managed), func(word string) bool { return word == "--manage-registration" })
	m.start(t, "old-a")
	m.start(t, "old-b")
	l := newReviewLoad(t, w)
	random := rand.New(rand.NewPCG(3, 4))
	for range 6 {
		l.change(t, random)
	}
	support.Eventually(t, "that all policies are enforced", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name, p := range l.policies {
			if !p.enforced {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
	// The replicas are replaced one after the other, and the configurations have the annotation.
	m.flags = managed
	for _, name := range []string{"a", "b"} {
		m.start(t, "new-"+name)
		l.waitForCalls(t, 500)
		old := m.replicas["old-"+name]
		delete(m.replicas, "old-"+name)
		l.pause.Lock()
		m.route(t)
		l.pause.Unlock()
		must(t, old.Signal(syscall.SIGTERM))
		_, err := old.Wait(t.Context())
		must(t, err)
	}
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		output, err := w.Kubectl(t.Context(), "annotate", kind, "gatehouse", "gatehouse.dev/excluded-namespaces=gatehouse-system,kube-node-lease,kube-system").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	// Nothing is narrowed while webhooks are missing that the policies need, but what is there is taken over.
	support.Eventually(t, "that Gatehouse manages the rules", func() error {
		mutating, err := m.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
		must(t, err)
		validating, err := m.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
		must(t, err)
		n := 0
		for _, f := range slices.Concat(mutating.ManagedFields, validating.ManagedFields) {
			if f.Manager == "gatehouse" && strings.Contains(f.FieldsV1.String(), `"f:rules"`) {
				n++
			}
		}
		if n != 2 {
			return fmt.Errorf("it manages the rules of %d configurations", n)
		}
		return nil
	})
	// Then what is applied has no rules any more.
	m.printing = static
	apply(gatehouse.Patient(m.manifests(t, "--part", "registration")))
	m.hasRules(t, l.needed())
	for range 4 {
		l.change(t, random)
		l.waitForCalls(t, 500)
	}
	m.hasRules(t, l.needed())
	l.check(t)
}
