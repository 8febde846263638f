package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestAuditIsTheSame: the component and the chart audit alike.
func TestAuditIsTheSame(t *testing.T) {
	t.Parallel()
	kustomize, helm := kustomizedWith(t, "audit"), chartedWith(t, `audit.enabled=true`)
	if difference := compare(comparableObjects(kustomize), comparableObjects(helm)); difference != "" {
		t.Error(difference)
	}
}

// TestAudit: an audit may read what it is told, by name, and nothing is audited, and no right given, unless somebody asks for it.
func TestAudit(t *testing.T) {
	t.Parallel()
	const rules = `audit.rules=[{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get","list"]}]`
	isAudit := func(v *variant) (flags, roles []string) {
		for _, arg := range as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "--audit-") {
				flags = append(flags, arg)
			}
		}
		for _, o := range v.objects {
			if o.GetKind() == "ClusterRole" && strings.HasPrefix(o.GetName(), "gatehouse-audit") {
				roles = append(roles, o.GetName())
				for _, r := range as[rbacv1.ClusterRole](t, o).Rules {
					if slices.Contains(r.Resources, "*") || slices.Contains(r.APIGroups, "*") || slices.Contains(r.Verbs, "*") {
						t.Errorf("%s: %s has the rule %+v", v.name, o.GetName(), r)
					}
				}
			}
		}
		return flags, roles
	}
	for _, c := range []struct {
		v            *variant
		flags, roles []string
	}{
		{
			chartedWith(t, `audit.enabled=true`, `audit.every="10m"`, `audit.qps=0.5`, `audit.results=20`, `audit.reportsBytes="500Ki"`, `audit.policyReports=true`, rules),
			[]string{"--audit-every=10m", "--audit-qps=0.5", "--audit-results=20", "--audit-reports-bytes=500Ki", "--audit-policy-reports", "--audit-exclude-namespace=cert-manager"},
			[]string{"gatehouse-audit-reports", "gatehouse-audit"},
		},
		{chartedWith(t, `audit.enabled=true`, `webhooks.excludeNamespaces=["storage"]`), []string{"--audit-every=1h", "--audit-qps=5", "--audit-results=100", "--audit-reports-bytes=2Mi", "--audit-exclude-namespace=cert-manager", "--audit-exclude-namespace=storage"}, []string{"gatehouse-audit-reports"}},
		{chartedWith(t, rules), nil, nil},
	} {
		flags, roles := isAudit(c.v)
		slices.Sort(roles)
		slices.Sort(c.roles)
		if !slices.Equal(flags, c.flags) || !slices.Equal(roles, c.roles) {
			t.Errorf("%s: %q with the roles %q, want %q and %q", c.v.name, flags, roles, c.flags, c.roles)
		}
	}
	for _, v := range variants(t) {
		if flags, roles := isAudit(v); len(flags)+len(roles) > 0 {
			t.Errorf("%s: %q with the roles %q", v.name, flags, roles)
		}
	}
	for _, refused := range []string{
		`audit.rules=[{"apiGroups":["*"],"resources":["pods"],"verbs":["list"]}]`, `audit.rules=[{"apiGroups":[""],"resources":["*"],"verbs":["list"]}]`,
		`audit.rules=[{"apiGroups":[""],"resources":["pods"],"verbs":["delete"]}]`, `audit.every="1s"`, `audit.results=501`,
	} {
		if templated(t, `audit.enabled=true`, refused) == "" {
			t.Errorf("helm takes %s", refused)
		}
	}
}
