package offline

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// convertFiles runs convert where there are files of these names.
func convertFiles(t *testing.T, files map[string]string, args ...string) clitest.Result {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, arg := range args {
		if files[arg] != "" || arg == "." || strings.HasPrefix(arg, "./") {
			args[i] = filepath.Join(dir, arg)
		}
	}
	got := clitest.Run(t.Context(), "", append([]string{"convert"}, args...), NewConvertCommand)
	got.Out, got.Err = strings.ReplaceAll(got.Out, dir+"/", ""), strings.ReplaceAll(got.Err, dir+"/", "")
	return got
}

// TestConvert wants exit codes, reports, and directories that lint and test take.
func TestConvert(t *testing.T) {
	t.Parallel()
	const (
		good = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: good}\nspec:\n  rules:\n    - name: r\n      match: {any: [{resources: {kinds: [ConfigMap]}}]}\n      validate: {message: wrong, pattern: {data: {a: \"?*\"}}}\n"
		bad  = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: bad}\nspec:\n  rules:\n    - name: r\n      match: {any: [{resources: {kinds: [Pod]}}]}\n      verifyImages: [{}]\n"
		test = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: good}\npolicies: [good.yaml]\nresources: [objects.yaml]\nresults:\n" +
			"  - {policy: good, rule: r, kind: ConfigMap, resources: [x], result: pass}\n  - {policy: good, rule: r, kind: ConfigMap, resources: [y1], result: fail}\n"
		objects   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: y1}\n"
		exception = "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: ns}\nspec:\n  exceptions: [{policyName: good, ruleNames: [r]}]\n  match: {any: [{resources: {kinds: [ConfigMap], names: [\"z*\"]}}]}\n"
		template  = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: named}\nspec:\n  crd: {spec: {names: {kind: Named}}}\n  targets:\n    - code:\n        - engine: K8sNativeValidation\n          source: {validations: [{expression: \"variables.anyObject.metadata.name != variables.params.not\", message: wrong}]}\n" +
			"---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Named\nmetadata: {name: c}\nspec: {match: {kinds: [{apiGroups: [\"\"], kinds: [ConfigMap]}], excludedNamespaces: [kube-system]}, parameters: {not: x}}\n"
		rego = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: rego}\nspec: {crd: {spec: {names: {kind: R}}}, targets: [{rego: \"package x\"}]}\n"
		vpol = "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: v}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  validations: [{expression: \"!has(object.spec.hostPID)\", message: wrong}]\n"
	)
	files := map[string]string{"good.yaml": good, "bad.yaml": bad, "kyverno-test.yaml": test, "objects.yaml": objects, "e.yaml": exception, "t.yaml": template, "rego.yaml": rego, "v.yaml": vpol}
	for _, row := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"good.yaml"}, cli.ExitYes, []string{"kind: ValidatingAdmissionPolicyBinding", "validationActions:\n  - Audit", "1 converted, 0 with differences, 0 not"}},
		{[]string{"good.yaml", "--actions", "Deny"}, cli.ExitYes, []string{"kind: AdmissionPolicy", "validationActions:\n  - Deny"}},
		{[]string{"bad.yaml", "-o", "table"}, cli.ExitNo, []string{"bad.yaml:6: NOT converted: ClusterPolicy/bad rule r", "bad.yaml:8: the verification of image signatures (instead: keep it"}},
		{[]string{"bad.yaml", "-o", "json"}, cli.ExitNo, []string{`"status": "NotConverted"`, `"line": 8`}},
		{[]string{"good.yaml", "kyverno-test.yaml"}, cli.ExitYes, []string{"kind: Test", "audited: []", "rule: validations[0]"}},
		{[]string{"good.yaml", "e.yaml"}, cli.ExitYes, []string{"kind: PolicyException", `request.kind.kind == "ConfigMap" &&`, "expiresAt are to be filled in"}},
		{[]string{"e.yaml"}, cli.ExitNo, []string{"which is not among the documents"}},
		{[]string{"t.yaml"}, cli.ExitYes, []string{"apiVersion: constraints.gatekeeper.sh/v1beta1", "resources:\n      - configmaps", "parameterNotFoundAction: Deny", "- kube-system"}},
		{[]string{"rego.yaml"}, cli.ExitNo, []string{"rego.yaml:4: code in Rego (instead: write the rule in CEL"}},
		{[]string{"v.yaml"}, cli.ExitYes, []string{"kind: AdmissionPolicy", "validationActions:\n  - Deny"}},
		{[]string{"objects.yaml"}, cli.ExitUnknown, []string{"there is no policy"}},
		{[]string{"good.yaml", "--actions", "Warn,Deny"}, cli.ExitUnknown, []string{"Deny and Warn exclude each other"}},
		{[]string{"good.yaml", "-o", "dir"}, cli.ExitUnknown, []string{"--directory is required"}},
	} {
		got := convertFiles(t, files, row.args...)
		if got.Code != row.code {
			t.Errorf("%v ends with %d, want %d: %s", row.args, got.Code, row.code, got.Err)
		}
		for _, want := range row.want {
			if !strings.Contains(got.Out+got.Err, want) {
				t.Errorf("%v: no %q in\n%s\n%s", row.args, want, got.Out, got.Err)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "config")
	if got := convertFiles(t, files, "good.yaml", "kyverno-test.yaml", "v.yaml", "-o", "dir", "--directory", dir); got.Code != cli.ExitYes {
		t.Fatalf("ends with %d: %s", got.Code, got.Err)
	}
	if code, said := gatehouse(t, "", "test", "--config", dir); code != cli.ExitYes || !strings.Contains(said, "2 cases: 2 passed") {
		t.Errorf("test ends with %d: %s", code, said)
	}
	if got := convertFiles(t, files, "good.yaml", "--actions", "Warn", "-o", "dir", "--directory", dir); got.Code != cli.ExitUnknown || !strings.Contains(got.Err, "exists with another content") {
		t.Errorf("ends with %d: %s", got.Code, got.Err)
	}
}

// policyServer is an API server that has Kyverno's and Gatekeeper's kinds, as far as paths are answered.
func policyServer(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if next := r.URL.Query().Get("continue"); next != "" {
			path += "?" + next
		} else if answers[path+"?all"] != "" && !r.URL.Query().Has("limit") {
			path += "?all"
		}
		w.Header().Set("Content-Type", "application/json")
		answer := answers[path]
		if answer == expired {
			w.WriteHeader(http.StatusGone)
		}
		if answer == "" {
			w.WriteHeader(http.StatusForbidden)
			answer = fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "cannot list resource \"%s\" in API group \"x\""}`, filepath.Base(path))
		}
		_, _ = w.Write([]byte(answer)) // the client notices
	}))
	t.Cleanup(server.Close)
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL}}},
	}
	text, err := json.Marshal(config)
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(name, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// expired is the answer for a page that has expired.
const expired = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "the continue token is too old"}`

// TestConvertCluster converts what a cluster has.
func TestConvertCluster(t *testing.T) {
	t.Parallel()
	group := func(name string, versions ...string) string {
		var all []string
		for _, v := range versions {
			all = append(all, fmt.Sprintf(`{"groupVersion": "%s/%s", "version": "%s"}`, name, v, v))
		}
		return fmt.Sprintf(`{"name": %q, "versions": [%s]}`, name, strings.Join(all, ","))
	}
	resources := func(version string, kinds ...string) string {
		var all []string
		for _, kind := range kinds {
			resource, kind, _ := strings.Cut(kind, "=")
			all = append(all, fmt.Sprintf(`{"name": %q, "kind": %q, "verbs": ["list"]}`, resource, kind))
		}
		return fmt.Sprintf(`{"kind": "APIResourceList", "groupVersion": %q, "resources": [%s]}`, version, strings.Join(all, ","))
	}
	list := func(next string, items ...string) string {
		return fmt.Sprintf(`{"kind": "List", "apiVersion": "v1", "metadata": {"continue": %q}, "items": [%s]}`, next, strings.Join(items, ","))
	}
	policy := func(name string) string {
		return fmt.Sprintf(`{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": %q, "managedFields": [{}]}, "status": {"ready": true},
			"spec": {"rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}, "validate": {"message": "m", "pattern": {"data": {"a": "?*"}}}}]}}`, name)
	}
	answers := map[string]string{
		"/api":                             `{"kind": "APIVersions", "versions": []}`,
		"/apis":                            `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [` + group("kyverno.io", "v1", "v2") + "," + group("constraints.gatekeeper.sh", "v1beta1") + "," + group("templates.gatekeeper.sh", "v1") + `]}`,
		"/apis/kyverno.io/v1":              resources("kyverno.io/v1", "clusterpolicies=ClusterPolicy", "updaterequests=UpdateRequest"),
		"/apis/kyverno.io/v2":              resources("kyverno.io/v2", "policyexceptions=PolicyException", "clusterpolicies=ClusterPolicy"),
		"/apis/templates.gatekeeper.sh/v1": resources("templates.gatekeeper.sh/v1", "constrainttemplates=ConstraintTemplate"),
		"/apis/constraints.gatekeeper.sh/v1beta1":    resources("constraints.gatekeeper.sh/v1beta1", "named=Named"),
		"/apis/kyverno.io/v1/clusterpolicies":        list("second", policy("one")),
		"/apis/kyverno.io/v1/clusterpolicies?second": list("third", policy("two")),
		"/apis/kyverno.io/v1/clusterpolicies?third":  expired,
		"/apis/kyverno.io/v1/clusterpolicies?all":    list("", policy("one"), policy("two")),
		"/apis/kyverno.io/v2/policyexceptions": list("", `{"apiVersion": "kyverno.io/v2", "kind": "PolicyException", "metadata": {"name": "e", "namespace": "n"},
			"spec": {"exceptions": [{"policyName": "two", "ruleNames": ["r"]}], "match": {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["z*"]}}]}}}`),
		"/apis/templates.gatekeeper.sh/v1/constrainttemplates": list("", `{"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "named"}, "spec": {"crd": {"spec": {"names": {"kind": "Named"}}},
			"targets": [{"code": [{"engine": "K8sNativeValidation", "source": {"validations": [{"expression": "variables.anyObject.metadata.name != variables.params.not", "message": "m"}]}}]}]}}`),
		"/apis/constraints.gatekeeper.sh/v1beta1/named": list("", `{"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Named", "metadata": {"name": "c"}, "spec": {"match": {"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}]}, "parameters": {"not": "x"}}}`),
	}
	got := convertFiles(t, nil, "--kubeconfig", policyServer(t, answers))
	if got.Code != cli.ExitYes {
		t.Errorf("ends with %d: %s", got.Code, got.Err)
	}
	for _, want := range []string{
		"clusterpolicies/one:", "clusterpolicies/two:", "policyexceptions/n/e:", "constrainttemplates/named:", "named/c:", "4 converted, 1 with differences, 0 not; 0 other documents",
	} {
		if !strings.Contains(got.Err, want) {
			t.Errorf("no %q in\n%s", want, got.Err)
		}
	}
	delete(answers, "/apis/kyverno.io/v2/policyexceptions")
	if got := convertFiles(t, nil, "--kubeconfig", policyServer(t, answers)); got.Code != cli.ExitUnknown || !strings.Contains(got.Err, "the right to list policyexceptions.x is missing") {
		t.Errorf("ends with %d: %s", got.Code, got.Err)
	}
	answers = map[string]string{"/api": answers["/api"], "/apis": `{"kind": "APIGroupList", "groups": []}`}
	if got := convertFiles(t, nil, "--kubeconfig", policyServer(t, answers)); got.Code != cli.ExitUnknown || !strings.Contains(got.Err, "there is no policy") {
		t.Errorf("ends with %d: %s", got.Code, got.Err)
	}
	if got := convertFiles(t, nil, "--context", "c", "x.yaml"); got.Code != cli.ExitUnknown || !strings.Contains(got.Err, "files and a cluster exclude each other") {
		t.Errorf("ends with %d: %s", got.Code, got.Err)
	}
}
