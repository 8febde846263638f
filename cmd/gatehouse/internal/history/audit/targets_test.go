package audit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// matching returns an AdmissionPolicy with this rule, and more of its spec.
func matching(rule, more string) string {
	return fmt.Sprintf(`{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: p}, spec: {
  matchConstraints: {resourceRules: [{%s}]%s}, workloadTemplates: Ignore, validationActions: [Deny], validations: [{expression: "true"}]}}`, rule, more)
}

// TestTargets has what policies match, in which version, and what is never read.
func TestTargets(t *testing.T) {
	t.Parallel()
	const bound = `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]%s}}`
	unbound := func(text string) string { return strings.Replace(text, "validationActions: [Deny], ", "", 1) }
	for name, tc := range map[string]struct {
		documents []string
		want      string
		unknown   []string
	}{
		"literal":               {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, "configmaps/*"]`, "")}, "v1/configmaps v1/pods", nil},
		"all operations":        {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]`, "")}, "v1/pods", nil},
		"updates":               {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: [UPDATE, DELETE], resources: [pods]`, "")}, "", nil},
		"subresources":          {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/exec, "*/status"]`, "")}, "", nil},
		"never sent":            {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [events, nodes]`, "")}, "", nil},
		"wildcards":             {[]string{matching(`apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["*/*"]`, "")}, "v1/configmaps v1/namespaces v1/pods apps/v1/deployments example.com/v1/widgets rbac.authorization.k8s.io/v1/clusterroles", nil},
		"wildcards and secrets": {[]string{matching(`apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [secrets]`, "")}, "v1/secrets", nil},
		"in namespaces":         {[]string{matching(`apiGroups: ["", rbac.authorization.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: ["*"], scope: Namespaced`, "")}, "v1/configmaps v1/pods", nil},
		"in no namespace":       {[]string{matching(`apiGroups: ["", rbac.authorization.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: ["*"], scope: Cluster`, "")}, "v1/namespaces rbac.authorization.k8s.io/v1/clusterroles", nil},
		"excluded":              {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, configmaps]`, `, excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]`)}, "v1/configmaps", nil},
		"excluded by name":      {[]string{matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]`, `, excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods], resourceNames: [a]}]`)}, "v1/pods", nil},
		"not active":            {[]string{unbound(matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]`, ""))}, "", nil},
		"bound":                 {[]string{unbound(matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]`, "")), fmt.Sprintf(bound, "")}, "v1/pods", nil},
		"bound to less":         {[]string{unbound(matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, configmaps]`, "")), fmt.Sprintf(bound, `, matchResources: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}`)}, "v1/configmaps", nil},
		"an equivalent version": {[]string{matching(`apiGroups: [example.com], apiVersions: [v1beta1], operations: [CREATE], resources: [widgets]`, "")}, "example.com/v1beta1/widgets", nil},
		"the version of most":   {[]string{matching(`apiGroups: [example.com], apiVersions: [v1beta1, v1], operations: [CREATE], resources: [widgets]`, "")}, "example.com/v1/widgets", nil},
		"no such version":       {[]string{matching(`apiGroups: [example.com], apiVersions: [v2], operations: [CREATE], resources: [widgets]`, "")}, "", []string{"widgets.example.com (v2)"}},
		"no such resource":      {[]string{matching(`apiGroups: [example.com, ""], apiVersions: [v1], operations: [CREATE], resources: [pods, gadgets]`, "")}, "v1/pods", []string{"gadgets", "gadgets.example.com", "pods.example.com"}},
		"profiles":              {[]string{profile}, "v1/pods apps/v1/deployments", nil},
		"templates":             {[]string{strings.Replace(matching(`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]`, ""), "Ignore", "Check", 1)}, "v1/pods apps/v1/deployments", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := compile(t, tc.documents...)
			served, err := audit.Discover(t.Context(), server().Config("audit"))
			if err != nil {
				t.Fatal(err)
			}
			targets, unknown := audit.Targets(c, served)
			var got []string
			for _, target := range targets {
				got = append(got, target.GroupVersion().String()+"/"+target.Resource)
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !slices.Equal(unknown, tc.unknown) {
				t.Errorf("unknown are %q, want %q", unknown, tc.unknown)
			}
		})
	}
}

