package install

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// registered is the install of a release with webhooks for pods and workloads, as nobody runs the program that writes its own rules.
func registered(t *testing.T) *variant {
	t.Helper()
	webhooks := newVariant(t, "manifests", run(t, binary(t), "manifests", "--service", system+"/"+name, "--certificates", "self-signed", "--custom-resources", "--part", "registration"))
	all := chartedWith(t, `namespace.create=true`, `webhooks={"create":false,"guard":{"enabled":true}}`)
	return &variant{name: "registered", objects: slices.Concat(all.objects, webhooks.objects)}
}

// uninstall runs the command with the kubeconfig, which deletes so many configurations.
func (s *site) uninstall(t *testing.T, kubeconfig string, deleted int, args ...string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), binary(t), append([]string{"uninstall", "--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
	if err != nil || strings.Count(string(output), "deleted ") != deleted {
		t.Errorf("uninstall %q ends with %v, want %d deletions: %s", args, err, deleted, output)
	}
}

// tryPod creates a pod that asks for a sidecar, in a tenant's namespace.
func (s *site) tryPod(ctx context.Context, namespace string) error {
	_, err := s.Client().CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Annotations: map[string]string{"sidecar.gatehouse.dev/inject": "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// TestUninstall: from an install with nobody who answers, which refuses what fails closed, to a cluster that waits for nobody, by what the
// chart runs before it deletes anything, with exactly its rights.
func TestUninstall(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{ControllerManager: true})
	s.install(t, registered(t))
	tenant := s.NewNamespace(t, nil)
	blocked := func() error {
		if err := s.tryPod(t.Context(), tenant); err == nil || !strings.Contains(err.Error(), "gatehouse.dev") {
			return fmt.Errorf("a pod is not refused while Gatehouse is away: %w", err)
		}
		return nil
	}
	support.Eventually(t, "the registrations are in force", blocked)
	s.uninstall(t, s.Kubeconfig(), 0, "--dry-run")
	must(t, blocked())

	hook := &variant{}
	var account string
	var args []string
	for _, o := range helm(t).objects {
		if !isHook(o) {
			continue
		}
		if o.GetKind() == "Job" {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			must(t, err)
			args, _, err = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			must(t, err)
			account, _, err = unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
			must(t, err)
			continue
		}
		o = o.DeepCopy()
		o.SetAnnotations(nil) // not for a moment only
		if o.GetKind() != "Pod" {
			hook.objects = append(hook.objects, o)
		}
	}
	s.install(t, hook)
	token, err := s.Client().CoreV1().ServiceAccounts(system).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: s.Config().Host, CertificateAuthority: s.CAFile()}
	config.AuthInfos["x"], config.Contexts["x"], config.CurrentContext = &clientcmdapi.AuthInfo{Token: token.Status.Token}, &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}, "x"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, kubeconfig))
	args = slices.DeleteFunc(args, func(arg string) bool { return arg == "uninstall" || arg == "--in-cluster" })
	for _, deleted := range []int{2, 0} {
		s.uninstall(t, kubeconfig, deleted, args...)
		must(t, s.tryPod(t.Context(), tenant)) // at once: uninstall has waited
	}
}
