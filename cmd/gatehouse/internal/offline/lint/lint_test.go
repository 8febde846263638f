package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// now returns the time of every test.
func now() time.Time { return time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC) }

// read returns the input that documents hold.
func read(t *testing.T, documents string) lint.Input {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(documents), 0o600))
	c, _ := config.Inspect(dir)
	return lint.Input{Policy: c.Policy, Mutating: c.Mutation, Profiles: c.Sidecar.Profiles, Authn: c.Authn, Now: now()}
}

// lintText returns the diagnostics of documents, one a line.
func lintText(t *testing.T, documents string) string {
	t.Helper()
	found, err := lint.Lint(read(t, documents))
	must(t, err)
	lines := make([]string, len(found))
	for i, f := range found {
		if f.Severity == "error" || f.Code == "" {
			t.Errorf("diagnostic without code, or an error: %+v", f)
		}
		f.Source = ""
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// with returns a ValidatingAdmissionPolicy on pods with more of a spec.
func with(rule, spec string) string {
	if rule == "" {
		rule = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}"
	}
	return policyWith("matchConstraints: {resourceRules: [" + rule + "]}\n" + spec)
}

// policyWith returns a ValidatingAdmissionPolicy with a spec.
func policyWith(spec string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  " +
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// validations are expressions as validations that nothing else is wrong with.
func validations(expressions ...string) string {
	var b strings.Builder
	b.WriteString("validations:\n")
	for _, e := range expressions {
		b.WriteString("- {message: m, expression: \"" + strings.ReplaceAll(e, `"`, `\"`) + "\"}\n")
	}
	return b.String()
}

// TestExamples lints the configurations that users copy: nothing is wrong with
// them.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"../../../../../manifests/examples", "../../../../../manifests/policies"} {
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if os.IsNotExist(err) || err == nil && (entry.IsDir() || filepath.Ext(path) != ".yaml") {
				return nil
			}
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				if found := lintText(t, string(text)); found != "" {
					t.Error("\n" + found)
				}
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
