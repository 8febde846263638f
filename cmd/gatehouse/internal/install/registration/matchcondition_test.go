package registration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// conditioned is a policy of ours with match conditions.
func conditioned(name string, failurePolicy admissionregistrationv1.FailurePolicyType, rules []testRule, conditions ...string) policy.AdmissionPolicy {
	s := specWith(failurePolicy, rules...)
	for i, c := range conditions {
		s.MatchConditions = append(s.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: c})
	}
	return ours(name, s)
}

func registered(t *testing.T, policies ...policy.AdmissionPolicy) (ruleSets, []string) {
	t.Helper()
	o := &Options{Spec: &webhooks.Spec{Policy: policy.Spec{AdmissionPolicies: policies}}}
	sets, notes, err := o.policyRules()
	if err != nil {
		t.Fatal(err)
	}
	return sets, notes
}

func TestPushedConditions(t *testing.T) {
	t.Parallel()
	pods := []testRule{named("", "v1", "pods", create, update)}
	const (
		notAdmin = `request.userInfo.username != "admin"`
		inPods   = `request.operation in ["CREATE", "UPDATE"] && request.resource.resource == "pods" && !has(request.subResource)`
	)
	withTemplates := conditioned("t", "", pods, notAdmin)
	withTemplates.Spec.WorkloadTemplates = ""
	for name, c := range map[string]struct {
		policies []policy.AdmissionPolicy
		want     string // the expression, "" for none
		note     string
	}{
		"nothing to say": {[]policy.AdmissionPolicy{conditioned("a", "", pods)}, "", ""},
		"one": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, notAdmin)},
			inPods + ` && (` + notAdmin + `)`, "",
		},
		"conditions are all to be true": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, notAdmin, "true")},
			inPods + ` && (` + notAdmin + `) && (true)`, "",
		},
		"a comment swallows nothing": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, "true // ) || (false"), conditioned("b", "", pods, "false")},
			`((` + inPods + ` && (true)) || (` + inPods + ` && (false)))`, "",
		},
		"one that closes a bracket is none": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, "true) || (true")},
			"", `fail closed: AdmissionPolicy/a: match condition "c0" is not read by Kubernetes 1.36`,
		},
		"one without conditions is sent": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("", "v1", "secrets", remove)}), conditioned("b", "", pods, notAdmin)},
			`((request.operation == "DELETE" && request.resource.resource == "secrets" && !has(request.subResource)) || (` + inPods + ` && (` + notAdmin + `)))`, "",
		},
		"one about everything": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("*", "*", "*/*", "*")}), conditioned("b", "", pods, notAdmin)},
			"", "AdmissionPolicy/a: matches every request",
		},
		"everything with a condition": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("*", "*", "*/*", "*")}, notAdmin)},
			"(" + notAdmin + ")", "",
		},
		"resources of all sorts": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{
				named("", "v1", "pods/exec,pods/attach", connect), named("apps", "*", "*/scale,deployments/*", update), named("", "v1", "secrets,configmaps", create, remove), named("x.example", "v1", "*", "*"),
			}, notAdmin)},
			`((!has(request.subResource)) || ` +
				`(request.operation in ["CREATE", "DELETE"] && request.resource.resource in ["configmaps", "secrets"] && !has(request.subResource)) || ` +
				`(request.operation == "UPDATE" && ((has(request.subResource) && request.subResource == "scale") || (request.resource.resource == "deployments"))) || ` +
				`(request.operation == "CONNECT" && ((request.resource.resource == "pods" && has(request.subResource) && request.subResource == "attach") || (request.resource.resource == "pods" && has(request.subResource) && request.subResource == "exec")))) && (` + notAdmin + `)`, "",
		},
		"workloads pass": {
			[]policy.AdmissionPolicy{withTemplates},
			`((` + inPods + ` && (` + notAdmin + `)) || (request.operation in ["CREATE", "UPDATE"] && request.resource.resource in ["cronjobs", "daemonsets", "deployments", "jobs", "podtemplates", "replicasets", "replicationcontrollers", "statefulsets"] && !has(request.subResource)))`, "",
		},
		"one that may fail keeps all of them": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, notAdmin), conditioned("b", "", pods, `object.spec.hostNetwork`)},
			"", `AdmissionPolicy/b: match condition "c0" may fail`,
		},
		"too many": {
			slices.Repeat([]policy.AdmissionPolicy{conditioned("a", "", pods, notAdmin)}, maxPolicies+1),
			"", "more than 32 policies",
		},
		"too long": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, `request.userInfo.username != "`+strings.Repeat("x", maxExpressionBytes)+`"`)},
			"", "more than 16 KiB",
		},
		"too many questions to the authorizer": {
			slices.Repeat([]policy.AdmissionPolicy{conditioned("a", "", pods, `authorizer.group("").resource("pods").check("breakglass").allowed()`)}, maxChecks+1),
			"", "ask the authorizer more than 2 times",
		},
		"too many searches": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, "!("+strings.Repeat(`"a" in request.userInfo.groups || `, maxSearches)+`"a" in request.userInfo.groups)`)},
			"", "groups more than 64 times",
		},
		"no object on a deletion": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("", "v1", "pods", create, remove)}, `has(object.metadata.labels)`)},
			"", `match condition "c0" may fail`,
		},
		"no old object on a creation": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, `has(oldObject.metadata.labels)`)},
			"", `match condition "c0" may fail`,
		},
		"nothing is known of every operation": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("", "v1", "pods", "*")}, `has(object.metadata.labels)`)},
			"", `match condition "c0" may fail`,
		},
		"nothing is known of subresources": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("", "v1", "pods,pods/binding", create)}, `has(object.metadata.labels)`)},
			"", `match condition "c0" may fail`,
		},
		"both objects on an update": {
			[]policy.AdmissionPolicy{conditioned("a", "", []testRule{named("", "v1", "pods", update)}, `has(oldObject.metadata.labels) && !has(object.metadata.labels)`)},
			`request.operation == "UPDATE" && request.resource.resource == "pods" && !has(request.subResource) && (has(oldObject.metadata.labels) && !has(object.metadata.labels))`, "",
		},
		"of another type": {
			[]policy.AdmissionPolicy{conditioned("a", "", pods, `request.userInfo.username`)},
			"", `match condition "c0" may fail`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sets, notes := registered(t, c.policies...)
			var got string
			if sets.failCondition != nil {
				got = sets.failCondition.Expression
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if text := strings.Join(notes, "\n"); c.note != "" && !strings.Contains(text, c.note) {
				t.Errorf("got note %q, want %q", text, c.note)
			}
		})
	}
}

