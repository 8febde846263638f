package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/installers"
)

// counting renders the install with counts of pods, once by kustomize and once by Helm.
func counting(t *testing.T) (kustomize, helm *variant) {
	t.Helper()
	program, err := installers.Binary(installers.Kustomize)
	must(t, err)
	overlay := filepath.Join(t.TempDir(), "counting")
	must(t, os.Mkdir(overlay, 0o700))
	below := func(name string) string { // kustomize takes relative paths only
		path, err := filepath.Rel(overlay, filepath.Join(root(t), "manifests/kustomize", name))
		must(t, err)
		return path
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{below("overlays/self-signed")}, "components": []string{below("components/count-pods")},
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), raw, 0o600))
	kustomize = newVariant(t, "kustomize counting", run(t, program, "build", overlay))

	program, err = installers.Binary(installers.Helm)
	must(t, err)
	directory := filepath.Join(root(t), chart)
	helm = newVariant(t, "helm counting", run(t, program, "template", name, directory, "--namespace", system, "--include-crds",
		"--values", filepath.Join(directory, "ci", "self-signed-values.yaml"), "--set", "podCounts.every=5m"))
	return kustomize, helm
}

// TestPodCounts: the right to list all pods is given with the flag that makes use of it, and only then.
func TestPodCounts(t *testing.T) {
	t.Parallel()
	kustomize, helm := counting(t)
	check := func(v *variant, wanted bool) {
		t.Helper()
		role := as[rbacv1.ClusterRole](t, v.find(t, "ClusterRole", "gatehouse-resources"))
		given := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
		args := as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec.Containers[0].Args
		if counted := slices.Contains(args, "--count-pods-every=5m"); counted != wanted || given != wanted {
			t.Errorf("%s: pods are counted: %v, with the right to list them: %v, want both %v", v.name, counted, given, wanted)
		}
	}
	check(kustomize, true)
	check(helm, true)
	for _, v := range variants(t) {
		check(v, false)
	}
}
