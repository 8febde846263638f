// Package incluster installs Gatehouse on a real API server with kube-controller-manager, as a platform team does, runs
// its pods as a node would, and looks at what becomes of the cluster while it is installed and upgraded.
package incluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
)

const (
	// system is the namespace of the install.
	system = "gatehouse-system"
	// deadline bounds every call and rollout, on a busy machine too.
	deadline = 90 * time.Second
)

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }

// site is a cluster with a node.
type site struct {
	*cluster.Cluster
	kubelet *kubelet.Kubelet
	log     *lockedLog
}

// newSite starts a cluster in which nothing is installed.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteFor(t, system)
}

// newSiteFor starts a cluster whose node runs the pods of a namespace.
func newSiteFor(t *testing.T, namespace string) *site {
	t.Helper()
	if !cluster.Namespaced() {
		t.Fatal("a network namespace is needed, in which pods have addresses (hint: allow unprivileged user namespaces, or run as root)")
	}
	binary, err := gatehouse.Binary()
	must(t, err)
	s := &site{Cluster: cluster.New(t, cluster.Options{ControllerManager: true}), log: &lockedLog{began: time.Now()}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened:\n%s", s.log.text())
		}
	})
	s.kubelet, err = kubelet.Start(t.Context(), kubelet.Options{
		Cluster: s.Cluster, Namespace: namespace, Dir: t.TempDir(), Log: s.log,
		Programs: map[string]string{"gatehouse": binary, "registry.example/gatehouse": binary},
	})
	must(t, err)
	t.Cleanup(func() {
		s.kubelet.Stop()
		if !t.Failed() {
			return
		}
		for _, p := range s.kubelet.Pods() {
			content, _ := os.ReadFile(p.Log())
			const most = 8 << 10
			t.Logf("pod %s logged, at the end:\n%s", p.Name, content[max(0, len(content)-most):])
		}
	})
	return s
}

// kubectl runs a command of kubectl as the administrator. Its error has what it prints.
func (s *site) kubectl(ctx context.Context, stdin string, args ...string) error {
	command := s.Kubectl(ctx, args...)
	command.Stdin = strings.NewReader(stdin)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}

// rendered is what a release has for kubectl apply, with arguments of helm template besides.
func (s *site) rendered(t *testing.T, args ...string) string {
	t.Helper()
	text, err := s.helm(t.Context(), t.TempDir(), append([]string{"template", "gatehouse", chart, "--namespace", system, "--set", "namespace.create=true"}, args...)...)
	must(t, err)
	return text
}

// install applies that, in one command, and waits until it is rolled out.
func (s *site) install(t *testing.T, args ...string) {
	t.Helper()
	err := s.kubectl(t.Context(), s.rendered(t, args...), "apply", "--server-side", "--filename", "-")
	must(t, err)
	s.rolledOut(t)
}

// rolledOut waits until every replica of the Deployment is as it should be.
func (s *site) rolledOut(t *testing.T) {
	t.Helper()
	err := s.kubectl(t.Context(), "", "rollout", "status", "deployment/gatehouse", "--namespace", system, "--timeout", deadline.String())
	must(t, err)
}

// waitForReplicas waits until exactly so many replicas run, and all are ready.
func (s *site) waitForReplicas(t *testing.T, replicas int) {
	t.Helper()
	support.Eventually(t, fmt.Sprintf("%d replicas run, and no others", replicas), func() error {
		pods := s.kubelet.Pods()
		if len(pods) != replicas {
			return fmt.Errorf("there are %d", len(pods))
		}
		for _, pod := range pods {
			if !pod.Ready() {
				return fmt.Errorf("the replica %s is not ready", pod.Name)
			}
		}
		return nil
	})
}

// apply applies documents as a user does.
func (s *site) apply(ctx context.Context, documents string) error {
	err := s.kubectl(ctx, documents, "apply", "--filename", "-")
	return err
}

// profile is a SidecarProfile with a native sidecar of its name.
func profile(name string) string {
	return fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: %[1]s}
spec: {template: {spec: {initContainers: [{name: %[1]s, image: sidecar, restartPolicy: Always}]}}}
`, name)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lockedLog is what happened, line by line.
type lockedLog struct {
	began time.Time
	mu    sync.Mutex
	lines strings.Builder
}

// Write implements io.Writer.
func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *lockedLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}
