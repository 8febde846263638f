package offline

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
)

// TestGuideShowsTests keeps the example of docs/testing.md the one that the
// script test.txtar runs, with what comes of it.
func TestGuideShowsTests(t *testing.T) {
	t.Parallel()
	_, files := readScript(t, "test")
	guide := readText(t, "../../../../../docs/testing.md")
	for _, name := range []string{"config/image-registries.yaml", "config/image-registries-test.yaml"} {
		if !strings.Contains(guide, "(`"+name+"`):\n\n```yaml\n"+files[name]+"```\n") {
			t.Errorf("docs/testing.md does not show %s", name)
		}
	}
	if !strings.Contains(guide, "```console\n$ gatehouse test --config config\n"+files["passed.txt"]+"```\n") {
		t.Error("docs/testing.md does not show what comes of the example")
	}
	// The guide leaves out the cases that pass and the sum.
	_, part, ok := strings.Cut(files["failed.txt"], "  ok    our registry is allowed\n")
	part, _, sum := strings.Cut(part, "\n\n")
	if !ok || !sum || !strings.Contains(guide, "```\n"+part+"\n```\n") {
		t.Errorf("docs/testing.md does not show this part of failed.txt:\n%s", part)
	}
}

// TestGuideShowsRollout keeps what docs/policy-rollout.md shows what the script
// test-rollout.txtar runs, with what comes of it.
func TestGuideShowsRollout(t *testing.T) {
	t.Parallel()
	_, files := readScript(t, "test-rollout")
	guide := readText(t, "../../../../../docs/policy-rollout.md")
	const test, check = "$ gatehouse test --config config\n", "$ gatehouse check --config config -f - < existing.json\n"
	commands := []string{test + files["tested.txt"], check + files["warned.txt"], check + files["denied.txt"]}
	if got := codeBlocks(guide, "console"); !slices.Equal(got, commands) {
		t.Errorf("the page shows\n%s\nand the script runs\n%s", strings.Join(got, "\n"), strings.Join(commands, "\n"))
	}
	documents := []string{files["config/memory-limits.yaml"], files["exception.yaml"]}
	if got := codeBlocks(guide, "yaml"); !slices.Equal(got, documents) {
		t.Errorf("the page shows\n%s\nand the script has\n%s", strings.Join(got, "\n"), strings.Join(documents, "\n"))
	}
	if denies := strings.Replace(documents[0], "[Warn, Audit]", "[Deny]", 1); files["deny.yaml"] != denies {
		t.Errorf("deny.yaml is not the policy with other actions:\n%s", files["deny.yaml"])
	}
}

// TestDifferencesAreVisible shows values that look alike, or like something else.
func TestDifferencesAreVisible(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expected, got string
		want          string
	}{
		"lines":          {"one\ntwo", "one\nthree", "- message  one\n-          two\n+ message  one\n+          three\n"},
		"space":          {"one", "one ", "- message  one\n+ message  \"one \"\n"},
		"nothing":        {"one", "", "- message  one\n+ message  \"\"\n"},
		"control":        {"one", "one\x1b[2J", "- message  one\n+ message  \"one\\x1b[2J\"\n"},
		"another space":  {"a b", "a\u00a0b", "- message  a b\n+ message  \"a\\u00a0b\"\n"},
		"right to left":  {"a", "a\u202e", "- message  a\n+ message  \"a\\u202e\"\n"},
		"lines and tabs": {"a", "a\n\tb", "- message  a\n+ message  \"a\\n\\tb\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			p := testPrinter{out: &out}
			p.difference(&testrunner.Difference{Field: "violations[0]", Problem: testrunner.Different, Lines: []testrunner.Line{{Name: "message", Expected: &c.expected, Got: &c.got}}})
			_, got, _ := strings.Cut(strings.ReplaceAll(out.String(), "\n          ", "\n"), ":\n")
			if got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}
