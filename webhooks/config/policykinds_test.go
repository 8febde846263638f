package config

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

const (
	ourBinding    = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: everywhere}\nspec: {policyName: baseline, validationActions: [Warn]}\n"
	exception     = "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: legacy, namespace: gatehouse-system}\nspec: {policies: [{name: baseline}], match: {namespaces: [shop]}, reason: 'moves in May', expiresAt: 2030-05-01T00:00:00Z}\n"
	configuration = "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\nrequestCostBudget: 7\nexceptions: {requireExpiry: true}\nworkloads: [{group: argoproj.io, kind: Rollout, resource: rollouts, template: spec.template}]\n"
	testDocument  = "apiVersion: gatehouse.dev/v1alpha1\nkind: Test\ncases: [{whatever: {is: read, elsewhere: 1}}]\n"
	clusterRules  = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: deployer}\nrules: [{apiGroups: [''], resources: [pods], verbs: [create]}]\n"
	clusterGrant  = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: deployers}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: deployer}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: deployers}]\n"
)

func TestLoadPolicyKinds(t *testing.T) {
	t.Parallel()
	c, err := Load(directory(t, map[string]string{
		"a.yaml":         strings.Join([]string{ours, testDocument, ourBinding, exception, configuration}, "---\n"),
		"b.yaml":         strings.Replace(exception, "gatehouse-system", "shop", 1),
		"c.json":         `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"PolicyExceptionList","items":[{"metadata":{"name":"listed","namespace":"shop"},"spec":{"policies":[],"match":{},"reason":""}}]}`,
		"d.yaml":         "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: of-others}\nspec: {anything: 1}\n",
		"kyverno-t.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: of-others}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings: %v", c.Warnings)
	}
	spec := &c.Policy
	var got []string
	for _, b := range spec.AdmissionPolicyBindings {
		got = append(got, b.Source+" "+b.Name+" "+b.Spec.PolicyName)
	}
	for _, e := range spec.Exceptions {
		got = append(got, e.Source+" "+e.Namespace+"/"+e.Name)
	}
	want := []string{"a.yaml#3 everywhere baseline", "a.yaml#4 gatehouse-system/legacy", "b.yaml shop/legacy", "c.json#items[0] shop/listed"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if at := spec.Exceptions[0].Spec.ExpiresAt; at == nil || at.UTC().Year() != 2030 || spec.Exceptions[0].Spec.Match.Namespaces[0] != "shop" {
		t.Errorf("the exception is read as %+v", spec.Exceptions[0].Spec)
	}
	if spec.Configuration == nil || spec.Configuration.Source != "a.yaml#5" || *spec.Configuration.RequestCostBudget != 7 || !spec.Configuration.Exceptions.RequireExpiry {
		t.Errorf("the configuration is %+v", spec.Configuration)
	}
	if w := c.Workloads(); len(w) != 1 || w[0].Kind != "Rollout" || w[0].Resource != "rollouts" {
		t.Errorf("workloads are %v", w)
	}
	if spec.Now == nil || spec.Now().IsZero() {
		t.Error("there is no clock")
	}
	if spec.Authorizer != nil {
		t.Error("there is an authorizer without any RBAC object")
	}
}

// TestLoadMutatingPolicies holds that older versions are read as an API server converts them, and that the spec has what the
// policies look up.
func TestLoadMutatingPolicies(t *testing.T) {
	t.Parallel()
	const (
		mutates = "apiVersion: admissionregistration.k8s.io/VERSION\nkind: MutatingAdmissionPolicy\nmetadata: {name: VERSION}\n" +
			"spec: {reinvocationPolicy: Never, paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}, " +
			"mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/x\"}]'}}]}\n"
		binds = "apiVersion: admissionregistration.k8s.io/VERSION\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: VERSION}\nspec: {policyName: VERSION, paramRef: {name: p}}\n"
		crd   = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\nspec: {group: example.com, scope: Namespaced, " +
			"names: {kind: Widget, plural: widgets}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n"
	)
	files := map[string]string{"crd.yaml": crd}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		files[version+".yaml"] = strings.ReplaceAll(mutates+"---\n"+binds, "VERSION", version)
	}
	c, err := Load(directory(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 0 || c.Mutation.Schemas.TypeConverter(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}) == nil {
		t.Errorf("warnings %v, schemas %v", c.Warnings, c.Mutation.Schemas)
	}
	again, found := InspectText("c.yaml", encoded(t, c.Own()))
	for _, c := range []*Config{c, again} {
		var got []string
		for _, b := range c.Mutation.Bindings {
			action := "none"
			if a := b.Spec.ParamRef.ParameterNotFoundAction; a != nil {
				action = string(*a)
			}
			got = append(got, b.Name+" "+action)
		}
		if want := []string{"v1 none", "v1alpha1 Deny", "v1beta1 none"}; !slices.Equal(got, want) || len(c.Mutation.Policies) != 3 {
			t.Errorf("got %q with %d policies, want %q; %v", got, len(c.Mutation.Policies), want, found)
		}
	}
	_, found = Compile(c, nil)
	var broken []string
	for _, f := range found {
		broken = append(broken, f.Source+": "+f.Object+": "+f.Field)
	}
	if want := []string{
		"v1.yaml#2: MutatingAdmissionPolicyBinding/v1: spec.paramRef.parameterNotFoundAction",
		"v1beta1.yaml#2: MutatingAdmissionPolicyBinding/v1beta1: spec.paramRef.parameterNotFoundAction",
	}; !slices.Equal(broken, want) {
		t.Errorf("got  %q\nwant %q", broken, want)
	}
	if spec := c.Spec().Mutation; spec.Objects != c.Policy.Objects {
		t.Error("the policies that mutate look up other objects than those that validate")
	}
}

// TestMutatingLibrary holds that the policies of the library change what they are for, and nothing in their own result.
func TestMutatingLibrary(t *testing.T) {
	t.Parallel()
	c, found := InspectPaths([]string{"../../manifests/policies/mutating"}, map[string][]byte{
		"n.yaml": []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a, node-pool: gpu}}\n"),
	})
	snapshot, found := Compile(c, found)
	if snapshot == nil || len(c.Mutation.Policies) != 11 {
		t.Fatal(found)
	}
	for _, tc := range []struct {
		group, kind, resource, object string
		want                          []string
	}{
		{
			"", "Pod", "pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app.kubernetes.io/name":"a"}},"spec":{"containers":[{"name":"app","image":"nginx"}]}}`,
			[]string{
				`"image":"registry.example.com/nginx"`, `"memory":"128Mi"`, `"imagePullSecrets":[{"name":"registry"}]`, `"team":"a"`, `"key":"node-pool"`,
				`{"name":"ndots","value":"2"}`, `"runAsNonRoot":true`, `"topologyKey":"topology.kubernetes.io/zone"`,
			},
		},
		{
			"apps", "Deployment", "deployments", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"selector":{},"template":{}}}`,
			[]string{`"example.com/created-by":"ada"`},
		},
		{"", "ServiceAccount", "serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"}}`, []string{`"automountServiceAccountToken":false`}},
	} {
		var r admission.Request
		r.Operation, r.Namespace, r.Name, r.UserInfo.Username, r.Object.Raw = admissionv1.Create, "shop", "a", "ada", []byte(tc.object)
		r.Kind = metav1.GroupVersionKind{Group: tc.group, Version: "v1", Kind: tc.kind}
		r.Resource = metav1.GroupVersionResource{Group: tc.group, Version: "v1", Resource: tc.resource}
		d := snapshot.Mutation.Decide(t.Context(), mutation.Input{Request: r})
		for _, want := range tc.want {
			if !strings.Contains(string(d.Object), want) {
				t.Errorf("%s: no %s in %s; %v %v %v", tc.kind, want, d.Object, d.Err, d.Refusal, d.Failures)
			}
		}
		if r.Object.Raw = d.Object; len(d.Object) > 0 {
			if again := snapshot.Mutation.Decide(t.Context(), mutation.Input{Request: r}); len(again.Patch) > 0 {
				t.Errorf("%s: the result is changed again: %v", tc.kind, again.Patch)
			}
		}
	}
}

func encoded(t *testing.T, c *Config) []byte {
	t.Helper()
	text, err := c.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestLoadWithoutPolicyConfiguration(t *testing.T) {
	t.Parallel()
	c, err := Load(directory(t, map[string]string{"a.yaml": ours}))
	if err != nil {
		t.Fatal(err)
	}
	if c.Policy.Configuration != nil || c.Workloads() != nil {
		t.Errorf("got %+v, want none", c.Policy.Configuration)
	}
}

func TestLoadPolicyKindsErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"an exception without a namespace": {
			map[string]string{"a.yaml": strings.Replace(exception, ", namespace: gatehouse-system", "", 1)},
			[]string{`a.yaml: PolicyException/legacy: metadata.namespace: is missing: a PolicyException needs a namespace (hint: set the namespace; it decides which objects it can match)`},
		},
		"an exception with a misspelt bound": {
			map[string]string{"a.yaml": strings.Replace(exception, "expiresAt: 2030-05-01T00:00:00Z", "expires: 2030-05-01T00:00:00Z", 1)},
			[]string{`a.yaml: PolicyException/gatehouse-system/legacy: spec.expires: unknown field (hint: did you mean "expiresAt"?)`},
		},
		"an exception that expires at no moment": {
			map[string]string{"a.yaml": strings.Replace(exception, "2030-05-01T00:00:00Z", "soon", 1)},
			[]string{`a.yaml: PolicyException/gatehouse-system/legacy: spec.expiresAt: "soon" is not a time such as 2026-12-31T23:59:59Z`},
		},
		"an exception given twice": {
			map[string]string{"a.yaml": exception, "b.yaml": exception},
			[]string{`b.yaml: PolicyException/gatehouse-system/legacy: the object is given twice, first in "a.yaml" (hint: remove one of the two or give it another name)`},
		},
		"an exception of another version": {
			map[string]string{"a.yaml": strings.Replace(exception, "v1alpha1", "v1beta1", 1)},
			[]string{`a.yaml: PolicyException/gatehouse-system/legacy: apiVersion: "gatehouse.dev/v1beta1" is not a supported version of PolicyException (hint: write gatehouse.dev/v1alpha1)`},
		},
		"a binding in a namespace": {
			map[string]string{"a.yaml": strings.Replace(ourBinding, "name: everywhere", "name: everywhere, namespace: shop", 1)},
			[]string{`a.yaml: AdmissionPolicyBinding/everywhere: metadata.namespace: "shop" is set, but every AdmissionPolicyBinding is cluster-scoped (hint: select namespaces with spec.matchResources.namespaceSelector)`},
		},
		"a binding with a misspelt field": {
			map[string]string{"a.yaml": strings.Replace(ourBinding, "validationActions", "validationAction", 1)},
			[]string{`a.yaml: AdmissionPolicyBinding/everywhere: spec.validationAction: unknown field (hint: did you mean "validationActions"?)`},
		},
		"two configurations": {
			map[string]string{"a.yaml": configuration, "b/c.yaml": testDocument + "---\n" + configuration},
			[]string{`b/c.yaml#2: PolicyConfiguration: the PolicyConfiguration is given twice, first in "a.yaml" (hint: a directory has at most one: merge the two)`},
		},
		"a configuration with a misspelt field": {
			map[string]string{"a.yaml": strings.Replace(configuration, "requireExpiry", "requireExpiration", 1)},
			[]string{`a.yaml: PolicyConfiguration: exceptions.requireExpiration: unknown field (hint: did you mean "requireExpiry"?)`},
		},
		"a configuration of the wrong types": {
			map[string]string{"a.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\ncelCompatibilityVersion: 1.36\nrequestCostBudget: lots\nworkloads: {}\n"},
			[]string{
				`a.yaml: PolicyConfiguration: celCompatibilityVersion: "1.36" is a number, expected a string (hint: put it in quotes)`,
				`a.yaml: PolicyConfiguration: requestCostBudget: "lots" is a string, expected an integer`,
				`a.yaml: PolicyConfiguration: workloads: is a mapping, expected a list`,
			},
		},
		"a configuration of another version": {
			map[string]string{"a.yaml": strings.Replace(configuration, "v1alpha1", "v1", 1)},
			[]string{`a.yaml: PolicyConfiguration: apiVersion: "gatehouse.dev/v1" is not a supported version of PolicyConfiguration (hint: write gatehouse.dev/v1alpha1)`},
		},
		"a test of another version": {
			map[string]string{"a.yaml": strings.Replace(testDocument, "v1alpha1", "v1", 1)},
			[]string{`a.yaml: Test: apiVersion: "gatehouse.dev/v1" is not a supported version of Test (hint: write gatehouse.dev/v1alpha1)`},
		},
		"nothing but tests": {
			map[string]string{"a.yaml": testDocument + "---\n" + testDocument},
			[]string{`DIR: the directory has no documents (hint: add files that end in .yaml, .yml or .json, also in subdirectories)`},
		},
		"RBAC that is misspelt": {
			map[string]string{"a.yaml": strings.NewReplacer("verbs", "verb").Replace(clusterRules) + "---\n" + strings.Replace(clusterGrant, "subjects: [", "subject: [", 1)},
			[]string{
				`a.yaml#1: ClusterRole/deployer: rules[0].verb: unknown field (hint: did you mean "verbs"?)`,
				`a.yaml#2: ClusterRoleBinding/deployers: subject: unknown field (hint: did you mean "subjects"?)`,
			},
		},
		"RBAC of another version": {
			map[string]string{"a.yaml": strings.Replace(clusterRules, "/v1", "/v1beta1", 1)},
			[]string{`a.yaml: ClusterRole/deployer: apiVersion: "rbac.authorization.k8s.io/v1beta1" is not a supported version of ClusterRole (hint: write rbac.authorization.k8s.io/v1)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, c.files)
			_, err := Load(dir)
			got := findings(t, err)
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], dir, "DIR")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// Whatever stands in a document of a kind that has a reader of its own, the
// reader says so and goes on.
func TestLoadPolicyKindsHostile(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 3000) + strings.Repeat("]", 3000)
	for _, kind := range []string{admissionBinding, policyException, policyConfiguration} {
		for name, members := range map[string]string{
			"nothing":         "",
			"null":            "metadata: null\nspec: null\nexceptions: null\nworkloads: null",
			"a number":        "metadata: 1\nspec: 1\nexceptions: 1\nworkloads: 1",
			"lists":           "metadata: []\nspec: []\nexceptions: []\nworkloads: [[]]",
			"deep":            "metadata: " + deep + "\nspec: " + deep + "\nworkloads: " + deep,
			"an escape":       `metadata: {name: "\e[2J", namespace: "\e[2J"}` + "\nspec: {\"\\e[2J\": 1}\n\"\\e[2J\": 1",
			"a long name":     "metadata: {name: " + strings.Repeat("x", 1<<16) + "}\n" + strings.Repeat("y", 1<<16) + ": 1",
			"a list of nulls": "metadata: {name: x, namespace: y}\nspec: {policies: [null], match: {matchConditions: [null]}, matchResources: null}\nworkloads: [null]",
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				_, found := Inspect(directory(t, map[string]string{
					"a.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: " + kind + "\n" + members,
					"b.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Nothing\nmetadata: {name: x}\n",
				}))
				got := findings(t, found)
				if len(got) == 0 || !strings.Contains(got[len(got)-1], "b.yaml: Nothing/x: kind") {
					t.Errorf("the file behind is not read: %.300q", got)
				}
				for _, line := range got {
					if len(line) > 1000 || strings.ContainsRune(line, '\x1b') {
						t.Errorf("a finding of %d characters: %.200q", len(line), line)
					}
				}
			})
		}
	}
}

func TestLoadRBAC(t *testing.T) {
	t.Parallel()
	c, err := Load(directory(t, map[string]string{
		"a.yaml": clusterRules + "---\n" + clusterGrant,
		"b.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: lost}\nroleRef: {kind: ClusterRole, name: deployer}\n---\n" +
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: viewers}\nroleRef: {kind: ClusterRole, name: view}\nsubjects: [{kind: User, name: eve}]\n",
		"c.yaml": "apiVersion: example.org/v1\nkind: Role\nmetadata: {name: of-others}\nactor: yes\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`b.yaml#1: RoleBinding/lost: metadata.namespace: is missing, so no lookup of a RoleBinding in a namespace finds it (hint: set the namespace of the object)`,
		`b.yaml#2: ClusterRoleBinding/viewers: roleRef: there is no "ClusterRole" "view", so the binding grants nothing (hint: add the role to the directory, even if it is built into every cluster)`,
	}
	if got := findings(t, c.Warnings); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	for group, want := range map[string]authorizer.Decision{"deployers": authorizer.DecisionAllow, "others": authorizer.DecisionNoOpinion} {
		got, _, err := c.Policy.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "alice", Groups: []string{group}}, Verb: "create", Resource: "pods", Namespace: "shop", ResourceRequest: true,
		})
		if err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", group, got, err, want)
		}
	}
}
