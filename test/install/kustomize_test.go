package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// TestKustomizeExample: the example patches what a release has, and changes nothing else.
func TestKustomizeExample(t *testing.T) {
	t.Parallel()
	program, err := support.Built("installers", "installers", "kustomize")
	must(t, err)
	directory, base := t.TempDir(), installed(t, false)
	must(t, os.CopyFS(directory, os.DirFS(filepath.Join(root(t), "manifests/examples/kustomize"))))
	must(t, os.WriteFile(filepath.Join(directory, "install.yaml"), base.text, 0o600))
	example := filepath.Join(directory, "kustomization.yaml")
	text, err := os.ReadFile(example)
	must(t, err)
	const release = "https://github.com/gatehouse-dev/gatehouse/releases/download/v0.1.0/install.yaml"
	if strings.Count(string(text), release) != 1 {
		t.Fatalf("the base is not %s:\n%s", release, text)
	}
	must(t, os.WriteFile(example, []byte(strings.Replace(string(text), release, "install.yaml", 1)), 0o600))
	v := newVariant(t, "kustomize", run(t, program, "build", directory))
	if len(v.objects) != len(base.objects)+1 {
		t.Errorf("%d objects become %d, want one more", len(base.objects), len(v.objects))
	}
	v.find(t, "ConfigMap", "gatehouse-config")
	pod := as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec
	c, args := pod.Containers[0], strings.Join(pod.Containers[0].Args, " ")
	if c.Image != "registry.example/gatehouse:0.1.0" || !strings.Contains(args, "--client-ca=/etc/gatehouse-client-ca/ca.crt") || len(pod.Volumes) != 2 || len(c.VolumeMounts) != 2 {
		t.Errorf("the container is %+v, with %d volumes", c, len(pod.Volumes))
	}
}