func TestNoMatchConditions(t *testing.T) {
	t.Parallel()
	o := &Options{NoMatchConditions: true, Spec: &webhooks.Spec{Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{
		conditioned("a", "", []testRule{named("", "v1", "pods", create)}, "true"), conditioned("b", "Ignore", []testRule{named("", "v1", "pods", create)}, "true"),
	}}}}
	sets, notes, err := o.policyRules()
	if err != nil || len(notes) != 0 || sets.failCondition != nil || sets.ignoreCondition != nil {
		t.Errorf("got %+v, %q, %v", sets, notes, err)
	}
	// Then what fails closed is sent for both.
	if len(sets.ignore) != 0 {
		t.Errorf("the webhook that fails open is sent %q", short(sets.ignore))
	}
}

// With a condition, the webhook that fails closed is not called for all that its
// rules match, and does not stand in for the other.
func TestPushedConditionKeepsTheOtherWebhook(t *testing.T) {
	t.Parallel()
	sets, _ := registered(t,
		conditioned("a", "", []testRule{named("", "v1", "pods", create)}, `request.userInfo.username == "robot"`),
		conditioned("b", "Ignore", []testRule{named("", "v1", "pods", create)}))
	if got := short(sets.ignore); !slices.Equal(got, []string{"/v1 * pods CREATE"}) || sets.ignoreCondition != nil {
		t.Errorf("the webhook that fails open is sent %q if %v", got, sets.ignoreCondition)
	}
}

