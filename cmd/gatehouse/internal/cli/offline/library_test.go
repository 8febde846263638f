package offline

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// The library of policies and what is written about it.
const (
	library      = "../../../../../manifests/policies"
	libraryGuide = "../../../../../manifests/policies/README.md"
)

// libraryFolders are the names of the folders of the library.
func libraryFolders(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(library)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		t.Fatal("there are no folders")
	}
	return names
}

// gatehouse runs a command, and returns its exit code and what it prints.
func gatehouse(t *testing.T, stdin string, args ...string) (int, string) {
	t.Helper()
	got := clitest.Run(t.Context(), stdin, args, NewTestCommand, NewCheckCommand, NewExplainCommand, NewReviewCommand, NewLintCommand)
	return got.Code, got.Out + got.Err
}

// TestLibrary has the cases of each folder decided by its policies.
func TestLibrary(t *testing.T) {
	t.Parallel()
	for _, folder := range libraryFolders(t) {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			if code, said := gatehouse(t, "", "test", "--config", filepath.Join(library, folder)); code != cli.ExitYes {
				t.Errorf("gatehouse test ends with %d:\n%s", code, said)
			}
		})
	}
}

// TestLibraryTogether has the cases decided where all folders are one
// configuration: a test names its policies, and others do not get in its way.
func TestLibraryTogether(t *testing.T) {
	t.Parallel()
	code, said := gatehouse(t, "", "test", "--config", library)
	if code != cli.ExitYes {
		t.Errorf("gatehouse test ends with %d:\n%s", code, said)
	}
	if strings.Contains(said, "warning") {
		t.Errorf("there is something else to say:\n%s", said)
	}
}

// TestLibraryTestsNameTheirPolicies wants each test to name all policies of its
// folder, and a case that violates each of their validations.
func TestLibraryTestsNameTheirPolicies(t *testing.T) {
	t.Parallel()
	for _, folder := range libraryFolders(t) {
		var test v1alpha1.Test
		text, _, _ := strings.Cut(readText(t, filepath.Join(library, folder, "tests.yaml")), "\n---\n")
		if err := yaml.UnmarshalStrict([]byte(text), &test); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		policies := libraryPolicies(t, []string{folder})
		slices.Sort(policies)
		if folder == "mutating" {
			continue // its policies have no rules, and TestLibraryTogether runs its cases
		}
		if !slices.Equal(test.Policies, policies) {
			t.Errorf("%s: the test is about %q, and there are %q", folder, test.Policies, policies)
		}
		violated := map[string]map[string]bool{}
		for _, c := range test.Cases {
			for _, v := range c.Expect.Violations {
				policy := ptr.Deref(v.Policy, "")
				if violated[policy] == nil {
					violated[policy] = map[string]bool{}
				}
				violated[policy][ptr.Deref(v.Rule, "")] = true
			}
		}
		configuration, _, _ := config.CompileDir(filepath.Join(library, folder))
		check := func(policy string, validations int) {
			if got := len(violated[policy]); got < validations {
				t.Errorf("%s: cases violate %d of %d validations of %s", folder, got, validations, policy)
			}
		}
		for _, p := range configuration.Policy.AdmissionPolicies {
			check(p.Name, len(p.Spec.Validations))
		}
		for _, p := range configuration.Policy.Policies {
			check(p.Name, len(p.Spec.Validations))
		}
	}
}

// TestLibraryLint wants nothing to be said about the library, in one
// configuration or in several.
func TestLibraryLint(t *testing.T) {
	t.Parallel()
	for _, dir := range append(libraryFolders(t), ".") {
		if report := new(lintFlags).lintPaths([]string{filepath.Join(library, dir)}, nil); len(report.findings) > 0 {
			t.Errorf("%s: %v", dir, report.findings)
		}
	}
}