// TestUndiscovered names a group that policies need and that cannot be discovered.
func TestUndiscovered(t *testing.T) {
	t.Parallel()
	s := server()
	s.Intercept = func(r *fakeapi.Request) (any, error) {
		if r.String() == "get /apis/example.com/v1" || r.String() == "get /apis/example.com/v1beta1" {
			return nil, fmt.Errorf("the service does not answer")
		}
		return nil, nil
	}
	out, err := audit.Run(t.Context(), options(t, s, policyOf("p", "example.com/widgets", `validations: [{expression: "true"}]`)), new(found))
	if err != nil || out.Complete || len(out.Unknown) != 1 || !strings.HasPrefix(out.Unknown[0], "widgets.example.com: example.com/v1") || !strings.Contains(out.Unknown[0], "the service does not answer") {
		t.Errorf("%v, %+v", err, out)
	}
	discovered, err := audit.Discover(t.Context(), s.Config("audit"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		resources string
		want      int
	}{"named": {"example.com/widgets", 0}, "not named": {"example.com/*", 1}, "of another group": {"apps/*", 0}} {
		c, _ := compile(t, policyOf("p", tc.resources, `workloadTemplates: Ignore, validations: [{expression: "true"}]`))
		if errs := audit.Unknown(c, discovered); len(errs) < tc.want || len(errs) > 2*tc.want || tc.want > 0 && !strings.Contains(errs[0].Error(), "the service does not answer") {
			t.Errorf("%s: rights may be missing: %v", name, errs)
		}
	}
	i := slices.IndexFunc(out.Coverage, func(c audit.Coverage) bool { return c.GroupResource().String() == "*.example.com" })
	if i < 0 || out.Coverage[i].Complete || !strings.Contains(out.Coverage[i].Problem, "cannot be discovered: ") || !slices.Equal(out.Coverage[i].Policies, []string{"p"}) {
		t.Errorf("the coverage is %+v", out.Coverage)
	}
}

// TestCoveredPolicies: a policy about pods is about what has pod templates too.
func TestCoveredPolicies(t *testing.T) {
	t.Parallel()
	out, err := audit.Run(t.Context(), options(t, server(), policyOf("pods", "pods", `validations: [{expression: "true"}]`), policyOf("maps", "configmaps", `validations: [{expression: "true"}]`)), new(found))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range out.Coverage {
		got[c.Resource] = strings.Join(c.Policies, ",")
	}
	if want := map[string]string{"pods": "pods", "deployments": "pods", "configmaps": "maps"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRights has exactly what policies name, and never a wildcard.
func TestRights(t *testing.T) {
	t.Parallel()
	served, err := audit.Discover(t.Context(), server().Config("audit"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		document   string
		want, more string
	}{
		"literal":      {matching(`apiGroups: ["", apps], apiVersions: [v1], operations: [CREATE], resources: [configmaps, pods/exec, events]`, ""), ": configmaps,namespaces; apps: configmaps,events", ": configmaps,namespaces; apps: configmaps,events"},
		"wildcards":    {matching(`apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["*"]`, ""), ": namespaces", ": configmaps,namespaces,pods; apps: deployments; example.com: widgets; rbac.authorization.k8s.io: clusterroles"},
		"secrets":      {matching(`apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [secrets]`, ""), ": namespaces,secrets", ": namespaces,secrets"},
		"all in group": {matching(`apiGroups: [apps], apiVersions: ["*"], operations: [CREATE], resources: ["*"]`, ""), ": namespaces", ": namespaces; apps: deployments"},
		"profiles": {
			profile, ": namespaces,pods,podtemplates,replicationcontrollers; apps: daemonsets,deployments,replicasets,statefulsets; batch: cronjobs,jobs",
			": namespaces,pods,podtemplates,replicationcontrollers; apps: daemonsets,deployments,replicasets,statefulsets; batch: cronjobs,jobs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := compile(t, tc.document)
			if got := rights(t, audit.Rights(c, nil)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := rights(t, audit.Rights(c, served)); got != tc.more {
				t.Errorf("with what is served got %q, want %q", got, tc.more)
			}
		})
	}
}

func rights(t *testing.T, rules []rbacv1.PolicyRule) string {
	t.Helper()
	var out []string
	for _, r := range rules {
		if !slices.Equal(r.Verbs, []string{"list"}) || len(r.ResourceNames) > 0 {
			t.Errorf("rule %+v", r)
		}
		out = append(out, strings.Join(r.APIGroups, ",")+": "+strings.Join(r.Resources, ","))
	}
	text := strings.Join(out, "; ")
	if strings.Contains(text, "*") {
		t.Errorf("there is a wildcard in %s", text)
	}
	return text
}