// hopeless are expressions that a proof must not believe, because they fail for
// some request, or have another value in the API server than in Gatehouse.
func unprovable() []string {
	return []string{
		`object.metadata.labels["a"] == "b"`,
		`object.metadata.labels.a == "b"`,
		`has(object.metadata.labels.a)`,
		`"a" in object.metadata.labels`,
		`has(object.metadata.labels) && object.metadata.labels["a"] == "b"`,
		`has(object.metadata.labels) || "a" in object.metadata.labels`,
		`!has(object.metadata.labels) && "a" in object.metadata.labels`,
		`has(object.metadata.annotations) && "a" in object.metadata.labels`,
		`has(object.metadata.labels) && "a" in object.metadata.labels && object.metadata.labels["b"] == "c"`,
		`"a" in object.metadata.labels && has(object.metadata.labels)`,
		`!(has(object.metadata.labels) && "a" in object.metadata.labels) && object.metadata.labels["a"] == "b"`,
		`(has(object.metadata.labels) || true) && "a" in object.metadata.labels`,
		`has(object.metadata.labels) && has(object.metadata.annotations) && object.metadata.labels == object.metadata.annotations`,
		`has(object.metadata.namespace) && has(object.metadata.name) && object.metadata.name == object.metadata.namespace`,
		`has(object.spec.nodeName)`, `has(object.spec)`, `object.spec.replicas > 3`, `object.kind == "Pod"`, `object != null`,
		`has(object.metadata.creationTimestamp)`, `has(object.metadata.deletionTimestamp) && object.metadata.deletionTimestamp == "x"`,
		`has(oldObject.metadata.labels)`, `oldObject == null`,
		`request.namespace == "default"`, `request.name.startsWith("a")`, `request.subResource == "status"`,
		`!has(request.namespace) && request.namespace == "default"`,
		`request.uid != ""`, `has(request.uid)`, `request.resource.version == "v1"`, `request.options.dryRun`, `has(request.options)`, `request.object.metadata.name == "a"`,
		`request.userInfo.extra["a"][0] == "b"`, `has(request.userInfo.extra)`, `request.userInfo.uid == "a"`, `request.userInfo.groups[0] == "a"`,
		`request.userInfo.groups == ["a"]`, `request.userInfo.groups.exists(g, g.size() > 3)`, `request.userInfo.groups.exists(g, g)`, `request.userInfo.groups.exists_one(g, g == "a")`,
		`request.userInfo.groups.map(g, g)[0] == "a"`, `request.userInfo.groups.filter(g, g == "a") == []`, `request.userInfo.groups.exists(request, request.operation == "CREATE")`,
		`request.userInfo.groups.exists(object, has(object.metadata.labels))`, `request.userInfo.groups.exists(g, has(g.x))`, `request.userInfo.groups.exists(g, g.x == "a")`,
		`request.userInfo.groups.exists(g, request.userInfo.groups.exists(h, g == h))`, `request.userInfo.groups.exists(i, g, g == "a")`, `object.metadata.labels.exists(k, k == "a")`,
		`request.userInfo.groups.exists(g, g == "a") && g == "a"`, `["alice", "bob"].exists(name, name == request.userInfo.username)`, `has(object.metadata.labels) && object.metadata.labels.exists(k, k == "a")`,
		`request.userInfo.username.matches("^a")`, `request.userInfo.username.contains("a")`, `request.userInfo.username > "a"`, `request.userInfo.username.size() > 3`,
		`int(request.userInfo.username) == 3`, `request.operation == "CREATE" ? true : 1/0 == 1`, `1/0 == 1`, `request.operation == 1`, `"a" == 1`, `"a" in ["a", 1]`,
		`variables.x`, `params.x == "y"`, `namespaceObject.metadata.name == "a"`, `authorizer`, `nothing`,
		`authorizer.serviceAccount("", "").group("").resource("pods").check("get").allowed()`, `authorizer.path("").check("get").allowed()`,
		`authorizer.group("").resource("pods").check("get").errored()`, `authorizer.requestResource.check("get").allowed()`,
		`object.metadata.?labels["a"].orValue("") == "b"`, `object.?metadata.?labels[?"a"].orValue("") == "b"`, `object.metadata.?labels.orValue({}) == {}`,
		`has(object.metadata.labels) && object.metadata.labels[?"a"].value() == "b"`, `dyn(request.operation) == "CREATE"`, `[true][0]`, `{"a": true}["a"]`, `true && "a"`, `!"a"`,
	}
}