// TestLibraryUpstream wants documents of upstream's kind to compile in the
// Kubernetes version that the guide promises.
func TestLibraryUpstream(t *testing.T) {
	t.Parallel()
	const oldest = "1.30"
	if !strings.Contains(readText(t, libraryGuide), "(Kubernetes "+oldest+" or later)") {
		t.Errorf("%s does not promise Kubernetes %s", libraryGuide, oldest)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(library)); err != nil {
		t.Fatal(err)
	}
	configuration := "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\ncelCompatibilityVersion: \"" + oldest + "\"\n"
	if err := os.WriteFile(filepath.Join(dir, "configuration.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, found := config.CompileDir(dir)
	for _, f := range found {
		if !strings.HasPrefix(f.Object, "AdmissionPolicy/") {
			t.Errorf("Kubernetes %s: %s", oldest, f)
		}
	}
}

// librarySection is what the guide says of some folders.
type librarySection struct {
	folders []string
	text    string
}

// librarySections returns the sections of the guide about folders.
func librarySections(t *testing.T) []librarySection {
	t.Helper()
	_, notes, _ := strings.Cut(readText(t, libraryGuide), "\n## Notes and exceptions\n")
	var all []librarySection
	for _, text := range strings.Split(notes, "\n### ")[1:] {
		heading, text, _ := strings.Cut(text, "\n")
		all = append(all, librarySection{strings.Split(heading, ", "), text})
	}
	return all
}

// TestLibraryTable wants a line about each policy in the guide, and sections about folders that exist.
func TestLibraryTable(t *testing.T) {
	t.Parallel()
	guide := readText(t, libraryGuide)
	folders := libraryFolders(t)
	for _, folder := range folders {
		for _, policy := range libraryPolicies(t, []string{folder}) {
			if !strings.Contains(guide, "\n| `"+policy+"` | `"+folder+"` | ") {
				t.Errorf("%s: the table has no line about the policy %s in %s", libraryGuide, policy, folder)
			}
		}
	}
	configuration, _, _ := config.CompileDir(filepath.Join(library, "mutating"))
	for _, p := range configuration.Mutation.Policies {
		if !strings.Contains(guide, "\n| `"+p.Name+"` | `mutating` | ") {
			t.Errorf("%s: the table has no line about the policy %s in mutating", libraryGuide, p.Name)
		}
	}
	if lines, policies := strings.Count(guide, "\n| `"), len(libraryPolicies(t, folders))+len(configuration.Mutation.Policies); lines != policies {
		t.Errorf("%s: the table has %d lines, and there are %d policies", libraryGuide, lines, policies)
	}
	for _, section := range librarySections(t) {
		for _, folder := range section.folders {
			if !slices.Contains(folders, folder) {
				t.Errorf("%s has a section about %q, and the folders are %q", libraryGuide, folder, folders)
			}
		}
	}
}

// libraryPolicies are the names of the policies of some folders.
func libraryPolicies(t *testing.T, folders []string) []string {
	t.Helper()
	var names []string
	for _, folder := range folders {
		c, _, found := config.CompileDir(filepath.Join(library, folder))
		if err := found.Err(); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		for i := range c.Policy.AdmissionPolicies {
			names = append(names, c.Policy.AdmissionPolicies[i].Name)
		}
		for i := range c.Policy.Policies {
			names = append(names, c.Policy.Policies[i].Name)
		}
	}
	return names
}

// TestLibraryExceptions adds the exceptions that the guide shows to the folders that they are about: each is without errors
// and lets pass a violation of each policy that it names. It does the same with an exception from each policy as a whole.
func TestLibraryExceptions(t *testing.T) {
	t.Parallel()
	// A day on which none has expired.
	now := time.Date(2026, time.December, 1, 0, 0, 0, 0, time.UTC)
	letsPass := func(folders []string, document string) {
		var x v1alpha1.PolicyException
		if err := yaml.UnmarshalStrict([]byte(document), &x); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		excepted := libraryExcepted(t, folders, document, now)
		for _, policy := range x.Spec.Policies {
			if !slices.Contains(excepted, policy.Name) {
				t.Errorf("the exception %s lets no violation of %s pass in the cases of %q", x.Name, policy.Name, folders)
			}
		}
	}
	shown := 0
	for _, section := range librarySections(t) {
		for _, block := range codeBlocks(section.text, "yaml") {
			for document := range strings.SplitSeq(block, "\n---\n") {
				if strings.Contains(document, "kind: PolicyException\n") {
					shown++
					letsPass(section.folders, document)
				}
			}
		}
	}
	if shown == 0 {
		t.Errorf("%s shows no exception", libraryGuide)
	}
	for _, folder := range libraryFolders(t) {
		if len(libraryPolicies(t, []string{folder})) == 0 {
			continue // exceptions are not from mutating policies
		}
		document := "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: all, namespace: gatehouse-system}\nspec:\n" +
			"  reason: test\n  match: {names: [\"*\"]}\n  policies:\n"
		for _, policy := range libraryPolicies(t, []string{folder}) {
			document += "  - {name: " + policy + "}\n"
		}
		letsPass([]string{folder}, document)
	}
}

// libraryExcepted are the policies of which an exception lets a violation pass,
// in the cases of some folders.
func libraryExcepted(t *testing.T, folders []string, exception string, now time.Time) []string {
	t.Helper()
	var names []string
	for _, folder := range folders {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(library, folder))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "exception.yaml"), []byte(exception), 0o600); err != nil {
			t.Fatal(err)
		}
		c, snapshot, found := config.CompileDir(dir)
		if err := found.Err(); err != nil {
			t.Fatalf("%s with the exception\n%s\n%v", folder, exception, err)
		}
		all, found := testrunner.Load([]string{dir}, false)
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			one.Now = &now
		}
		resources, err := resourcesOf(c)
		if err != nil {
			t.Fatal(err)
		}
		runner := testrunner.Runner{Resources: resources, Compile: newCompiler(c, snapshot), Workers: 1}
		results, err := runner.Run(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			for _, v := range results[i].Got.Others {
				if v.Exception != "" {
					names = append(names, v.Policy)
				}
			}
		}
	}
	return names
}

// codeBlocks are the blocks of code of a language in a text, each with the line
// break at its end.
func codeBlocks(text, language string) []string {
	var blocks []string
	for _, part := range strings.Split(text, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block+"\n")
	}
	return blocks
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
