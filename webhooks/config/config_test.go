package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// directory writes files into a new directory.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(path, []byte(content), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	err := os.Symlink(target, path)
	if err != nil {
		t.Fatal(err)
	}
}

// findings are the lines of an error of Load.
func findings(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var list diagnostic.List
	if !errors.As(err, &list) {
		t.Fatalf("the error is a %T, want a finding.List", err)
	}
	lines := make([]string, len(list))
	for i, f := range list {
		lines[i] = f.String()
	}
	return lines
}

// small are limits that a test reaches soon.
func small() limits { return limits{fileBytes: 5 << 20, totalBytes: 7 << 20, documents: 1000} }

// loadSmall is Load with small limits.
func loadSmall(dir string) error {
	_, found := readTree(dir, small()).decode()
	return found.Err()
}

const (
	profile   = "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: log}\nspec: {injection: OptOut, template: {spec: {containers: [{name: log, image: log:1}]}}}\n"
	ours      = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: baseline}\nspec: {podSecurity: {level: baseline}, validationActions: [Deny], failurePolicy: Ignore, matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}\n"
	token     = "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nmetadata: {name: ci}\nspec: {sha256: abc, user: {username: ci}, expiresAt: 2030-01-01T00:00:00Z}\n"
	upstream  = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: up}\nspec: {validations: [{expression: 'true'}]}\n"
	binding   = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: up}\nspec: {policyName: up, validationActions: [Deny]}\n"
	namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n"
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits, namespace: shop, labels: {tier: gold}}\ndata: {max: \"3\"}\n"
)

