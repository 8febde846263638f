package install

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

// TestRoles: the roles for people are there, those that messages name too, and what Kubernetes' own roles get from them is not
// more than it may be: no right to write what is namespaced, and no access tokens for those who may not decide on logins.
func TestRoles(t *testing.T) {
	t.Parallel()
	roles := map[string]*rbacv1.ClusterRole{}
	for _, o := range helm(t).objects {
		if o.GetKind() == "ClusterRole" {
			role := &rbacv1.ClusterRole{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
				t.Fatal(err)
			}
			roles[role.Name] = role
		}
	}
	for _, name := range []string{apierr.RoleAdmin, apierr.RoleAuditor, apierr.RoleConsole, "gatehouse-view", "gatehouse-edit", "gatehouse-exceptions", "gatehouse-resources", "gatehouse-context"} {
		if roles[name] == nil {
			t.Errorf("there is no ClusterRole %s", name)
		}
	}
	aggregated := map[string][]string{
		"view":  {"admissionpolicies", "admissionpolicybindings", "policybaselines", "policyexceptions", "sidecarprofiles"},
		"edit":  {"admissionpolicies", "admissionpolicybindings", "sidecarprofiles"},
		"admin": {"accesstokens", "grants", "tokenrevocations"},
	}
	for to, resources := range aggregated {
		var got []string
		for _, role := range roles {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] != "true" {
				continue
			}
			for _, rule := range role.Rules {
				got = append(got, rule.Resources...)
				if writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }); writes == (to == "view") {
					t.Errorf("%s: verbs %q for %s", role.Name, strings.Join(rule.Verbs, " "), to)
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, resources) {
			t.Errorf("%s gets %q, want %q", to, got, resources)
		}
	}
}
