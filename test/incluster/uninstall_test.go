package incluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// Gatehouse is removed from a cluster in use in each way that the documents say. Nobody is refused while it goes, but where
// they warn of that; afterwards nothing waits for it; and it can be installed again.
func TestUninstall(t *testing.T) {
	t.Parallel()
	overlay := filepath.Join(overlays, "self-signed")
	for _, test := range []struct {
		name    string
		install func(s *site, t *testing.T)
		remove  func(t *testing.T, s *site)
		// warned is that the documents warn of calls that are refused for a moment.
		warned bool
		// keeps are the definitions and the namespace that stay.
		keeps bool
	}{
		{
			"by gatehouse uninstall, then kubectl delete", (*site).installTwo,
			func(t *testing.T, s *site) {
				s.gatehouse(t, "uninstall", "--yes", "--kubeconfig", s.Kubeconfig())
				_, err := s.kubectl(t.Context(), "", "delete", "--kustomize", overlay, "--ignore-not-found")
				must(t, err)
			}, false, false,
		},
		{
			"by kubectl delete alone", (*site).installTwo,
			func(t *testing.T, s *site) {
				_, err := s.kubectl(t.Context(), "", "delete", "--kustomize", overlay)
				must(t, err)
			}, true, false,
		},
		{
			"by Helm", (*site).byHelm,
			func(t *testing.T, s *site) {
				_, err := s.helm(t.Context(), t.TempDir(), "uninstall", "gatehouse", "--namespace", system, "--wait")
				must(t, err)
			}, false, true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			test.install(s, t)
			s.createWorkloads(t)

			p := s.probe(t)
			waitForSuccesses(t, p.Load)
			if p.Failed() > 0 {
				t.Fatalf("%d calls were refused before anything was removed: %s", p.Failed(), p.Why())
			}
			began := time.Now()
			test.remove(t, s)
			took := time.Since(began)
			waitForSuccesses(t, p.Load)
			p.End()
			t.Logf("removed in %s; %s; refused for %s%s", took.Round(time.Millisecond), p.Load, p.refusedFor().Round(time.Millisecond), p.Why())
			if p.Failed() > 0 && !test.warned {
				t.Errorf("%d calls were refused", p.Failed())
			}
			s.checkUnblocked(t)
			s.checkLeftovers(t, test.keeps)

			test.install(s, t)
			must(t, s.apply(t.Context(), workloadPolicies))
			s.waitUntilAnswered(t)
		})
	}
}

func (s *site) byHelm(t *testing.T) {
	t.Helper()
	_, err := s.helm(t.Context(), t.TempDir(), "install", "gatehouse", chart, "--namespace", system, "--create-namespace", "--set", "replicaCount=2")
	must(t, err)
	s.rolledOut(t)
}

// gatehouse runs a command of the program.
func (s *site) gatehouse(t *testing.T, args ...string) {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("gatehouse %s: %v: %s", strings.Join(args, " "), err, output)
	}
}

// probe is what tenants do all the time: pods that ask for injection, pods that do not, and objects of policies. That one
// is created as it is counts as a yes, and a refusal by a policy as its answer.
type probe struct {
	*load.Load

	mu          sync.Mutex
	first, last time.Time
}

func (s *site) probe(t *testing.T) *probe {
	t.Helper()
	p := &probe{}
	c := s.caller(t)
	for i := range c.requests {
		c.requests[i].check = func(_ []byte, err error) error {
			if err != nil && strings.Contains(err.Error(), refusal) {
				return nil
			}
			return err
		}
	}
	callers := make([]int, load.Callers)
	p.Load = load.Start(t.Context(), func(ctx context.Context, caller int) error {
		callers[caller]++ // each has its own
		began := time.Now()
		err := c.call(ctx, caller+callers[caller])
		if err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.first.IsZero() || began.Before(p.first) {
				p.first = began
			}
			p.last = time.Now()
		}
		return err
	})
	t.Cleanup(func() { p.End() })
	return p
}

// refusedFor is how long it was from the first call that was refused to the last.
func (p *probe) refusedFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.Sub(p.first)
}

// checkUnblocked checks that tenants can do what they do, and the cluster's own controllers too.
func (s *site) checkUnblocked(t *testing.T) {
	t.Helper()
	name := s.NewNamespace(t, nil)
	must(t, s.create(t.Context(), name, asking("asks")))
	must(t, s.create(t.Context(), name, plain("plain")))
	_, err := s.Client().AppsV1().Deployments(name).Create(t.Context(), deployment("two"), metav1.CreateOptions{})
	must(t, err)
	support.Eventually(t, "the pods of a deployment", func() error {
		pods, err := s.Client().CoreV1().Pods(name).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) != 4 {
			err = fmt.Errorf("there are %d, want 4", len(pods.Items))
		}
		return err
	})
	pods, err := s.Client().CoreV1().Pods(name).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		if len(pod.Spec.InitContainers) > 0 {
			t.Errorf("the pod %s was injected", pod.Name)
		}
	}
	must(t, s.Client().CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	support.Eventually(t, "the namespace is gone", func() error {
		_, err := s.Client().CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// checkLeftovers looks for what remains of an install: nothing, or the definitions with their objects and the namespace.
func (s *site) checkLeftovers(t *testing.T, keeps bool) {
	t.Helper()
	var found []string
	for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "clusterroles", "clusterrolebindings", "priorityclasses", "flowschemas", "customresourcedefinitions", "namespaces"} {
		output, err := s.kubectl(t.Context(), "", "get", kind, "--output", "name")
		must(t, err)
		for name := range strings.FieldsSeq(output) {
			if strings.Contains(name, "gatehouse") {
				found = append(found, name)
			}
		}
	}
	var want []string
	if keeps {
		for _, plural := range []string{"accesstokens", "admissionpolicies", "admissionpolicybindings", "policyexceptions", "sidecarprofiles", "tokenrevocations"} {
			want = append(want, "customresourcedefinition.apiextensions.k8s.io/"+plural+".gatehouse.dev")
		}
		want = append(want, "namespace/"+system)
	}
	if !slices.Equal(found, want) {
		t.Errorf("left are %q, want %q", found, want)
	}
	pods, err := s.Client().CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			t.Errorf("the pod %s runs", pod.Name)
		}
	}
	if keeps {
		output, err := s.kubectl(t.Context(), "", "get", "sidecarprofiles,admissionpolicies", "--output", "name")
		must(t, err)
		if n := len(strings.Fields(output)); n != 3 {
			t.Errorf("%d custom resources are left, want 3: %s", n, output)
		}
	}
}