func TestLoadReadsEveryKind(t *testing.T) {
	dir := directory(t, map[string]string{
		"b/all.yaml":              strings.Join([]string{"# a comment\n", profile, ours, "", token}, "---\n"),
		"a.yml":                   upstream,
		"b/binding.YAML":          binding,
		"list.json":               `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bare"}}]}`,
		"typed.json":              `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"SidecarProfileList","items":[{"metadata":{"name":"x"},"spec":{"template":{"spec":{}}}}]}`,
		"stream.json":             `{"apiVersion":"example.org/v1","kind":"Limit","metadata":{"name":"one"},"spec":{"max":3}}` + "\n" + `{"apiVersion":"example.org/v1","kind":"Limit","metadata":{"name":"two"}}`,
		"context.yaml":            namespace + "---\n" + configMap,
		"README.md":               "not: [read",
		"kustomization.yaml":      "resources: [a.yml]",
		"b/kustomization.yml":     "resources: [a.yml]",
		".hidden.yaml":            "not: [read",
		".git/config.yaml":        "not: [read",
		"c/only-comments.yaml":    "# nothing\n---\n# more nothing\n",
		"c/empty.yaml":            "",
		"c/windows.yaml":          "\ufeffapiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: crlf\r\n---\r\n",
		"c/ended.yaml":            "%YAML 1.1\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ended}\n...\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: again}\n",
		"c/block.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: block, namespace: shop}\ndata:\n  x: |\n    ---\n    ...\n    a: b\n",
		"c/json-in-yaml.yaml":     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"emoji","namespace":"shop"},"data":{"x":"\ud83d\ude00"}}`,
		"c/anchors.yaml":          "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: anchors, namespace: shop}\ndata: {a: &a text, b: *a, 8080: port}\n",
		"c/sub/deeper/ns.yaml":    "apiVersion: v1\nkind: Namespace\nmetadata: {name: deep, labels: {kubernetes.io/metadata.name: wrong}}\n",
		"c/same-kind-name.yaml":   "apiVersion: management.example.org/v3\nkind: Namespace\nmetadata: {name: shop, namespace: x}\n",
		"c/same-name-other.yaml":  strings.Replace(configMap, "namespace: shop", "namespace: other", 1),
		"c/mutating-context.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: x}\n",
	})
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Files != 18 {
		t.Errorf("%d files read, want 18", c.Files)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings: %v", c.Warnings)
	}
	var sources []string
	for _, p := range c.Sidecar.Profiles {
		sources = append(sources, p.Source+" "+p.Name)
	}
	for _, p := range c.Policy.AdmissionPolicies {
		sources = append(sources, p.Source+" "+p.Name)
	}
	for _, p := range c.Policy.Policies {
		sources = append(sources, p.Source+" "+p.Name)
	}
	for _, p := range c.Policy.Bindings {
		sources = append(sources, p.Source+" "+p.Name)
	}
	for _, p := range c.Authn.Tokens {
		sources = append(sources, p.Source+" "+p.Name)
	}
	want := []string{"b/all.yaml#1 log", "typed.json#items[0] x", "b/all.yaml#2 baseline", "a.yml up", "b/binding.YAML up", "b/all.yaml#3 ci"}
	if !slices.Equal(sources, want) {
		t.Errorf("got  %q\nwant %q", sources, want)
	}
	policy := c.Policy.AdmissionPolicies[0]
	if policy.Spec.PodSecurity.Level != "baseline" || *policy.Spec.FailurePolicy != "Ignore" || policy.Spec.MatchConstraints.ResourceRules[0].Resources[0] != "pods" {
		t.Errorf("the inlined upstream spec was not read: %+v", policy.Spec)
	}
	if c.Authn.Now == nil || c.Authn.Now().IsZero() {
		t.Error("no clock")
	}
	for name, want := range map[string]map[string]string{
		"shop":  {"team": "a", "kubernetes.io/metadata.name": "shop"},
		"bare":  {"kubernetes.io/metadata.name": "bare"},
		"deep":  {"kubernetes.io/metadata.name": "deep"},
		"crlf":  {"kubernetes.io/metadata.name": "crlf"},
		"ended": {"kubernetes.io/metadata.name": "ended"},
		"again": {"kubernetes.io/metadata.name": "again"},
	} {
		got, known := c.Sidecar.Namespaces.Namespace(name)
		if !known || !maps.Equal(got.Labels, want) {
			t.Errorf("%s: %+v, %v, want the labels %v", name, got, known, want)
		}
	}
	if _, known := c.Sidecar.Namespaces.Namespace("absent"); known {
		t.Error("a namespace that is in no file is known")
	}
	for name, want := range map[string]map[string]any{
		"block":   {"x": "---\n...\na: b\n"},
		"emoji":   {"x": "\U0001F600"},
		"anchors": {"a": "text", "b": "text", "8080": "port"},
	} {
		got, err := c.Policy.Objects.Get(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "shop", name)
		if err != nil || got == nil || !maps.Equal(got.Object["data"].(map[string]any), want) {
			t.Errorf("ConfigMap %s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// definition is a CustomResourceDefinition of a kind without objects.
func definition(kind, scope string) string {
	name := strings.ToLower(kind)
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + name + "s.example.org}\n" +
		"spec: {group: example.org, scope: " + scope + ", names: {kind: " + kind + ", plural: " + name + "s}, versions: [{name: v1, served: true, storage: true}]}\n"
}

func TestObjects(t *testing.T) {
	dir := directory(t, map[string]string{"x.yaml": strings.Join([]string{
		namespace, configMap,
		strings.Replace(configMap, "name: limits", "name: also", 1),
		strings.NewReplacer("namespace: shop", "namespace: other", "gold", "iron").Replace(configMap),
		"apiVersion: example.org/v1\nkind: Limit\nmetadata: {name: one}\nspec: {max: 3, share: 0.5}\n",
		definition("ClusterQuota", "Cluster"), definition("Share", "Namespaced"),
	}, "---\n")})
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var (
		o          = c.Policy.Objects
		configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		limits     = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Limit"}
		gold       = labels.SelectorFromSet(labels.Set{"tier": "gold"})
	)
	ns, ok := o.Namespace("shop")
	if !ok || ns.Labels["team"] != "a" {
		t.Errorf("Namespace(shop) = %v, %v", ns, ok)
	}
	u, err := o.Get(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", "shop")
	if err != nil || u == nil || u.GetLabels()["kubernetes.io/metadata.name"] != "shop" {
		t.Errorf("the namespace as an object: %v, %v", u, err)
	}
	u, err = o.Get(limits, "", "one")
	if err != nil || u == nil {
		t.Fatalf("Limit/one is not there: %v", err)
	}
	if spec := u.DeepCopy().Object["spec"].(map[string]any); spec["max"] != int64(3) || spec["share"] != 0.5 {
		t.Errorf("numbers are %T and %T, want those of a Kubernetes decoder", spec["max"], spec["share"])
	}
	for name, c := range map[string]struct {
		gvk             schema.GroupVersionKind
		namespace, name string
	}{
		"other version":   {schema.GroupVersionKind{Group: "example.org", Version: "v2", Kind: "Limit"}, "", "one"},
		"other namespace": {limits, "shop", "one"},
		"no namespace":    {configMaps, "", "limits"},
		"other name":      {configMaps, "shop", "absent"},
	} {
		if got, err := o.Get(c.gvk, c.namespace, c.name); got != nil || err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	for name, c := range map[string]struct {
		namespace string
		selector  labels.Selector
		want      []string
	}{
		"all of a namespace": {"shop", nil, []string{"also", "limits"}},
		"selected":           {"shop", gold, []string{"also", "limits"}},
		"not selected":       {"other", gold, nil},
		"no namespace":       {"", nil, nil},
	} {
		var got []string
		list, err := o.List(configMaps, c.namespace, c.selector)
		for _, u := range list {
			got = append(got, u.GetName())
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		gvk  schema.GroupVersionKind
		want bool
	}{
		"of Kubernetes":                          {configMaps, true},
		"of Kubernetes, of the cluster":          {schema.GroupVersionKind{Version: "v1", Kind: "Node"}, false},
		"of a group of Kubernetes":               {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, true},
		"of a group with a domain":               {schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, false},
		"of a group with a domain, namespaced":   {schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, true},
		"custom, with an object that is in none": {limits, false},
		"custom, without any object":             {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Quota"}, true},
		"defined as of the cluster":              {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "ClusterQuota"}, false},
		"defined as namespaced":                  {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Share"}, true},
		"custom, with a name of Kubernetes":      {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Node"}, true},
	} {
		if got, err := o.Namespaced(c.gvk); err != nil || got != c.want {
			t.Errorf("%s: Namespaced = %v, %v, want %v", name, got, err, c.want)
		}
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v2", Kind: "ConfigMap"},
		{Group: "apps", Version: "v1beta1", Kind: "Deployment"},
		{Group: "autoscaling", Version: "v2beta2", Kind: "HorizontalPodAutoscaler"},
		{Group: "apps", Version: "v1", Kind: "Deploymnet"},
	} {
		if _, err := o.Namespaced(gvk); !errors.Is(err, policy.ErrNotServed) || !strings.HasPrefix(err.Error(), fmt.Sprintf("failed to find resource referenced by paramKind: '%v'", gvk)) {
			t.Errorf("%v: %v", gvk, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	const head = "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: log}\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"unknown field with a near name": {
			map[string]string{"a.yaml": head + "spec: {injecton: OptIn, template: {spec: {}}}"},
			[]string{`a.yaml: SidecarProfile/log: spec.injecton: unknown field (hint: did you mean "injection"?)`},
		},
		"unknown field, wrong case": {
			map[string]string{"a.yaml": head + "spec: {appcontainers: [], template: {spec: {}}}"},
			[]string{`a.yaml: SidecarProfile/log: spec.appcontainers: unknown field (hint: did you mean "appContainers"?)`},
		},
		"unknown field that belongs elsewhere": {
			map[string]string{"a.yaml": head + "spec: {namespaceSelector: {}, matchConditions: [], template: {spec: {}}}"},
			[]string{
				`a.yaml: SidecarProfile/log: spec.matchConditions: unknown field (hint: did you mean "spec.match.matchConditions"?)`,
				`a.yaml: SidecarProfile/log: spec.namespaceSelector: unknown field (hint: did you mean "spec.match.namespaceSelector"?)`,
			},
		},
		"unknown field of no kinship": {
			map[string]string{"a.yaml": head + "spec: {zzz: 1, template: {spec: {}}}"},
			[]string{`a.yaml: SidecarProfile/log: spec.zzz: unknown field (hint: the allowed fields are appContainers, distinctUsers, hostNetwork, injection, match, onConflict, onSameName, parameters, placement, podsThatEnd, presets, rollout, …)`},
		},
		"unknown fields deep inside, and of upstream types": {
			map[string]string{"a.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec: {matchConstraints: {resourceRules: [{}, {operatons: []}], namespaceSelector: {matchExpressions: [{ky: x}]}}}"},
			[]string{
				`a.yaml: AdmissionPolicy/p: spec.matchConstraints.namespaceSelector.matchExpressions[0].ky: unknown field (hint: did you mean "key"?)`,
				`a.yaml: AdmissionPolicy/p: spec.matchConstraints.resourceRules[1].operatons: unknown field (hint: did you mean "operations"?)`,
			},
		},
		"unknown fields of an inlined spec, of metadata and at the top": {
			map[string]string{"a.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p, lables: {}}\nspecc: {}\nspec: {validationActions: [Deny], validation: [], podSecurity: {lvel: x}}"},
			[]string{
				`a.yaml: AdmissionPolicy/p: metadata.lables: unknown field (hint: did you mean "labels"?)`,
				`a.yaml: AdmissionPolicy/p: spec.podSecurity.lvel: unknown field (hint: did you mean "level"?)`,
				`a.yaml: AdmissionPolicy/p: spec.validation: unknown field (hint: did you mean "validations"?)`,
				`a.yaml: AdmissionPolicy/p: specc: unknown field (hint: did you mean "spec"?)`,
			},
		},
		"values of the wrong kind": {
			map[string]string{"a.yaml": head + `spec: {injection: true, match: [], parameters: {name: x}, rollout: {percent: "80"}, distinctUsers: [5], share: [{container: x, readOnly: "yes", env: x}, x], appContainers: [{names: [a], initContainers: 1, template: {}}], onConflict: 1.5}`},
			[]string{
				`a.yaml: SidecarProfile/log: spec.appContainers[0].initContainers: "1" is a number, expected true or false`,
				`a.yaml: SidecarProfile/log: spec.distinctUsers[0]: "5" is a number, expected a string (hint: put it in quotes)`,
				`a.yaml: SidecarProfile/log: spec.injection: "true" is a boolean, expected a string (hint: put it in quotes: YAML reads yes, no, on, off, y and n as booleans)`,
				`a.yaml: SidecarProfile/log: spec.match: is a list, expected a mapping`,
				`a.yaml: SidecarProfile/log: spec.onConflict: "1.5" is a number, expected a string (hint: put it in quotes)`,
				`a.yaml: SidecarProfile/log: spec.parameters: is a mapping, expected a list`,
				`a.yaml: SidecarProfile/log: spec.rollout.percent: "80" is a string, expected an integer (hint: remove the quotes)`,
				`a.yaml: SidecarProfile/log: spec.share[0].env: "x" is a string, expected a list`,
				`a.yaml: SidecarProfile/log: spec.share[0].readOnly: "yes" is a string, expected true or false`,
				`a.yaml: SidecarProfile/log: spec.share[1]: "x" is a string, expected a mapping`,
			},
		},
		"a token pasted into the wrong place is not repeated": {
			map[string]string{"a.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nmetadata: {name: ci}\nspec: {sha256: 12345, user: gatehouse_ci_secret, expiresAt: gatehouse_ci_secret}"},
			[]string{
				`a.yaml: AccessToken/ci: spec.expiresAt: the value is not a time such as 2026-12-31T23:59:59Z`,
				`a.yaml: AccessToken/ci: spec.sha256: the value is a number, expected a string (hint: put it in quotes)`,
				`a.yaml: AccessToken/ci: spec.user: the value is a string, expected a mapping`,
			},
		},
		"bounds of a token from a template without its values": {
			map[string]string{
				"a.yaml": strings.Replace(token, "expiresAt", "scope: null, expiresAt", 1),
				"b.yaml": strings.Replace(strings.Replace(token, "{name: ci}", "{name: b}", 1), "expiresAt", "scope: {name: view, namespaces: }, expiresAt", 1),
				"c.yaml": strings.Replace(strings.Replace(token, "{name: ci}", "{name: c}", 1), "expiresAt", "scope: {rules: [{verbs: [get], apiGroups: [apps], resources: [deployments], resourceNames: }]}, expiresAt", 1),
				"d.yaml": strings.Replace(strings.Replace(token, "{name: ci}", "{name: d}", 1), "expiresAt", "scope: {rules: [{verbs: [get], apiGroups: [apps], resources: [deployments], namespaces: []}], namespaces: []}, expiresAt", 1),
			},
			[]string{
				`a.yaml: AccessToken/ci: spec.scope: is null, which narrows nothing (hint: leave the field out if that is meant)`,
				`b.yaml: AccessToken/b: spec.scope.namespaces: is null, which narrows nothing (hint: leave the field out if that is meant)`,
				`c.yaml: AccessToken/c: spec.scope.rules[0].resourceNames: is null, which narrows nothing (hint: leave the field out if that is meant)`,
				`d.yaml: AccessToken/d: spec.scope.namespaces: is an empty list, which narrows nothing (hint: leave the field out if that is meant)`,
				`d.yaml: AccessToken/d: spec.scope.rules[0].namespaces: is an empty list, which narrows nothing (hint: leave the field out if that is meant)`,
			},
		},
		"duplicate keys in YAML": {
			map[string]string{"a.yaml": "# one\n---\n" + profile + "---\n" + head + "spec:\n  injection: OptIn\n  injection: OptOut\nmetadata: {}\n"},
			[]string{
				`a.yaml#2: line 13: the key "injection" is given twice (hint: remove one of the two)`,
				`a.yaml#2: line 14: the key "metadata" is given twice (hint: remove one of the two)`,
			},
		},
		"keys that become duplicates": {
			map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: z}\ndata: {1: a, \"1\": b}"},
			[]string{`a.yaml: data.1: the key is given twice (hint: remove one of the two)`},
		},
		"duplicate keys in JSON": {
			map[string]string{"a.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"y","namespace":"z"},"data":{"a":"b","a":"c"}}`},
			[]string{
				`a.json: data.a: the key is given twice (hint: remove one of the two)`,
				`a.json: metadata.name: the key is given twice (hint: remove one of the two)`,
			},
		},
		"wrong versions of known kinds": {
			map[string]string{
				"a.yaml": strings.Replace(profile, "v1alpha1", "v1", 1),
				"b.yaml": strings.Replace(upstream, "/v1\n", "/v1beta1\n", 1),
				"c.yaml": strings.Replace(binding, "admissionregistration.k8s.io/v1", "v1", 1),
				"d.yaml": strings.Replace(namespace, "apiVersion: v1", "apiVersion: v2", 1),
			},
			[]string{
				`a.yaml: SidecarProfile/log: apiVersion: "gatehouse.dev/v1" is not a supported version of SidecarProfile (hint: write gatehouse.dev/v1alpha1)`,
				`b.yaml: ValidatingAdmissionPolicy/up: apiVersion: "admissionregistration.k8s.io/v1beta1" is not a supported version of ValidatingAdmissionPolicy (hint: write admissionregistration.k8s.io/v1)`,
				`c.yaml: ValidatingAdmissionPolicyBinding/up: apiVersion: "v1" is not a supported version of ValidatingAdmissionPolicyBinding (hint: write admissionregistration.k8s.io/v1)`,
				`d.yaml: Namespace/shop: apiVersion: "v2" is not a supported version of Namespace (hint: write v1)`,
			},
		},
		"unknown kinds": {
			map[string]string{
				"a.yaml": strings.Replace(profile, "SidecarProfile", "SidecarProfil", 1),
				"b.yaml": strings.Replace(profile, "SidecarProfile", "Gate", 1),
				"c.yaml": strings.Replace(upstream, "ValidatingAdmissionPolicy", "ValidatingAdmisionPolicy", 1),
				"d.yaml": strings.Replace(profile, "SidecarProfile", "MutatingAdmissionPolicy", 1),
				"e.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfig\nrequestCostBudget: 1\n",
				"f.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Tests\n",
				"g.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Policy\n",
			},
			[]string{
				`a.yaml: SidecarProfil/log: kind: "SidecarProfil" is not a kind of gatehouse.dev (hint: did you mean "SidecarProfile"?)`,
				`b.yaml: Gate/log: kind: "Gate" is not a kind of gatehouse.dev (hint: supported kinds are AccessToken, AdmissionPolicy, AdmissionPolicyBinding, AuthenticationConfiguration, Grant, PolicyBaseline, PolicyConfiguration, PolicyException, RecordingConfiguration, SidecarProfile, Test, TokenRevocation)`,
				`c.yaml: ValidatingAdmisionPolicy/up: kind: "ValidatingAdmisionPolicy" is not a kind of admissionregistration.k8s.io (hint: did you mean "ValidatingAdmissionPolicy"?)`,
				`d.yaml: MutatingAdmissionPolicy/log: apiVersion: "gatehouse.dev/v1alpha1" is not a supported version of MutatingAdmissionPolicy (hint: write admissionregistration.k8s.io/v1)`,
				`e.yaml: PolicyConfig: kind: "PolicyConfig" is not a kind of gatehouse.dev (hint: did you mean "PolicyConfiguration"?)`,
				`f.yaml: Tests: kind: "Tests" is not a kind of gatehouse.dev (hint: did you mean "Test"?)`,
				`g.yaml: Policy: kind: "Policy" is not a kind of gatehouse.dev (hint: supported kinds are AccessToken, AdmissionPolicy, AdmissionPolicyBinding, AuthenticationConfiguration, Grant, PolicyBaseline, PolicyConfiguration, PolicyException, RecordingConfiguration, SidecarProfile, Test, TokenRevocation)`,
			},
		},
		"an object given twice": {
			map[string]string{"b.yaml": profile + "---\n" + configMap, "a/x.yaml": configMap + "---\n" + profile},
			[]string{
				`b.yaml#1: SidecarProfile/log: the object is given twice, first in "a/x.yaml#2" (hint: remove one of the two or give it another name)`,
				`b.yaml#2: ConfigMap/shop/limits: the object is given twice, first in "a/x.yaml#1" (hint: remove one of the two or give it another name)`,
			},
		},
		"a namespace on what is in none": {
			map[string]string{"a.yaml": strings.Replace(profile, "{name: log}", "{name: log, namespace: shop}", 1)},
			[]string{`a.yaml: SidecarProfile/log: metadata.namespace: "shop" is set, but every SidecarProfile is cluster-scoped (hint: select namespaces with spec.match.namespaceSelector)`},
		},
		"no object at all": {
			map[string]string{
				"a.yaml": "just text", "b.yaml": "[1]", "c.yaml": "kind: X", "d.yaml": "apiVersion: v1\nkind: X", "e.yaml": "apiVersion: v1\nkind: X\nmetadata: {}",
				"f.yaml": "apiVersion: a/b/c\nkind: X\nmetadata: {}", "g.yaml": "apiVersion: v1\nkind: X\nmetadata: {name: 5}", "h.json": "3", "i.yaml": "{}",
			},
			[]string{
				`a.yaml: is not a Kubernetes object (hint: a document is a mapping with apiVersion, kind and metadata)`,
				`b.yaml: is not a Kubernetes object (hint: a document is a mapping with apiVersion, kind and metadata)`,
				`c.yaml: apiVersion: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
				`d.yaml: X: metadata: is missing or not a mapping (hint: a document has apiVersion, kind and metadata.name)`,
				`e.yaml: X: metadata.name: is missing (hint: set metadata.name)`,
				`f.yaml: X: apiVersion: "a/b/c" is not a valid apiVersion (hint: write it as v1 or group.example/v1)`,
				`g.yaml: X: metadata.name: "5" is a number, expected a string (hint: put it in quotes)`,
				`h.json: is not a Kubernetes object (hint: a document is a mapping with apiVersion, kind and metadata)`,
				`i.yaml: apiVersion: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
				`i.yaml: kind: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
			},
		},
		"metadata of context": {
			map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: z, labels: {on: true}, anotations: {}}"},
			[]string{
				`a.yaml: ConfigMap/z/x: metadata.anotations: unknown field (hint: did you mean "annotations"?)`,
				`a.yaml: ConfigMap/z/x: metadata.labels.true: "true" is a boolean, expected a string (hint: put it in quotes: YAML reads yes, no, on, off, y and n as booleans)`,
			},
		},
		"a List without its items": {
			map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nmetadata: {name: foo}\nitem: []\n---\napiVersion: v1\nkind: List\nmetadata: {name: foo}\nitems: null"},
			[]string{
				`a.yaml#1: List: items: is missing or not a list (hint: a List holds its objects in items)`,
				`a.yaml#2: List: items: is missing or not a list (hint: a List holds its objects in items)`,
			},
		},
		"items of lists": {
			map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- kind: X\n- " + strings.ReplaceAll(strings.Replace(profile, "injection", "injecton", 1), "\n", "\n  ") + "\n---\napiVersion: v1\nkind: ConfigMapList\nitems: [3]"},
			[]string{
				`a.yaml#1/items[0]: apiVersion: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
				`a.yaml#1/items[1]: SidecarProfile/log: spec.injecton: unknown field (hint: did you mean "injection"?)`,
				`a.yaml#2/items[0]: is not a Kubernetes object (hint: a document is a mapping with apiVersion, kind and metadata)`,
			},
		},
		"half-written files do not hide the rest": {
			map[string]string{
				"a.yaml": head + "spec:\n  template: {spec: {contai",
				"b.json": "{\n\"apiVersion\": \"v1\",\n\"kind\": \"Name",
				"c.json": "{\n\"apiVersion\": \"v1\",\n\"kind\" \"Name\"}",
				"d.yaml": "a: b\n---\n" + head + "spec:\n  injection: \"OptIn\n---\nkind: X\n",
				"e.yaml": head + "spec:\n\tinjection: OptIn",
				"f.yaml": "a: *nowhere",
				"g.yaml": "{a: b} trailing",
			},
			[]string{
				`a.yaml: near line 5: did not find expected ',' or '}' (hint: check the brackets, and put text that begins with [ or { in quotes)`,
				`b.json: line 3: the file ends in the middle of a value`,
				`c.json: line 3: invalid character '"' after object key`,
				`d.yaml#1: apiVersion: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
				`d.yaml#1: kind: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
				`d.yaml#2: near line 8: found unexpected end of stream (hint: close the quotes)`,
				`d.yaml#3: apiVersion: is missing or not a string (hint: a document has apiVersion, kind and metadata.name)`,
				"e.yaml: near line 5: found character that cannot start any token (hint: put text that begins with @, ` or % in quotes, and indent with spaces, never with tabs)",
				`f.yaml: from line 1 on: unknown anchor 'nowhere' referenced (hint: put text that begins with * or & in quotes)`,
				`g.yaml: from line 1 on: there is more text behind the end of the document`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c2, err := Load(directory(t, c.files))
			if c2 != nil {
				t.Error("there is a configuration beside the error")
			}
			if got := findings(t, err); !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestLoadDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		dir  func(t *testing.T) string
		want []string // DIR stands for the directory
	}{
		"does not exist": {
			func(t *testing.T) string { return filepath.Join(t.TempDir(), "absent") },
			[]string{`DIR: cannot be read: no such file or directory (hint: --config takes a directory of YAML and JSON documents)`},
		},
		"is a file": {
			func(t *testing.T) string {
				return filepath.Join(directory(t, map[string]string{"a.yaml": profile}), "a.yaml")
			},
			[]string{`DIR: is not a directory (hint: --config takes a directory of YAML and JSON documents)`},
		},
		"is empty": {
			func(t *testing.T) string {
				return directory(t, map[string]string{"README": "x", ".a.yaml": "x", "b.yaml": "# x"})
			},
			[]string{`DIR: the directory has no documents (hint: add files that end in .yaml, .yml or .json, also in subdirectories)`},
		},
		"a link that leads nowhere": {
			func(t *testing.T) string {
				dir := directory(t, map[string]string{"a.yaml": profile})
				link(t, "absent", filepath.Join(dir, "b.yaml"))
				link(t, "absent", filepath.Join(dir, "policies"))
				return dir
			},
			[]string{`b.yaml: cannot be read: no such file or directory`, `policies: cannot be read: no such file or directory`},
		},
		"a link into a circle": {
			func(t *testing.T) string {
				dir := directory(t, map[string]string{"a.yaml": profile, "sub/b.yaml": namespace})
				link(t, "..", filepath.Join(dir, "sub", "up"))
				return dir
			},
			[]string{`sub/up: is a symbolic link to a directory above it (hint: remove the link)`},
		},
		"a pipe": {
			func(t *testing.T) string {
				dir := directory(t, map[string]string{"a.yaml": profile})
				err := syscall.Mkfifo(filepath.Join(dir, "b.yaml"), 0o600)
				if err != nil {
					t.Fatal(err)
				}
				return dir
			},
			[]string{`b.yaml: is not a regular file`},
		},
		"a file that is too large": {
			func(t *testing.T) string {
				dir := directory(t, map[string]string{"a.yaml": profile, "b.yaml": ""})
				err := os.Truncate(filepath.Join(dir, "b.yaml"), int64(small().fileBytes)+1)
				if err != nil {
					t.Fatal(err)
				}
				return dir
			},
			[]string{`b.yaml: is larger than 5 MiB (hint: split it into several files)`},
		},
		"files that are too large in total": {
			func(t *testing.T) string {
				dir := directory(t, map[string]string{"a.yaml": profile})
				for i := range 2 {
					write(t, filepath.Join(dir, fmt.Sprintf("b%d.yaml", i)), strings.Repeat("# comment\n", small().fileBytes/10))
				}
				return dir
			},
			[]string{`DIR: its files exceed 7 MiB in total`},
		},
		"too many documents": {
			func(t *testing.T) string {
				return directory(t, map[string]string{
					"a.yaml": `{apiVersion: v1, kind: List, items: [` + strings.Repeat("{},", small().documents-1) + "]}",
					"b.yaml": profile + "---\n" + namespace,
				})
			},
			nil, // asserted below: the findings of 999 empty documents and one more
		},
		"too deep": {
			func(t *testing.T) string {
				return directory(t, map[string]string{"a.yaml": profile, strings.Repeat("d/", maxDepth) + "b.yaml": namespace})
			},
			[]string{strings.Repeat("d/", maxDepth-1) + `d: directories nest deeper than 32`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.dir(t)
			err := loadSmall(dir)
			got := findings(t, err)
			if c.want == nil {
				got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "a.yaml") })
				c.want = []string{"b.yaml#2: there are more than 1000 documents"}
			}
			for i := range c.want {
				c.want[i] = strings.ReplaceAll(c.want[i], "DIR", dir)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// The volumes of a kubelet are links into a hidden directory, which is swapped.
func TestLoadKubeletVolume(t *testing.T) {
	dir := directory(t, map[string]string{
		"..2026_01/a.yaml":     profile,
		"..2026_01/sub/b.yaml": namespace,
	})
	link(t, "..2026_01", filepath.Join(dir, "..data"))
	link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
	link(t, "..data/sub", filepath.Join(dir, "sub"))
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Files != 2 || len(c.Sidecar.Profiles) != 1 || c.Sidecar.Profiles[0].Source != "a.yaml" {
		t.Errorf("%d files, profiles %+v", c.Files, c.Sidecar.Profiles)
	}
	if _, known := c.Sidecar.Namespaces.Namespace("shop"); !known {
		t.Error("the linked directory was not read")
	}
}

func TestDigest(t *testing.T) {
	digest := func(files map[string]string) string {
		t.Helper()
		c, err := Load(directory(t, files))
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest
	}
	base := digest(map[string]string{"a.yaml": profile, "b.yaml": namespace})
	if len(base) != 64 || strings.Trim(base, "0123456789abcdef") != "" {
		t.Errorf("digest %q", base)
	}
	for name, c := range map[string]struct {
		files map[string]string
		same  bool
	}{
		"the same elsewhere": {map[string]string{"a.yaml": profile, "b.yaml": namespace}, true},
		"a file beside it":   {map[string]string{"a.yaml": profile, "b.yaml": namespace, "c.txt": "x"}, true},
		"a comment":          {map[string]string{"a.yaml": profile + "# x\n", "b.yaml": namespace}, false},
		"another name":       {map[string]string{"a.yaml": profile, "c.yaml": namespace}, false},
		"another order":      {map[string]string{"b.yaml": profile, "a.yaml": namespace}, false},
		"in one file":        {map[string]string{"a.yaml": profile + "---\n" + namespace}, false},
	} {
		if got := digest(c.files); (got == base) != c.same {
			t.Errorf("%s: digest %s, of the base %s", name, got, base)
		}
	}
}

// A directory in which a document is broken is still looked into.
func TestInspect(t *testing.T) {
	c, found := Inspect(directory(t, map[string]string{
		"a.yaml": strings.Replace(profile, "injection", "injecton", 1),
		"b.yaml": "{half",
		"c.yaml": upstream,
		"d.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n",
	}))
	want := []string{
		`a.yaml: SidecarProfile/log: spec.injecton: unknown field (hint: did you mean "injection"?)`,
		`b.yaml: near line 1: did not find expected ',' or '}' (hint: check the brackets, and put text that begins with [ or { in quotes)`,
		`d.yaml: Secret/x: metadata.namespace: is missing, so no lookup of a Secret in a namespace finds it (hint: set the namespace of the object)`,
	}
	if got := findings(t, found); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if len(c.Sidecar.Profiles) != 0 || len(c.Policy.Policies) != 1 {
		t.Errorf("what could be understood is not there: %+v", c)
	}
	if found[2].Severity != diagnostic.Warning || len(c.Warnings) != 1 {
		t.Errorf("the lack of a namespace is %s, and among the warnings: %v", found[2].Severity, c.Warnings)
	}
}

// A value of a parameter that is of the wrong kind does not keep the rest of its
// profile from being read, so that nothing else in it seems to be missing.
func TestInspectParameterValues(t *testing.T) {
	c, found := Inspect(directory(t, map[string]string{"a.yaml": `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: log}
spec:
  injection: OptOut
  parameters:
  - {default: [no, 1.0], name: paths, type: list}
  - {default: {a: b}, name: level, type: string}
  - {default: 1.10, name: version, type: string}
  - {default: yes, name: answer, type: enum, enum: ["yes", "no"]}
  - {default: 010, name: digits, type: string}
  - {default: 12345678901234567890, name: account, type: string}
  - {default: 64, minimum: 1, name: memory, type: quantity}
  - {default: 010, name: count, type: integer}
  - {default: "8080", name: port, type: port}
  - {default: yes, name: flag, type: boolean}
  - {default: ["yes", "1.0"], name: words, type: list}
  template:
    spec:
      initContainers:
      - {name: log, image: "log:1", restartPolicy: Always, startupProbe: {exec: {command: [ready]}}}
`}))
	if len(found) > 0 {
		t.Error(found)
	}
	_, err := sidecar.Compile(c.Sidecar)
	const booleans = "put it in quotes: YAML reads yes, no, on, off, y and n as booleans"
	want := []string{
		`a.yaml: SidecarProfile/log: spec.parameters[0].default[0]: "false" is a boolean, expected a string (hint: ` + booleans + `)`,
		`a.yaml: SidecarProfile/log: spec.parameters[0].default[1]: "1" is a number, expected a string (hint: put it in quotes)`,
		`a.yaml: SidecarProfile/log: spec.parameters[1].default: is a mapping, expected a string`,
		`a.yaml: SidecarProfile/log: spec.parameters[2].default: "1.1" is a number, expected a string (hint: put it in quotes)`,
		`a.yaml: SidecarProfile/log: spec.parameters[3].default: "true" is a boolean, expected a string (hint: ` + booleans + `)`,
		`a.yaml: SidecarProfile/log: spec.parameters[4].default: "8" is a number, expected a string (hint: put it in quotes)`,
		`a.yaml: SidecarProfile/log: spec.parameters[5].default: "12345678901234567000" is a number, expected a string (hint: put it in quotes)`,
		`a.yaml: SidecarProfile/log: spec.parameters[6].default: "64" is a number, expected a string (hint: put it in quotes)`,
		`a.yaml: SidecarProfile/log: spec.parameters[6].minimum: "1" is a number, expected a string (hint: put it in quotes)`,
	}
	if got := findings(t, err); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestInspectReportsAll has several mistakes in a document.
func TestInspectReportsAll(t *testing.T) {
	t.Parallel()
	c, found := Inspect(directory(t, map[string]string{
		"a.yaml": strings.Replace(exception, "2030-05-01T00:00:00Z", "2030-05-01", 1),
		"b.yaml": strings.Replace(strings.Replace(exception, "name: legacy", "name: other", 1), "match: {namespaces: [shop]}", "match: {namespaces: [shop, 5, store], names: x}", 1),
		"c.yaml": strings.NewReplacer(", namespace: gatehouse-system", "", "match: {namespaces: [shop]}", "match: {names: x}", "policies: [", "policies: [x, ").Replace(exception),
		"d.yaml": strings.NewReplacer("name: legacy, ", "", "match: {namespaces: [shop]}", "match: {names: x}").Replace(exception),
		"e.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nmetadata: {}\nspec: {hash: [gatehouse_secret], user: 5}\n",
	}))
	want := []string{
		`a.yaml: PolicyException/gatehouse-system/legacy: spec.expiresAt: "2030-05-01" is not a time such as 2026-12-31T23:59:59Z`,
		`b.yaml: PolicyException/gatehouse-system/other: spec.match.names: "x" is a string, expected a list`,
		`b.yaml: PolicyException/gatehouse-system/other: spec.match.namespaces[1]: "5" is a number, expected a string (hint: put it in quotes)`,
		`c.yaml: PolicyException/legacy: metadata.namespace: is missing: a PolicyException needs a namespace (hint: set the namespace; it decides which objects it can match)`,
		`c.yaml: PolicyException/legacy: spec.match.names: "x" is a string, expected a list`,
		`c.yaml: PolicyException/legacy: spec.policies[0]: "x" is a string, expected a mapping`,
		`d.yaml: PolicyException: metadata.name: is missing (hint: set metadata.name)`,
		`d.yaml: PolicyException: spec.match.names: "x" is a string, expected a list`,
		`e.yaml: AccessToken: metadata.name: is missing (hint: set metadata.name)`,
		`e.yaml: AccessToken: spec.hash: unknown field (hint: the allowed fields are audiences, expiresAt, scope, sha256, user)`,
		`e.yaml: AccessToken: spec.user: the value is a number, expected a mapping`,
	}
	if got := findings(t, found); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if len(c.Policy.Exceptions) != 0 {
		t.Errorf("got %d exceptions with mistakes", len(c.Policy.Exceptions))
	}
}

// TestKindsOfKubernetes warns about kinds that Kubernetes has under another
// spelling, and about no others.
func TestKindsOfKubernetes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"v1 namespace":     `a.yaml: namespace/shop/x: kind: "namespace" is not a kind of v1, so nothing looks the object up (hint: did you mean "Namespace"?)`,
		"v1 Configmap":     `a.yaml: Configmap/shop/x: kind: "Configmap" is not a kind of v1, so nothing looks the object up (hint: did you mean "ConfigMap"?)`,
		"v1 ServiceAcount": `a.yaml: ServiceAcount/shop/x: kind: "ServiceAcount" is not a kind of v1, so nothing looks the object up (hint: did you mean "ServiceAccount"?)`,
		"rbac.authorization.k8s.io/v1 roleBinding": `a.yaml: roleBinding/shop/x: kind: "roleBinding" is not a kind of rbac.authorization.k8s.io/v1, so nothing looks the object up (hint: did you mean "RoleBinding"?)`,
		"v1 ConfigMap":             "",
		"apps/v1 Deployment":       "",
		"v1 Widget":                "",
		"apps/v9 deployment":       "",
		"example.com/v1 namespace": "",
		"example.com/v1 Configmap": "",
	} {
		version, name, _ := strings.Cut(kind, " ")
		c, err := Load(directory(t, map[string]string{"a.yaml": "apiVersion: " + version + "\nkind: " + name + "\nmetadata: {name: x, namespace: shop}\n"}))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if got := strings.Join(findings(t, c.Warnings), "\n"); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", kind, got, want)
		}
	}
}
