package offline

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
)

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
