package authz_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
)

// request reads "VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] [-n NAMESPACE]", or "VERB /path".
func request(text string) *authorizationv1.SubjectAccessReviewSpec {
	words := strings.Fields(text)
	r := &authorizationv1.SubjectAccessReviewSpec{User: "jane", Groups: []string{"dev"}}
	if strings.HasPrefix(words[1], "/") {
		r.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: words[0], Path: words[1]}
		return r
	}
	a := &authorizationv1.ResourceAttributes{Verb: words[0], Version: "v1"}
	resource, sub, _ := strings.Cut(words[1], "/")
	a.Resource, a.Group, _ = strings.Cut(resource, ".")
	a.Subresource = sub
	for i := 2; i < len(words); i++ {
		if words[i] == "-n" {
			a.Namespace = words[i+1]
			i++
			continue
		}
		a.Name = words[i]
	}
	r.ResourceAttributes = a
	return r
}

func rules(text string) *v1alpha1.TokenScope {
	var all []v1alpha1.ScopeRule
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		panic(err)
	}
	return &v1alpha1.TokenScope{Rules: all}
}

func named(name string, namespaces ...string) *v1alpha1.TokenScope {
	return &v1alpha1.TokenScope{Name: name, Namespaces: namespaces}
}

func compile(t *testing.T) *authz.Set {
	t.Helper()
	set, err := authz.Compile(authz.Spec{Scopes: []v1alpha1.NamedScope{
		{Name: "deployer", Rules: rules(`[{"verbs":["get","patch"],"apiGroups":["apps"],"resources":["deployments"],"namespaces":["shop","web"]},{"verbs":["get"],"nonResourceURLs":["/metrics","/logs/*"]}]`).Rules},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestDecide(t *testing.T) {
	t.Parallel()
	everything := rules(`[{"verbs":["*"],"apiGroups":["*"],"resources":["*","*/status","*/scale"]},{"verbs":["*"],"nonResourceURLs":["*"]}]`)
	pods := rules(`[{"verbs":["get","list","watch","create","deletecollection"],"apiGroups":[""],"resources":["pods"],"resourceNames":["web"]}]`)
	for _, c := range []struct {
		name         string
		scope        *v1alpha1.TokenScope
		inside, outs []string
	}{
		{
			"view", named("view"),
			[]string{
				"get pods web -n shop", "list pods -n shop", "list pods", "watch pods", "get nodes n1", "list deployments.apps", "get deployments.apps/status web -n shop",
				"get deployments.apps/scale web -n shop", "get pods/log web -n shop", "list widgets.example.org", "get clusterroles.rbac.authorization.k8s.io view", "list accesstokens.gatehouse.dev",
			},
			[]string{
				"get secrets db -n shop", "list secrets", "watch secrets -n shop", "create pods -n shop", "delete pods web -n shop", "get pods/exec web -n shop", "create pods/exec web -n shop",
				"get pods/proxy web -n shop", "get nodes/proxy n1", "get services/proxy web -n shop", "get pods/attach web -n shop", "get pods/portforward web -n shop", "update pods/status web -n shop",
				"deletecollection pods -n shop", "impersonate users jane", "get /metrics", "get /logs/kubelet.log", "post /api", "create serviceaccounts/token ci -n shop", "* *", "* pods", "get *", "list secrets.*", "list pods.*/exec",
			},
		},
		{
			"view in a namespace", named("view", "shop"),
			[]string{"get pods web -n shop", "list pods -n shop", "get namespaces shop -n shop", "get pods/log web -n shop"},
			[]string{"list pods", "get pods web -n web", "get nodes n1", "list namespaces", "get namespaces web -n web", "get secrets db -n shop", "get /metrics"},
		},
		{
			"edit", named("edit"),
			[]string{
				"get nodes n1", "create pods -n shop", "create pods/exec web -n shop", "get pods/exec web -n shop", "create pods/eviction web -n shop", "patch deployments.apps web -n shop",
				"patch deployments.apps/scale web -n shop", "deletecollection jobs.batch -n shop", "delete configmaps c -n shop",
			},
			[]string{
				"get secrets db -n shop", "create secrets -n shop", "create serviceaccounts/token ci -n shop", "impersonate serviceaccounts ci -n shop", "create rolebindings.rbac.authorization.k8s.io -n shop",
				"create namespaces", "delete nodes n1", "create pods/proxy web -n shop", "create accesstokens.gatehouse.dev", "patch deployments.apps/status web -n shop", "create widgets.example.org -n shop",
			},
		},
		{
			"everything that * stands for", everything,
			[]string{
				"get pods web -n shop", "deletecollection pods -n shop", "create namespaces", "patch pods/status web -n shop", "update deployments.apps/scale web -n shop", "get /metrics", "post /anything", "head /logs/",
				"get accesstokens.gatehouse.dev a", "list clusterroles.rbac.authorization.k8s.io", "create sidecarprofiles.gatehouse.dev",
				"list customresourcedefinitions.apiextensions.k8s.io", "get tokenrevocations.gatehouse.dev t", "list mutatingwebhookconfigurations.admissionregistration.k8s.io", "get apiservices.apiregistration.k8s.io v1.example.org",
			},
			[]string{
				"impersonate users jane", "impersonate groups system:masters", "impersonate:user-info users jane", "impersonate serviceaccounts ci -n shop", "create serviceaccounts/token ci -n shop",
				"escalate clusterroles.rbac.authorization.k8s.io admin", "bind clusterroles.rbac.authorization.k8s.io admin", "create clusterrolebindings.rbac.authorization.k8s.io", "update roles.rbac.authorization.k8s.io r -n shop",
				"approve signers.certificates.k8s.io example.org/x", "create certificatesigningrequests.certificates.k8s.io", "update certificatesigningrequests.certificates.k8s.io/approval c",
				"create accesstokens.gatehouse.dev", "patch accesstokens.gatehouse.dev a", "patch accesstokens.gatehouse.dev/status a", "create grants.gatehouse.dev", "grant groups.gatehouse.dev admins", "delete tokenrevocations.gatehouse.dev t",
				"patch customresourcedefinitions.apiextensions.k8s.io accesstokens.gatehouse.dev", "create customresourcedefinitions.apiextensions.k8s.io",
				"create mutatingwebhookconfigurations.admissionregistration.k8s.io", "patch validatingwebhookconfigurations.admissionregistration.k8s.io w", "delete validatingadmissionpolicybindings.admissionregistration.k8s.io b",
				"deletecollection validatingadmissionpolicies.admissionregistration.k8s.io", "create apiservices.apiregistration.k8s.io", "update apiservices.apiregistration.k8s.io v1.example.org", "patch apiservices.apiregistration.k8s.io/status v1.example.org",
				"get secrets db -n shop", "list secrets", "create pods/exec web -n shop", "get pods/log web -n shop", "create pods/binding web -n shop", "use podsecuritypolicies.policy p", "* *", "* pods", "get *", "trace /x",
				"create clusterrolebindings.*", "list pods.*", "get /api/../metrics", "get //metrics",
			},
		},
		{
			"what has to be named, named", rules(`[{"verbs":["impersonate"],"apiGroups":[""],"resources":["users"],"resourceNames":["bot"]},{"verbs":["create"],"apiGroups":[""],"resources":["serviceaccounts/token"],"namespaces":["ci"]},
				{"verbs":["bind","escalate","create"],"apiGroups":["*"],"resources":["clusterroles","clusterrolebindings"]},{"verbs":["create"],"apiGroups":["apiregistration.k8s.io"],"resources":["apiservices"]},{"verbs":["*"],"apiGroups":["*"],"resources":["validatingwebhookconfigurations"]},{"verbs":["*"],"apiGroups":["*"],"resources":["secrets"]},{"verbs":["get"],"apiGroups":[""],"resources":["pods/exec"]}]`),
			[]string{
				"impersonate users bot", "create serviceaccounts/token default -n ci", "bind clusterroles.rbac.authorization.k8s.io admin", "create clusterrolebindings.rbac.authorization.k8s.io", "get secrets db -n shop",
				"deletecollection secrets -n shop", "get pods/exec web -n shop", "create apiservices.apiregistration.k8s.io", "patch validatingwebhookconfigurations.admissionregistration.k8s.io w",
			},
			[]string{
				"impersonate users jane", "impersonate groups bot", "impersonate users", "create serviceaccounts/token default -n shop", "create serviceaccounts -n ci", "create clusterrolebindings.rbac.authorization.k8s.io/status",
				"get pods web -n shop", "create pods/exec web -n shop", "escalate secrets db -n shop", "patch apiservices.apiregistration.k8s.io a",
				"create mutatingwebhookconfigurations.admissionregistration.k8s.io",
			},
		},
		{
			"names", pods,
			[]string{"get pods web -n shop", "get pods web -n other", "list pods web -n shop", "watch pods web -n shop"},
			[]string{"get pods db -n shop", "list pods -n shop", "watch pods -n shop", "create pods -n shop", "deletecollection pods -n shop", "get pods/log web -n shop", "get pods.metrics.k8s.io web -n shop", "delete pods web -n shop"},
		},
		{
			"of the configuration", named("deployer"),
			[]string{"patch deployments.apps web -n shop", "get deployments.apps web -n web", "get /metrics", "get /logs/a", "get /logs/"},
			[]string{"patch deployments.apps web -n other", "get deployments.apps web", "patch deployments.apps/scale web -n shop", "patch deployments.extensions web -n shop", "list deployments.apps -n shop", "get /logs", "get /logs/../metrics/x", "get /metrics/cadvisor", "post /metrics"},
		},
		{
			"of the configuration, narrowed", named("deployer", "web", "other"),
			[]string{"patch deployments.apps web -n web"},
			[]string{"patch deployments.apps web -n shop", "patch deployments.apps web -n other", "get /metrics"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t)
			always := []string{
				"create selfsubjectreviews.authentication.k8s.io", "create selfsubjectaccessreviews.authorization.k8s.io", "create selfsubjectrulesreviews.authorization.k8s.io",
				"get /api", "get /apis", "get /apis/apps/v1", "get /openapi/v3", "get /version", "get /healthz", "get /readyz", "get /livez", "head /api",
			}
			never := []string{
				"create subjectaccessreviews.authorization.k8s.io/x", "delete selfsubjectreviews.authentication.k8s.io", "create selfsubjectreviews", "create selfsubjectreviews.authentication.k8s.io/x",
				"put /api", "get /apix", "get /api/../../x",
			}
			check := func(texts []string, want authz.Outcome) {
				for _, text := range texts {
					r := request(text)
					r.Extra = map[string]authorizationv1.ExtraValue{v1alpha1.ScopeExtraKey: authz.Values(c.scope), "example.org/x": {"y"}}
					d := set.Decide(r)
					if d.Outcome != want {
						t.Errorf("%s: got %s (%s), want %s", text, d.Outcome, d.Reason, want)
					}
					if direct := set.DecideScope(c.scope, r); direct.Outcome != d.Outcome || direct.Reason != d.Reason || direct.Message != d.Message {
						t.Errorf("%s: got %+v of the scope itself, and %+v of the extra", text, direct, d)
					}
					if (d.Rule != nil) != (d.Reason == authz.ReasonRule) {
						t.Errorf("%s: %s with rule %v", text, d.Reason, d.Rule)
					}
					if want == authz.Denied && (d.Message != "outside of the scope of this token: "+authz.ScopeText(c.scope) || d.Reason != authz.ReasonOutside) {
						t.Errorf("%s: got %q", text, d.Message)
					}
				}
			}
			check(c.inside, authz.NoOpinion)
			check(c.outs, authz.Denied)
			check(always, authz.NoOpinion)
			if c.name != "everything that * stands for" {
				check(never, authz.Denied)
			}
		})
	}
}

// TestExtra: what the extra of a user may hold, and what not.
func TestExtra(t *testing.T) {
	t.Parallel()
	set := compile(t)
	rule := `{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}`
	for _, c := range []struct {
		name    string
		extra   map[string]authorizationv1.ExtraValue
		outcome authz.Outcome
		reason  authz.Reason
	}{
		{"no extra", nil, authz.NoOpinion, authz.ReasonUnscoped},
		{"another key", map[string]authorizationv1.ExtraValue{"gatehouse.dev/grant": {"view"}, "scope": {"view"}}, authz.NoOpinion, authz.ReasonUnscoped},
		{"a rule", extra(rule), authz.NoOpinion, authz.ReasonRule},
		{"a rule in a namespace", extra(rule, "namespace=shop"), authz.NoOpinion, authz.ReasonRule},
		{"a rule in another namespace", extra(rule, "namespace=web"), authz.Denied, authz.ReasonOutside},
		{"no value", extra(), authz.Denied, authz.ReasonMalformed},
		{"an empty value", extra(""), authz.Denied, authz.ReasonMalformed},
		{"a namespace alone", extra("namespace=shop"), authz.Denied, authz.ReasonMalformed},
		{"two names", extra("view", "edit"), authz.Denied, authz.ReasonMalformed},
		{"a name and a rule", extra("edit", rule), authz.Denied, authz.ReasonMalformed},
		{"an empty rule", extra("{}"), authz.Denied, authz.ReasonOutside},
		{"a member of another version", extra(`{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"unless":["x"]}`), authz.Denied, authz.ReasonMalformed},
		{"text behind a rule", extra(rule + rule), authz.Denied, authz.ReasonMalformed},
		{"no JSON", extra(`{"verbs"`), authz.Denied, authz.ReasonMalformed},
		{"null, which is a label", extra("null"), authz.Unknown, authz.ReasonUnknownScope},
		{"an unknown name", extra("auditor"), authz.Unknown, authz.ReasonUnknownScope},
		{"an upper-case name", extra("View"), authz.Denied, authz.ReasonMalformed},
		{"many values", extra(append([]string{"view"}, repeat("namespace=shop", 64)...)...), authz.Denied, authz.ReasonMalformed},
		{"large values", extra("view", "namespace="+strings.Repeat("x", 4096)), authz.Denied, authz.ReasonMalformed},
		{"a probe", extra(authz.ProbeDenied), authz.Denied, authz.ReasonProbe},
		{"a probe of the failure policy", extra(authz.ProbeUndecided), authz.Unknown, authz.ReasonProbe},
		{"a probe and a name", extra(authz.ProbeDenied, "view"), authz.Denied, authz.ReasonMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := request("get pods web -n shop")
			r.Extra = c.extra
			if d := set.Decide(r); d.Outcome != c.outcome || d.Reason != c.reason {
				t.Errorf("got %s (%s): %s", d.Outcome, d.Reason, d.Message)
			}
		})
	}
	for name, r := range map[string]*authorizationv1.SubjectAccessReviewSpec{
		"neither a resource nor a URL": {Extra: extra("edit")},
		"both": {
			Extra:                 extra("view"),
			ResourceAttributes:    &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/api"},
		},
		"an empty resource": {Extra: extra("view"), ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get"}},
		"selectors alone": {Extra: extra(rule, "namespace=shop"), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "pods",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "metadata.namespace", Operator: "In", Values: []string{"shop"}}}},
		}},
	} {
		if d := set.Decide(r); d.Outcome != authz.Denied {
			t.Errorf("%s: got %s (%s)", name, d.Outcome, d.Reason)
		}
	}
}