// provable are expressions that cannot fail for an object that is created or
// updated.
func provable() []string {
	return []string{
		`true`, `false`, `request.operation == "CREATE"`, `"UPDATE" != request.operation`, `request.dryRun == false`, `!request.dryRun`,
		`!("system:nodes" in request.userInfo.groups)`, `request.userInfo.username != "admin" && !request.userInfo.username.startsWith("system:serviceaccount:kube-system:")`,
		`!(request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases")`, `request.kind.kind in ["Pod", "Deployment"]`,
		`has(request.namespace) && request.namespace.endsWith("-prod")`, `!has(request.namespace) || request.namespace != "default"`, `!has(request.subResource)`,
		`has(request.name) && request.name == "x"`, `has(request.namespace) && request.namespace in ["default", "shop"]`,
		`has(object.metadata.labels) && "team" in object.metadata.labels`,
		`has(object.metadata.labels) && "team" in object.metadata.labels && object.metadata.labels["team"] == "a"`,
		`!(has(object.metadata.annotations) && "skip" in object.metadata.annotations && object.metadata.annotations["skip"].startsWith("y"))`,
		`!has(object.metadata.labels) || !("team" in object.metadata.labels) || object.metadata.labels["team"] != "a"`,
		`!(!has(object.metadata.labels) || !("team" in object.metadata.labels)) && object.metadata.labels["team"] == "a"`,
		`object.metadata.?labels[?"team"].orValue("") == "a"`, `object.metadata.?annotations[?"skip"].hasValue()`, `!object.metadata.?labels.hasValue()`,
		`object.metadata.?name.orValue("x").startsWith("a")`, `has(object.metadata.labels) && object.metadata.labels[?"team"].hasValue()`,
		`has(object.metadata.deletionTimestamp)`, `has(object.metadata.generateName) && object.metadata.generateName == "x-"`, `has(object.metadata.ownerReferences) == false`,
		`authorizer.group("").resource("pods").namespace("default").check("breakglass").allowed()`,
		`has(request.namespace) && authorizer.group("apps").resource("deployments").subresource("scale").namespace(request.namespace).name("x").check("update").allowed()`,
		`"a" == "a"`, `("a" in ["a", "b"]) == true`, `request.userInfo.username == "x" || request.userInfo.username == "y" || request.operation == "DELETE"`,
		`!request.userInfo.groups.exists(g, g == "system:nodes" || g.startsWith("system:serviceaccounts"))`, `request.userInfo.groups.all(g, g != "admins" && !(g in ["a", "b"]))`,
		`["alice", "bob"].exists(name, name.startsWith("a")) && request.userInfo.groups.all(g, g != "x") == true`,
		`request.requestKind.version == "v1" && request.requestResource.resource != "x" && request.kind.group == ""`,
	}
}

