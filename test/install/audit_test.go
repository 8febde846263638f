package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestAudit: an audit has the rights that it is given, none of which is to everything, and a value that would be is an error.
func TestAudit(t *testing.T) {
	t.Parallel()
	v := chartedWith(t, `audit.enabled=true`, `audit.every="10m"`, `audit.qps=0.5`,
		`audit.rules=[{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get","list"]}]`)
	var flags []string
	for _, arg := range as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--audit-") {
			flags = append(flags, arg)
		}
	}
	want := []string{"--audit-every=10m", "--audit-qps=0.5", "--audit-exclude-namespace=cert-manager"}
	if !slices.Equal(flags, want) {
		t.Errorf("the flags are %q, want %q", flags, want)
	}
	if rules := as[rbacv1.ClusterRole](t, v.find(t, "ClusterRole", "gatehouse-audit")).Rules; len(rules) != 1 || !slices.Equal(rules[0].Resources, []string{"deployments"}) {
		t.Errorf("the rules are %v", rules)
	}
	for _, refused := range []string{
		`audit.rules=[{"apiGroups":["*"],"resources":["pods"],"verbs":["list"]}]`, `audit.rules=[{"apiGroups":[""],"resources":["*"],"verbs":["list"]}]`,
		`audit.rules=[{"apiGroups":[""],"resources":["pods"],"verbs":["delete"]}]`, `audit.every="1s"`,
	} {
		if templated(t, `audit.enabled=true`, refused) == "" {
			t.Errorf("helm takes %s", refused)
		}
	}
}
