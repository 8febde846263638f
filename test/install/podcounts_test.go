package install

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestPodCounts: the right to list all pods is given with the flag that makes use of it, and only then.
func TestPodCounts(t *testing.T) {
	t.Parallel()
	check := func(v *variant, wanted bool) {
		t.Helper()
		role := as[rbacv1.ClusterRole](t, v.find(t, "ClusterRole", "gatehouse-resources"))
		given := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
		args := as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec.Containers[0].Args
		if counted := slices.Contains(args, "--count-pods-every=5m"); counted != wanted || given != wanted {
			t.Errorf("%s: pods are counted: %v, with the right to list them: %v, want both %v", v.name, counted, given, wanted)
		}
	}
	check(kustomizedWith(t, "count-pods"), true)
	check(chartedWith(t, `podCounts.every="5m"`), true)
	for _, v := range variants(t) {
		check(v, false)
	}
}
