package offline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

const (
	compilePolicy = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{name: registry, expression: 'object.spec.containers.all(c, c.image.startsWith("r/"))', message: another registry}]
  validationActions: [Deny]
`
	compileException = `apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: legacy, namespace: gatehouse-system}
spec: {policies: [{name: images}], match: {namespaces: [legacy], names: ["old-*"]}, reason: it moves, expiresAt: "2999-01-01T00:00:00Z"}
`
)

// runCompile runs the command, and returns its exit code, its output and its errors.
func runCompile(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	got := clitest.Run(t.Context(), "", append([]string{"compile"}, args...), NewCompileCommand)
	return got.Code, got.Out, got.Err
}

// TestCompile compiles a directory, changes it, and compiles it again.
func TestCompile(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("images.yaml", compilePolicy)
	if code, _, errs := runCompile(t, "--config", dir, "-o", out); code != cli.ExitYes {
		t.Fatalf("exit code %d:\n%s", code, errs)
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(out, "images.gatehouse.dev.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := read()
	for _, part := range []string{"kind: ValidatingAdmissionPolicy\n", "kind: ValidatingAdmissionPolicyBinding\n", "validations[registry]: another registry", "compiled-from: AdmissionPolicy/images"} {
		if !strings.Contains(first, part) {
			t.Errorf("there is no %q in\n%s", part, first)
		}
	}
	if code, _, errs := runCompile(t, "--config", dir, "-o", out, "--check"); code != cli.ExitYes {
		t.Errorf("--check after writing ends with %d:\n%s", code, errs)
	}

	write("legacy.yaml", compileException)
	if code, _, errs := runCompile(t, "--config", dir, "-o", out, "--check"); code != cli.ExitNo || !strings.Contains(errs, "images.gatehouse.dev.yaml: would change") || read() != first {
		t.Errorf("--check after a change ends with %d:\n%s", code, errs)
	}
	code, _, errs := runCompile(t, "--config", dir, "-o", out)
	if code != cli.ExitNo || !strings.Contains(errs, "PolicyException/gatehouse-system/legacy: native, differs") || !strings.Contains(errs, "2999-01-01T00:00:00Z: compile again by then") {
		t.Errorf("compiling an exception that expires ends with %d:\n%s", code, errs)
	}
	if text := read(); !strings.Contains(text, `exceptions-expire-at: "2999-01-01T00:00:00Z"`) || !strings.Contains(text, "name: exception-gatehouse-system-legacy-") {
		t.Errorf("the exception is not there:\n%s", text)
	}
	if code, _, errs := runCompile(t, "--config", dir, "-o", out, "--until", "2999-01-01T00:00:00Z"); code != cli.ExitNo || read() != first {
		t.Errorf("--until ends with %d:\n%s%s", code, errs, read())
	}

	if err := os.Remove(filepath.Join(dir, "legacy.yaml")); err != nil {
		t.Fatal(err)
	}
	write("images.yaml", strings.Replace(compilePolicy, "name: images", "name: registries", 1))
	if code, gone, errs := runCompile(t, "--config", dir, "-o", out, "--prune"); code != cli.ExitYes || !strings.Contains(gone, filepath.Join(out, "images.gatehouse.dev.yaml")) || strings.Contains(gone, "registries") {
		t.Errorf("--prune ends with %d:\n%s%s", code, gone, errs)
	}
}

// TestCompileJSON reads the report for programs.
func TestCompileJSON(t *testing.T) {
	t.Parallel()
	code, out, _ := runCompile(t, "--config", library, "-o", "json")
	var report struct {
		Items []struct{ Kind, Name, Rule, Status string } `json:"items"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != cli.ExitNo || len(report.Items) == 0 {
		t.Fatalf("exit code %d, %d items: %v", code, len(report.Items), err)
	}
}

// TestCompileUsage has wrong flags reported.
func TestCompileUsage(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no configuration":   {[]string{"-o", "yaml"}, "config"},
		"nothing there":      {[]string{"--config", empty}, "the directory has no documents"},
		"another version":    {[]string{"--config", library, "--kubernetes", "1.20"}, "must be 1.35, 1.36 or 1.37"},
		"no time":            {[]string{"--config", library, "--until", "soon"}, "must be a time such as"},
		"nothing to check":   {[]string{"--config", library, "--check"}, "--check and --prune are for -o DIR"},
		"a file is no place": {[]string{"--config", library, "-o", "compile_test.go/x"}, "compile_test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, _, errs := runCompile(t, test.args...); code != cli.ExitUnknown || !strings.Contains(errs, test.want) {
				t.Errorf("exit code %d:\n%s", code, errs)
			}
		})
	}
}