func TestProof(t *testing.T) {
	t.Parallel()
	env, err := parser()
	if err != nil {
		t.Fatal(err)
	}
	prove := func(t *testing.T, expression string, p proof) kind {
		t.Helper()
		parsed, issues := env.Parse(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		return p.kind(parsed.NativeRep().Expr(), nil)
	}
	for _, expression := range provable() {
		if got := prove(t, expression, proof{object: true}); got != boolean {
			t.Errorf("%s: is not proved", expression)
		}
		// On a DELETE the object is null.
		if got := prove(t, expression, proof{oldObject: true}); (got == boolean) == strings.Contains(expression, "object.") {
			t.Errorf("%s: without an object it is kind %d", expression, got)
		}
		if got := prove(t, strings.ReplaceAll(expression, "object.", "oldObject."), proof{oldObject: true}); got != boolean {
			t.Errorf("%s: is not proved of the old object", expression)
		}
	}
	for _, expression := range unprovable() {
		if got := prove(t, expression, proof{object: true}); got == boolean {
			t.Errorf("%s: is proved", expression)
		}
	}
}

// asked is a request to the API server in all that conditions look at.
type apiRequest struct {
	name           string
	attributes     admission.Attributes
	object, before runtime.Object
	kind           schema.GroupVersionKind
}

// requests are all sorts of requests: every operation on typed and other objects,
// with and without labels and annotations, from several users.
func requests() []apiRequest {
	var all []apiRequest
	users := []*user.DefaultInfo{
		{Name: "alice", Groups: []string{"system:authenticated"}},
		{Name: "admin", Groups: []string{"admins", "system:nodes", "system:authenticated"}, Extra: map[string][]string{"a": {"b"}}, UID: "1"},
		{Name: "system:serviceaccount:kube-system:robot", Groups: []string{"system:serviceaccounts", "system:authenticated"}},
	}
	metadatas := []metav1.ObjectMeta{
		{},
		{Name: "x", Namespace: "default", Labels: map[string]string{}},
		{Name: "a", Namespace: "shop", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"skip": "yes"}},
		{GenerateName: "x-", Namespace: "x-prod", Labels: map[string]string{"team": "b", "other": ""}, Annotations: map[string]string{"skip": ""}, DeletionTimestamp: &metav1.Time{}, Finalizers: []string{"f"}},
	}
	type target struct {
		resource, sub string
		kind          schema.GroupVersionKind
		object        func(metav1.ObjectMeta) runtime.Object
	}
	custom := func(m metav1.ObjectMeta) runtime.Object {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.PartialObjectMetadata{ObjectMeta: m})
		if err != nil {
			panic(err)
		}
		return &unstructured.Unstructured{Object: fields}
	}
	targets := []target{
		{"pods", "", corev1.SchemeGroupVersion.WithKind("Pod"), func(m metav1.ObjectMeta) runtime.Object { return &corev1.Pod{ObjectMeta: m} }},
		{"pods", "status", corev1.SchemeGroupVersion.WithKind("Pod"), func(m metav1.ObjectMeta) runtime.Object { return &corev1.Pod{ObjectMeta: m} }},
		{"configmaps", "", corev1.SchemeGroupVersion.WithKind("ConfigMap"), func(m metav1.ObjectMeta) runtime.Object { return &corev1.ConfigMap{ObjectMeta: m} }},
		{"deployments", "", appsv1.SchemeGroupVersion.WithKind("Deployment"), func(m metav1.ObjectMeta) runtime.Object { return &appsv1.Deployment{ObjectMeta: m} }},
		{"deployments", "scale", schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, custom},
		{"widgets", "", schema.GroupVersionKind{Group: "x.example", Version: "v1", Kind: "Widget"}, custom},
	}
	for _, who := range users {
		for i, m := range metadatas {
			for _, target := range targets {
				for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
					a := apiRequest{kind: target.kind, name: fmt.Sprintf("%s %s %s/%s %d", who.Name, operation, target.resource, target.sub, i)}
					if operation != admission.Delete {
						a.object = target.object(m)
					}
					if operation != admission.Create {
						a.before = target.object(metadatas[(i+1)%len(metadatas)])
					}
					group := target.kind.Group
					if target.sub == "scale" {
						group = "apps"
					}
					a.attributes = admission.NewAttributesRecord(a.object, a.before, target.kind, m.Namespace, m.Name,
						schema.GroupVersionResource{Group: group, Version: "v1", Resource: target.resource}, target.sub, operation, nil, i == 0, who)
					all = append(all, a)
				}
			}
			options := &corev1.PodExecOptions{}
			all = append(all, apiRequest{
				name: fmt.Sprintf("%s exec %d", who.Name, i), object: options, kind: corev1.SchemeGroupVersion.WithKind("PodExecOptions"),
				attributes: admission.NewAttributesRecord(options, nil, corev1.SchemeGroupVersion.WithKind("PodExecOptions"), m.Namespace, m.Name,
					schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "exec", admission.Connect, nil, false, who),
			})
		}
	}
	return all
}

// questions answers every question to the authorizer for one user alone.
var questions = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "admin" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
})