func extra(values ...string) map[string]authorizationv1.ExtraValue {
	return map[string]authorizationv1.ExtraValue{v1alpha1.ScopeExtraKey: values}
}

func repeat(text string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = text
	}
	return all
}

func TestCheckScope(t *testing.T) {
	t.Parallel()
	set := compile(t)
	large := rules(`[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`)
	for range 64 {
		large.Rules[0].ResourceNames = append(large.Rules[0].ResourceNames, strings.Repeat(string(rune('a'+len(large.Rules[0].ResourceNames)%26)), 60+len(large.Rules[0].ResourceNames)))
	}
	for _, c := range []struct {
		name  string
		scope *v1alpha1.TokenScope
		want  []string
	}{
		{"a name", named("view"), nil},
		{"a configured name in namespaces", named("deployer", "shop", "web"), nil},
		{"rules", rules(`[{"verbs":["*","impersonate:user-info"],"apiGroups":["","apps","*"],"resources":["*","*/status","pods/exec","userextras/example.org/x"],"resourceNames":["system:node"],"namespaces":["shop"]}]`), nil},
		{"a typing error", named("veiw"), []string{`spec.scope.name: "veiw" is not the name of a scope (hint: did you mean "view"?)`}},
		{"nothing", &v1alpha1.TokenScope{}, []string{"spec.scope: has neither a name nor rules"}},
		{"both", &v1alpha1.TokenScope{Name: "view", Rules: rules(`[{"verbs":["get"]}]`).Rules}, []string{"spec.scope: has both a name and rules"}},
		{"a namespace that is none", named("view", "Shop"), []string{`spec.scope.namespaces[0]: "Shop"`}},
		{"an empty rule", rules(`[{}]`), []string{"rules[0].verbs: is empty", "rules[0].apiGroups: is empty", "rules[0].resources: is empty"}},
		{"wildcards in places", rules(`[{"verbs":["get*"],"apiGroups":["*.k8s.io"],"resources":["pods/*","*/exec","*/*"],"resourceNames":["*"],"namespaces":["*"]}]`), []string{
			`verbs[0]: "get*"`, `apiGroups[0]: "*.k8s.io"`, `resources[0]: "pods/*"`, `resources[1]: "*/exec"`, `resources[2]: "*/*"`, `resourceNames[0]: "*"`, `namespaces[0]: "*"`,
		}},
		{"upper case, kinds", rules(`[{"verbs":["Get"],"apiGroups":[""],"resources":["Pod"]}]`), []string{`verbs[0]: "Get"`, `resources[0]: "Pod"`}},
		{"URLs with resources", rules(`[{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"nonResourceURLs":["metrics","/a*b"]}]`), []string{"nonResourceURLs: excludes", `nonResourceURLs[0]: "metrics"`, `nonResourceURLs[1]: "/a*b"`}},
		{"twice, empty", rules(`[{"verbs":["get","get"],"apiGroups":[""],"resources":["pods"],"resourceNames":[""]}]`), []string{`verbs[1]: "get" is listed twice`, `resourceNames[0]: "" must not be empty`}},
		{"too large", large, []string{"as JSON, at most 4096"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := set.CheckScope("spec.scope", c.scope)
			if len(found) != len(c.want) {
				t.Errorf("got %v, want %q", found, c.want)
			}
			for i := range min(len(found), len(c.want)) {
				if !strings.Contains(found[i].String(), c.want[i]) {
					t.Errorf("got %q, want %q", found[i].String(), c.want[i])
				}
			}
		})
	}
}

