package console

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
)

const (
	// system is the namespace of the install, shop and mall are those of the teams of anna and ben.
	system, shop, mall = "gatehouse-system", "shop", "mall"
	anna, ben          = "anna", "ben"
	// operator may read everything that the console shows.
	operator = "operator"
	// hostile is a text in names and messages that a browser must show as such.
	hostile = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`
)

// site is a cluster in which two replicas of Gatehouse have answered requests.
type site struct {
	*cluster.Cluster

	kubelet *kubelet.Kubelet
}

// newSite installs Gatehouse in a new cluster.
func newSite(t *testing.T) *site {
	t.Helper()
	if !cluster.Namespaced() {
		t.Fatal("a network namespace is needed, in which pods have addresses (hint: allow unprivileged user namespaces, or run as root)")
	}
	binary, err := gatehouse.Binary()
	must(t, err)
	s := &site{Cluster: cluster.New(t, cluster.Options{ControllerManager: true})}
	s.kubelet, err = kubelet.Start(t.Context(), kubelet.Options{
		Cluster: s.Cluster, Namespace: system, Dir: t.TempDir(), Programs: map[string]string{"gatehouse": binary},
	})
	must(t, err)
	t.Cleanup(func() {
		s.kubelet.Stop()
		for _, pod := range s.kubelet.Pods() {
			if content, _ := os.ReadFile(pod.Log()); t.Failed() {
				const most = 4 << 10
				t.Logf("pod %s logged, at the end:\n%s", pod.Name, content[max(0, len(content)-most):])
			}
		}
	})
	must(t, s.helm(t, "install", "gatehouse", "../../manifests/chart/gatehouse", "--namespace", system, "--create-namespace",
		"--set", "replicaCount=2,minReadySeconds=0,recording.enabled=true"))
	must(t, kubectl(t.Context(), s.Cluster, "rollout", "status", "deployment/gatehouse", "--namespace", system, "--timeout", support.Deadline.String()))
	return s
}

// helm runs a command of helm as the administrator.
func (s *site) helm(t *testing.T, args ...string) error {
	t.Helper()
	program, err := support.Built("installers", "installers", "helm")
	if err != nil {
		return err
	}
	home := t.TempDir()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_DATA_HOME="+home)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, said.Bytes())
	}
	return nil
}

// user returns the kubeconfig of a user, and a client with the same rights.
func (s *site) user(t *testing.T, name string) (kubeconfig string, client kubernetes.Interface) {
	t.Helper()
	access, err := s.ConfigFor(name)
	must(t, err)
	access.WarningHandler = rest.NoWarnings{}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, cluster.WriteKubeconfig(kubeconfig, access.Host, access.CAData, access.CertData, access.KeyData))
	client, err = kubernetes.NewForConfig(access)
	must(t, err)
	return kubeconfig, client
}

// fill makes what the pages show: objects in the namespaces of two teams, what decides on them, and decisions on requests of both.
func (s *site) fill(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{shop, mall} {
		must(t, s.CreateNamespace(t.Context(), namespace, map[string]string{"logs": "shipped"}))
	}
	for _, binding := range documentParts(t, documentRights) {
		must(t, kubectl(t.Context(), s.Cluster, append(strings.Fields(binding), "--user="+operator)...))
	}
	must(t, kubectl(t.Context(), s.Cluster, "apply", "--filename", "testdata/rights", "--filename", "testdata/objects"))
	_, annas := s.user(t, anna)
	_, bens := s.user(t, ben)
	must(t, kubectl(t.Context(), s.Cluster, "wait", "--for=condition=Ready", "admissionpolicies,sidecarprofiles", "--all", "--timeout", support.Deadline.String()))
	// What they match is sent a moment later.
	must(t, kubectl(t.Context(), s.Cluster, "wait", "--for=condition=Degraded=False", "admissionpolicies", "--all", "--timeout", support.Deadline.String()))
	for i := range 20 {
		for namespace, client := range map[string]kubernetes.Interface{shop: annas, mall: bens} {
			image := "registry.example/app:1"
			if i%5 == 0 {
				image = "old.example/app:1"
			}
			_, err := create(t.Context(), client, namespace, pod(fmt.Sprintf("%s-app-%d", namespace, i), image, "app"))
			if refused := err != nil && strings.Contains(err.Error(), "denied the request"); refused != (i%5 == 0) {
				t.Fatalf("pod %d of %s: %v", i, namespace, err)
			}
		}
	}
	// A value that a rule repeats in its message.
	hostilePod := pod("hostile", "registry.example/app:1", "app")
	hostilePod.Annotations = map[string]string{"example.com/owner": hostile + "\x1b[31m\u202egnp.exe"}
	if _, err := create(t.Context(), annas, shop, hostilePod); err == nil || !strings.Contains(err.Error(), "denied the request") {
		t.Fatalf("the pod with hostile text: %v", err)
	}
}

// create creates a pod without storing it.
func create(ctx context.Context, client kubernetes.Interface, namespace string, p *corev1.Pod) (*corev1.Pod, error) {
	return client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// pod has one container.
func pod(name, image, container string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: image}}},
	}
}