// matches evaluates conditions as the API server does.
func (a *apiRequest) matches(compiler plugincel.ConditionCompiler, failurePolicy admissionregistrationv1.FailurePolicyType, conditions ...admissionregistrationv1.MatchCondition) matchconditions.MatchResult {
	accessors := make([]plugincel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		accessors[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	compiled := compiler.CompileCondition(accessors, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	return a.match(compiled, failurePolicy)
}

func (a *apiRequest) match(compiled plugincel.ConditionEvaluator, failurePolicy admissionregistrationv1.FailurePolicyType) matchconditions.MatchResult {
	return matchconditions.NewMatcher(compiled, &failurePolicy, "webhook", "admit", "test").Match(context.Background(), &admission.VersionedAttributes{
		Attributes: a.attributes, VersionedKind: a.kind, VersionedObject: admission.NewLazyObject(a.object), VersionedOldObject: admission.NewLazyObject(a.before),
	}, nil, questions)
}

// isAbout reports whether resource rules match, in their groups and versions or in
// any.
func (a *apiRequest) isMatchedBy(list []testRule, anyGroup bool) bool {
	return slices.ContainsFunc(list, func(r testRule) bool {
		if anyGroup {
			r.APIGroups, r.APIVersions = []string{"*"}, []string{"*"}
		}
		m := rules.Matcher{Rule: r.RuleWithOperations, Attr: a.attributes}
		return m.Matches()
	})
}

// TestPushedConditionsDecideAlike holds what is pushed against the policies, each
// evaluated by itself with the API server's own code: a webhook is called exactly
// if one of its policies has something to decide, or would have if it were about
// all groups and versions, and nothing ever fails.
func TestPushedConditionsDecideAlike(t *testing.T) {
	t.Parallel()
	all := requests()
	ruleChoices := [][]testRule{
		{named("", "v1", "pods", create, update)},
		{named("", "v1", "pods,configmaps", create), named("apps", "v1", "deployments", update)},
		{named("x.example", "*", "*", create, update)},
		{named("*", "*", "*", create)},
	}
	anyObject := [][]testRule{
		{named("", "v1", "pods", remove)},
		{named("", "v1", "pods/*", "*")},
		{named("apps", "v1", "deployments/scale", update), named("", "v1", "pods/exec", connect)},
		{named("*", "*", "*/*", "*")},
		{named("apps", "*", "*/scale", "*")},
	}
	var ofRequest []string
	for _, c := range provable() {
		if !strings.Contains(c, "object.") && !strings.Contains(c, "authorizer") {
			ofRequest = append(ofRequest, c)
		}
	}
	random := rand.New(rand.NewPCG(4, 2))
	pick := func() (policies []policy.AdmissionPolicy) {
		for i := range 1 + random.IntN(4) {
			rules, expressions := ruleChoices[random.IntN(len(ruleChoices))], provable()
			if random.IntN(2) == 0 {
				rules, expressions = anyObject[random.IntN(len(anyObject))], ofRequest
			}
			var conditions []string
			for range random.IntN(3) {
				conditions = append(conditions, expressions[random.IntN(len(expressions))])
			}
			policies = append(policies, conditioned(fmt.Sprintf("p%d", i), "", rules, conditions...))
		}
		return policies
	}
	var called, excluded, pushes int
	for _, kubernetes := range versions() {
		compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(kubernetes))
		for range 25 {
			policies := pick()
			sets, _ := registered(t, policies...)
			if sets.failCondition == nil {
				continue
			}
			pushes++
			compiled := compiler.CompileCondition([]plugincel.ExpressionAccessor{(*matchconditions.MatchCondition)(sets.failCondition)},
				plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
			each := make([]plugincel.ConditionEvaluator, len(policies))
			for i := range policies {
				var accessors []plugincel.ExpressionAccessor
				for j := range policies[i].Spec.MatchConditions {
					accessors = append(accessors, (*matchconditions.MatchCondition)(&policies[i].Spec.MatchConditions[j]))
				}
				each[i] = compiler.CompileCondition(accessors, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
			}
			for r := range all {
				request := &all[r]
				var want, wantInAnyGroup bool
				for i := range policies {
					list := policies[i].Spec.MatchConstraints.ResourceRules
					if !request.isMatchedBy(list, true) {
						continue
					}
					result := request.match(each[i], admissionregistrationv1.Fail)
					if result.Error != nil {
						t.Fatalf("%s: %v fails: %v", request.name, policies[i].Spec.MatchConditions, result.Error)
					}
					want = want || result.Matches && request.isMatchedBy(list, false)
					wantInAnyGroup = wantInAnyGroup || result.Matches
				}
				if !slices.ContainsFunc(sets.fail, func(r admissionregistrationv1.RuleWithOperations) bool {
					m := rules.Matcher{Rule: r, Attr: request.attributes}
					return m.Matches()
				}) {
					if want {
						t.Fatalf("%s is not sent by the rules", request.name)
					}
					continue
				}
				got := request.match(compiled, admissionregistrationv1.Fail)
				if got.Error != nil || got.Matches != wantInAnyGroup || want && !got.Matches {
					t.Fatalf("%s: got %+v, want %v by\n%s", request.name, got, want, sets.failCondition.Expression)
				}
				if got.Matches {
					called++
				} else {
					excluded++
				}
			}
		}
	}
	if pushes < 25 || called < 1000 || excluded < 1000 {
		t.Errorf("%d pushed, %d calls, %d spared: the table shows nothing", pushes, called, excluded)
	}
}

// Whatever an object and a user look like, what is pushed costs less than an
// error.
func TestPushedConditionsAreCheap(t *testing.T) {
	t.Parallel()
	pods := []testRule{named("", "v1", "pods", create)}
	var many []policy.AdmissionPolicy
	for i := range maxPolicies {
		conditions := []string{
			fmt.Sprintf(`!("group-%d" in request.userInfo.groups)`, i),
			`!(has(object.metadata.annotations) && "long" in object.metadata.annotations && object.metadata.annotations["long"].endsWith("y"))`,
			`has(object.metadata.labels) && "team" in object.metadata.labels && object.metadata.labels["team"] == "nobody"`,
		}
		if i < 2 {
			conditions = append(conditions, `!request.userInfo.groups.exists(g, g == "nobody" || g.startsWith("no"))`)
		}
		many = append(many, conditioned(fmt.Sprintf("p%d", i), "", pods, conditions...))
	}
	sets := map[string][]policy.AdmissionPolicy{
		"many policies":       many,
		"as many searches":    {conditioned("a", "", pods, strings.Repeat(`"a" in request.userInfo.groups || `, maxSearches-1)+`"a" in request.userInfo.groups`)},
		"as many quantifiers": {conditioned("a", "", pods, strings.Repeat(`request.userInfo.groups.exists(g, g == "a") || `, 4)+`request.userInfo.groups.exists(g, g == "a")`)},
		"one long quantifier": {conditioned("a", "", pods, `request.userInfo.groups.exists(g, `+strings.Repeat(`g == "a" || `, 12)+`g == "a")`)},
		"all questions": {
			conditioned("a", "", pods, `authorizer.group("").resource("pods").check("breakglass").allowed() || authorizer.group("").resource("pods").check("another").allowed()`),
			conditioned("b", "", pods, strings.Repeat(`"a" in request.userInfo.groups || `, 30)+"false"),
		},
	}
	who := &user.DefaultInfo{Name: strings.Repeat("x", 1<<16)}
	for i := range 5000 {
		who.Groups = append(who.Groups, fmt.Sprintf("company-department-team-%d", i))
	}
	labels := map[string]string{"team": "a"}
	for i := range 10_000 {
		labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels, Annotations: map[string]string{"long": strings.Repeat("x", 1<<20)}}}
	request := apiRequest{
		object: pod, kind: corev1.SchemeGroupVersion.WithKind("Pod"),
		attributes: admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "default", "x", schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", admission.Create, nil, false, who),
	}
	for name, policies := range sets {
		set, notes := registered(t, policies...)
		if set.failCondition == nil {
			t.Errorf("%s: %q", name, notes)
			continue
		}
		for _, kubernetes := range versions() {
			result := request.matches(plugincel.NewConditionCompiler(environment.MustBaseEnvSet(kubernetes)), admissionregistrationv1.Fail, *set.failCondition)
			if result.Error != nil || result.Matches {
				t.Errorf("%s, Kubernetes %s: %+v", name, kubernetes, result)
			}
		}
	}
}

func TestPoliciesInForce(t *testing.T) {
	t.Parallel()
	pods := named("", "v1", "pods", create)
	everyWorkload := []string{"/v1 * pods CREATE", "/v1 * podtemplates,replicationcontrollers CREATE,UPDATE", "apps/v1 * daemonsets,deployments,replicasets,statefulsets CREATE,UPDATE", "batch/v1 * cronjobs,jobs CREATE,UPDATE"}
	policyOf := func(change ...func(*v1alpha1.AdmissionPolicySpec)) policy.Spec {
		p := ours("p", specWith("", pods))
		for _, c := range change {
			c(&p.Spec)
		}
		return policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{p}}
	}
	noActions := func(s *v1alpha1.AdmissionPolicySpec) { s.ValidationActions = nil }
	templates := func(s *v1alpha1.AdmissionPolicySpec) { s.WorkloadTemplates = "" }
	resources := func(r ...testRule) func(s *v1alpha1.AdmissionPolicySpec) {
		return func(s *v1alpha1.AdmissionPolicySpec) { s.MatchConstraints.ResourceRules = r }
	}
	bind := func(s policy.Spec, name string) policy.Spec {
		b := policy.AdmissionPolicyBinding{}
		b.Spec.PolicyName = name
		s.AdmissionPolicyBindings = append(s.AdmissionPolicyBindings, b)
		return s
	}
	upstreamOf := func(annotation string) policy.Spec {
		p := upstream("p", specWith("", pods))
		p.Annotations = map[string]string{v1alpha1.WorkloadTemplatesAnnotation: annotation}
		return policy.Spec{Policies: []policy.Policy{p}, Bindings: []policy.Binding{bindingOf("p")}}
	}
	configured := policyOf(templates)
	configured.Configuration = &policy.Configuration{PolicyConfiguration: v1alpha1.PolicyConfiguration{Workloads: []v1alpha1.WorkloadKind{
		{Group: "argoproj.io", Kind: "Rollout", Resource: "rollouts", Template: "spec.template"},
	}}}
	crossed := policyOf(noActions)
	crossed.Bindings = []policy.Binding{bindingOf("p")}
	for name, c := range map[string]struct {
		spec policy.Spec
		want []string
	}{
		"own actions":                               {policyOf(), []string{"/v1 * pods CREATE"}},
		"neither actions nor a binding":             {policyOf(noActions), nil},
		"bound":                                     {bind(policyOf(noActions), "p"), []string{"/v1 * pods CREATE"}},
		"bound by a binding of another":             {bind(policyOf(noActions), "q"), nil},
		"bound by a binding of the other kind":      {crossed, nil},
		"templates":                                 {policyOf(templates), everyWorkload},
		"templates, with custom workloads":          {configured, append(slices.Clone(everyWorkload), "argoproj.io/* * rollouts CREATE,UPDATE")},
		"templates, asked for":                      {policyOf(func(s *v1alpha1.AdmissionPolicySpec) { s.WorkloadTemplates = v1alpha1.CheckTemplates }), everyWorkload},
		"templates of an upstream policy":           {upstreamOf("Check"), everyWorkload},
		"templates of an upstream policy, declined": {upstreamOf("Ignore"), []string{"/v1 * pods CREATE"}},
		"templates of an upstream policy, silent":   {upstreamOf(""), []string{"/v1 * pods CREATE"}},
		"only updates of pods":                      {policyOf(templates, resources(named("", "v1", "pods", update))), []string{"/v1 * pods UPDATE"}},
		"only ephemeral containers":                 {policyOf(templates, resources(named("", "v1", "pods/ephemeralcontainers", update))), []string{"/v1 * pods/ephemeralcontainers UPDATE"}},
		"pods of another group":                     {policyOf(templates, resources(named("metrics.k8s.io", "v1", "pods", create))), []string{"metrics.k8s.io/v1 * pods CREATE"}},
		"pods among all resources of the group":     {policyOf(templates, resources(named("", "*", "*", create))), []string{"/* * * CREATE", "/v1 * podtemplates,replicationcontrollers UPDATE", everyWorkload[2], everyWorkload[3]}},
		"pods with their subresources":              {policyOf(templates, resources(named("", "v1", "pods/*", "*"))), append([]string{"/v1 * pods/* *"}, everyWorkload[1:]...)},
		"Gatehouse's own documents are never sent":  {policyOf(resources(named("gatehouse.dev", "*", "policyexceptions,admissionpolicies", create), named("", "v1", "secrets", create))), []string{"/v1 * secrets CREATE"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &Options{Spec: &webhooks.Spec{Policy: c.spec}}
			sets, _, err := o.policyRules()
			if err != nil {
				t.Fatal(err)
			}
			got, want := short(sets.fail), slices.Clone(c.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestWorkloadsThatAreNone(t *testing.T) {
	t.Parallel()
	o := &Options{Spec: &webhooks.Spec{Policy: policy.Spec{Configuration: &policy.Configuration{PolicyConfiguration: v1alpha1.PolicyConfiguration{
		Workloads: []v1alpha1.WorkloadKind{{Group: "argoproj.io", Kind: "rollout"}},
	}}}}}
	if _, _, err := o.policyRules(); err == nil {
		t.Error("a workload that is none is taken")
	}
}
