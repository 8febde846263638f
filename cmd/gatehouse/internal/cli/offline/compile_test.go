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

// compileDirectory returns a function that writes a file into a directory, and the directory.
func compileDirectory(t *testing.T, files map[string]string) (dir string, write func(name, text string)) {
	t.Helper()
	dir = t.TempDir()
	write = func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	return dir, write
}

// TestCompile compiles a directory, changes it, and compiles it again.
func TestCompile(t *testing.T) {
	t.Parallel()
	dir, write := compileDirectory(t, map[string]string{"images.yaml": compilePolicy})
	out := filepath.Join(t.TempDir(), "out")
	file := filepath.Join(out, "images.gatehouse.dev.yaml")
	run := func(want int, contains []string, args ...string) (stdout string) {
		t.Helper()
		code, stdout, errs := runCompile(t, append([]string{"--config", dir, "-o", out}, args...)...)
		for _, part := range contains {
			if !strings.Contains(errs, part) {
				t.Errorf("%q: there is no %q in\n%s", args, part, errs)
			}
		}
		if code != want {
			t.Errorf("%q: exit code %d:\n%s", args, code, errs)
		}
		return stdout
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(file) // #nosec G304 -- of the test
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	run(cli.ExitNo, []string{"images.gatehouse.dev.yaml: is missing\n", "is not up to date: run gatehouse compile --config " + dir + " -o " + out + ", then commit or apply the files\n"}, "--check")
	run(cli.ExitYes, []string{"all     1       0        0\n"})
	first := read()
	for _, part := range []string{"kind: ValidatingAdmissionPolicy\n", "kind: ValidatingAdmissionPolicyBinding\n", "name: images.spec.template.gatehouse.dev\n", "validations[registry]: another registry", "compiled-from: AdmissionPolicy/images", "- kube-system\n"} {
		if !strings.Contains(first, part) {
			t.Errorf("there is no %q in\n%s", part, first)
		}
	}
	run(cli.ExitYes, nil, "--check")

	run(cli.ExitNo, []string{"images.gatehouse.dev.yaml: would change\n", "run gatehouse compile --config " + dir + " -o " + out + " --exclude-namespace a,b, then"}, "--check", "--exclude-namespace", "a,b")

	write("legacy.yaml", compileException)
	if run(cli.ExitNo, []string{"images.gatehouse.dev.yaml: would change\n"}, "--check"); read() != first {
		t.Error("--check has written")
	}
	run(cli.ExitNo, []string{"PolicyException/gatehouse-system/legacy", "2999-01-01T00:00:00Z: compile again by then"})
	if text := read(); !strings.Contains(text, `exceptions-expire-at: "2999-01-01T00:00:00Z"`) || !strings.Contains(text, "name: exception-gatehouse-system-legacy-") {
		t.Errorf("the exception is not there:\n%s", text)
	}
	run(cli.ExitYes, nil, "--check") // that it differs is known
	run(cli.ExitNo, []string{"images.gatehouse.dev.yaml: would change"}, "--check", "--until", "2999-01-01T00:00:00Z")
	if run(cli.ExitNo, nil, "--until", "2999-01-01T00:00:00Z"); read() != first {
		t.Errorf("--until has written:\n%s", read())
	}

	// An exception that has ended in the meantime.
	past := strings.ReplaceAll(read(), "compiled-from:", "exceptions-expire-at: \"2001-01-01T00:00:00Z\"\n    gatehouse.dev/compiled-from:")
	if err := os.WriteFile(file, []byte(past), 0o600); err != nil {
		t.Fatal(err)
	}
	run(cli.ExitNo, []string{"images.gatehouse.dev.yaml: has an exception that ended at 2001-01-01T00:00:00Z\n"}, "--check", "--until", "2999-01-01T00:00:00Z")
	run(cli.ExitNo, nil, "--until", "2999-01-01T00:00:00Z")

	// What is gone: in a file that is written anew, and a file.
	if err := os.Remove(filepath.Join(dir, "legacy.yaml")); err != nil {
		t.Fatal(err)
	}
	write("images.yaml", strings.Replace(compilePolicy, "spec:\n", "spec:\n  workloadTemplates: Ignore\n", 1))
	run(cli.ExitNo, []string{"objects no longer made: kubectl delete validatingadmissionpolicy/images.", "is not up to date"}, "--check")
	write("images.yaml", strings.Replace(compilePolicy, "name: images", "name: registries", 1))
	for _, args := range [][]string{{"--prune", "--check"}, {"--prune"}, {"--prune"}} {
		want := cli.ExitYes
		if len(args) > 1 {
			want = cli.ExitNo
		}
		gone := run(want, []string{file + ": is no longer made: remove it\n"}, args...)
		if !strings.Contains(gone, "validatingadmissionpolicy/images.gatehouse.dev\n") || !strings.Contains(gone, "validatingadmissionpolicybinding/images.spec.template.gatehouse.dev\n") || strings.Contains(gone, "registries") {
			t.Errorf("%q: gone are\n%s", args, gone)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if gone := run(cli.ExitYes, nil, "--prune", "--check"); gone != "" {
		t.Errorf("gone are\n%s", gone)
	}
}

// TestCompileStatic has lint read the files of API servers.
func TestCompileStatic(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	code, _, errs := runCompile(t, "--config", library, "-o", out, "--static", "--kubernetes", "1.37")
	if code != cli.ExitNo || !strings.Contains(errs, "a policy in a file has no params") {
		t.Errorf("exit code %d:\n%s", code, errs)
	}
	for _, dir := range []string{validatingDirectory, mutatingDirectory} {
		if entries, err := os.ReadDir(filepath.Join(out, dir)); err != nil || len(entries) == 0 {
			continue
		}
		got := clitest.Run(t.Context(), "", []string{"lint", "--profile", "static", filepath.Join(out, dir)}, NewLintCommand)
		if got.Code != cli.ExitYes || !strings.Contains(got.Out, "0 errors, 0 warnings in ") {
			t.Errorf("%s: exit code %d:\n%s%s", dir, got.Code, got.Out, got.Err)
		}
	}
	if code, _, errs := runCompile(t, "--config", library, "-o", out, "--static", "--kubernetes", "1.37", "--check"); code != cli.ExitYes {
		t.Errorf("--check ends with %d:\n%s", code, errs)
	}
}

// TestCompileJSON reads the report for programs.
func TestCompileJSON(t *testing.T) {
	t.Parallel()
	code, out, _ := runCompile(t, "--config", library, "-o", "json")
	var report compileReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != cli.ExitNo || len(report.Items) == 0 || len(report.Documents) == 0 {
		t.Fatalf("exit code %d, %d items: %v", code, len(report.Items), err)
	}
	n := 0
	for _, of := range report.Summary {
		n += of.Native + of.Differs + of.Stays
	}
	if n != len(report.Items) {
		t.Errorf("%d items, and %d in the summary", len(report.Items), n)
	}
}

// TestCompileUsage has wrong flags and directories reported.
func TestCompileUsage(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	foreign, _ := compileDirectory(t, map[string]string{"deletion-protection.yaml": "kind: Mine\n", "kustomization.yaml": "kind: Mine, too\n"})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no configuration":    {[]string{"-o", "yaml"}, "config"},
		"no such directory":   {[]string{"--config", "nosuch"}, `--config: "nosuch" cannot be read: no such file or directory (hint: name an existing directory)`},
		"nothing there":       {[]string{"--config", empty}, "the directory has no documents"},
		"another version":     {[]string{"--config", library, "--kubernetes", "1.20"}, "must be 1.35, 1.36 or 1.37"},
		"no time":             {[]string{"--config", library, "--until", "soon"}, "must be a time such as"},
		"past":                {[]string{"--config", library, "--until", "2001-01-01T00:00:00Z"}, "--until 2001-01-01T00:00:00Z: is past (hint: "},
		"nothing to check":    {[]string{"--config", library, "--check"}, "--check, --prune and --static are for a directory (hint: -o DIR)"},
		"files in 1.35":       {[]string{"--config", library, "-o", empty, "--static", "--kubernetes", "1.35"}, "(hint: --kubernetes 1.37)"},
		"no namespace":        {[]string{"--config", library, "--exclude-namespace", "A"}, `--exclude-namespace "A": must be the name of a namespace`},
		"another format":      {[]string{"--config", library, "-o", "table"}, `--output "table": must be yaml, json or a directory (hint: ./table is a directory of this name)`},
		"a file":              {[]string{"--config", library, "-o", file}, `" is a file (hint: -o yaml writes to standard output, and -o DIR into a directory)`},
		"below a file":        {[]string{"--config", library, "-o", filepath.Join(file, "x")}, filepath.Join(file, "x") + `" cannot be read: not a directory`},
		"among its documents": {[]string{"--config", library, "-o", library + "/compiled"}, "must not be in the directory of --config"},
		"the file of another": {[]string{"--config", library, "-o", foreign}, "deletion-protection.yaml: was not made by gatehouse compile (hint: name another directory)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, _, errs := runCompile(t, test.args...); code != cli.ExitUnknown || !strings.Contains(errs, test.want) {
				t.Errorf("exit code %d:\n%s", code, errs)
			}
		})
	}
	if entries, err := os.ReadDir(foreign); err != nil || len(entries) != 2 {
		t.Errorf("something was written: %v %v", entries, err)
	}
}