func TestCompile(t *testing.T) {
	t.Parallel()
	ok := rules(`[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`).Rules
	_, err := authz.Compile(authz.Spec{Source: "auth.yaml", Scopes: []v1alpha1.NamedScope{{Name: "view", Rules: ok}, {Name: "A b", Rules: ok}, {Name: "x"}, {Name: "x", Rules: ok}}})
	if err == nil {
		t.Fatal("compiled")
	}
	for _, want := range []string{
		`auth.yaml: AuthenticationConfiguration: scopes[0].name: "view" is a scope of Gatehouse itself`, `scopes[1].name: "A b"`, `scopes[2].rules: is empty`, `scopes[3].name: "x" is already`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	var none *authz.Set
	if got := none.Names(); !reflect.DeepEqual(got, []string{"view", "edit"}) {
		t.Errorf("got %q", got)
	}
	if got := compile(t).Names(); !reflect.DeepEqual(got, []string{"view", "edit", "deployer"}) {
		t.Errorf("got %q", got)
	}
	// Gatehouse's own scopes are valid by its own rules, and fit.
	for _, name := range none.Names() {
		own, _ := none.Rules(name)
		for _, problem := range authz.CheckNamed("", []v1alpha1.NamedScope{{Name: "own", Rules: own}}) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// FuzzDecide: whatever the extra holds, nothing is allowed by it that no scope at all would deny, and nothing panics.
func FuzzDecide(f *testing.F) {
	f.Add("view", "namespace=shop", "get", "", "pods", "", "web", "shop")
	f.Add(`{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}`, "", "impersonate", "", "users", "", "jane", "")
	set, err := authz.Compile(authz.Spec{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, second, verb, group, resource, sub, name, namespace string) {
		r := &authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name, Namespace: namespace,
		}}
		r.Extra = extra(first, second)
		d := set.Decide(r)
		if d.Outcome == authz.NoOpinion && d.Reason == authz.ReasonRule && !strings.Contains(first+second, "impersonate") && !strings.Contains(first+second, "\\") && strings.HasPrefix(verb, "impersonate") {
			t.Errorf("%q, %q include %s", first, second, verb)
		}
		if d.Outcome == authz.NoOpinion && d.Reason == authz.ReasonUnscoped {
			t.Errorf("%q, %q are no scope", first, second)
		}
	})
}
