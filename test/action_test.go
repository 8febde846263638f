package test

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestAction holds that the GitHub Action fails for whatever fails: lint, tests in any form of a document, tests that cannot be used, and
// check with any input.
func TestAction(t *testing.T) {
	t.Parallel()
	root, err := support.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var action struct {
		Runs struct{ Steps []struct{ Run string } }
	}
	if err := yaml.Unmarshal(text, &action); err != nil {
		t.Fatal(err)
	}
	script := action.Runs.Steps[len(action.Runs.Steps)-1].Run
	binary, err := gatehouse.Binary()
	if err != nil {
		t.Fatal(err)
	}
	const (
		policy = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n" +
			"  validations: [{expression: \"object.metadata.name != 'bad'\", message: bad}]\n  validationActions: [Deny]\n"
		test   = "apiVersion: gatehouse.dev/v1alpha1\nkind: Test\nmetadata: {name: t}\ncases:\n- {name: c, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: bad}}, expect: {verdict: Allowed}}\n"
		object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\n"
	)
	for name, tc := range map[string]struct {
		files           map[string]string
		config          string // "config" by default
		manifests, args string
		fails           bool
		want            []string
	}{
		"the library":                {config: filepath.Join(root, "manifests/policies/pod-security-baseline"), want: []string{" 0 failed"}},
		"a command in an input":      {config: "$(touch injected)", fails: true},
		"no tests":                   {want: []string{"0 errors, 0 warnings", "0 cases"}},
		"a mistake":                  {files: map[string]string{"config/q.yaml": "kind: AdmissionPolicy\n", "m.yaml": object}, manifests: "m.yaml", fails: true, want: []string{"gatehouse lint", "gatehouse test", "gatehouse check"}},
		"a test":                     {files: map[string]string{"config/t.yaml": test}, fails: true, want: []string{"::error file=config/t.yaml,line=1,title=test::t, cases[0]: c", "1 case: 0 passed, 1 failed"}},
		"CRLF":                       {files: map[string]string{"config/t.yaml": strings.ReplaceAll(test, "\n", "\r\n")}, fails: true},
		"quotes":                     {files: map[string]string{"config/t.yaml": strings.Replace(test, "kind: Test", `"kind": "Test" # one`, 1)}, fails: true},
		"JSON":                       {files: map[string]string{"config/t.json": `{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "Test", "metadata": {"name": "t"}, "cases": [{"name": "c", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bad"}}, "expect": {"verdict": "Allowed"}}]}`}, fails: true},
		"a test that cannot be used": {files: map[string]string{"config/t.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Test\nmetadata: {name: t}\ncases: []\n"}, fails: true},
		"manifests":                  {files: map[string]string{"m.yaml": object}, manifests: "m.yaml", fails: true, want: []string{"title=AdmissionPolicy/p/validations[0]"}},
		"arguments alone":            {files: map[string]string{"m.yaml": object}, args: "--as jane\r\n-f m.yaml\n", fails: true, want: []string{"title=AdmissionPolicy/p/validations[0]"}},
		"arguments without a file":   {args: "--as jane", fails: true},
		"fine":                       {files: map[string]string{"m.yaml": strings.Replace(object, "bad", "good", 1)}, manifests: "m.yaml", want: []string{"1 object: 1 admitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := map[string]string{"config/p.yaml": policy}
			maps.Copy(files, tc.files)
			for name, text := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
			command.Dir = dir
			command.Env = append(os.Environ(), "RUNNER_TEMP="+filepath.Dir(binary), "CONFIG="+cmp.Or(tc.config, "config"), "MANIFESTS="+tc.manifests, "ARGS="+tc.args)
			out, err := command.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("got %v, want an error: %v\n%s", err, tc.fails, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "injected")); err == nil {
				t.Error("the action runs what is in an input")
			}
			for _, part := range tc.want {
				if !strings.Contains(string(out), part) {
					t.Errorf("%q is missing in\n%s", part, out)
				}
			}
		})
	}
}

// TestHooks runs what the pre-commit hooks run.
func TestHooks(t *testing.T) {
	t.Parallel()
	root, err := support.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, ".pre-commit-hooks.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var hooks []struct{ Entry string }
	if err := yaml.Unmarshal(text, &hooks); err != nil || len(hooks) == 0 {
		t.Fatalf("%d hooks: %v", len(hooks), err)
	}
	for _, hook := range hooks {
		builder, command, _ := strings.Cut(hook.Entry, " ")
		if info, err := os.Stat(filepath.Join(root, builder)); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s is no program: %v", builder, err)
		}
		if out, err := gatehouse.Run(t.Context(), command, "--config", filepath.Join(root, "manifests/policies/pod-security-baseline")); err != nil {
			t.Errorf("%s: %v\n%s", hook.Entry, err, out)
		}
	}
}
