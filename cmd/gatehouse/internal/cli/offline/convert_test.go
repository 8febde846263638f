package offline

import (
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, arg := range args {
		if files[arg] != "" || strings.HasPrefix(arg, "./") {
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
		exception = "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: n}\nspec:\n  exceptions: [{policyName: good, ruleNames: [r]}]\n  match: {any: [{resources: {kinds: [ConfigMap], names: [\"z*\"]}}]}\n"
		template  = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: named}\nspec:\n  crd: {spec: {names: {kind: Named}}}\n  targets:\n    - code:\n        - engine: K8sNativeValidation\n          source: {validations: [{expression: \"variables.anyObject.metadata.name != variables.params.not\", message: wrong}]}\n" +
			"---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Named\nmetadata: {name: c}\nspec: {match: {kinds: [{apiGroups: [\"\"], kinds: [ConfigMap]}], excludedNamespaces: [kube-system]}, parameters: {not: x}}\n"
		rego = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: rego}\nspec: {crd: {spec: {names: {kind: R}}}, targets: [{rego: \"package x\"}]}\n"
		vpol = "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: v}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  validations: [{expression: \"!has(object.spec.hostPID)\", message: wrong}]\n"
		list = "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n  - apiVersion: kyverno.io/v1\n    kind: ClusterPolicy\n    metadata: {name: good, uid: a, generation: 1}\n    spec: {rules: [{name: r, match: {any: [{resources: {kinds: [ConfigMap]}}]}, validate: {message: wrong, pattern: {data: {a: \"?*\"}}}}]}\n    status: {ready: true}\n"
	)
	files := map[string]string{"good.yaml": good, "bad.yaml": bad, "kyverno-test.yaml": test, "objects.yaml": objects, "e.yaml": exception, "t.yaml": template, "rego.yaml": rego, "v.yaml": vpol, "list.yaml": list}
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
		{[]string{"list.yaml"}, cli.ExitYes, []string{"list.yaml:8: converted: ClusterPolicy/good rule r", "1 converted"}}, // as kubectl prints it
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
