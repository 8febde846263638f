package lint_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
)

// TestGuide lints the examples of docs/lint.md: every code has one, in the order
// of Codes, and each example has the diagnostics that are shown and no others.
// UPDATE_GOLDEN=1 writes what is found into the guide.
func TestGuide(t *testing.T) {
	t.Parallel()
	const path = "../../../../../docs/lint.md"
	guide, err := os.ReadFile(path)
	must(t, err)
	section := regexp.MustCompile("(?s)\n### ([a-z-]+)\n(.*?)\n```yaml\n(.*?)```\n\n```\n(.*?)\n```\n")
	var codes []lint.Code
	changed := string(guide)
	for _, match := range section.FindAllStringSubmatch(string(guide), -1) {
		code, example, want := match[1], match[3], match[4]
		codes = append(codes, lint.Code(code))
		got := lintText(t, example)
		for line := range strings.SplitSeq(got, "\n") {
			if !strings.HasSuffix(line, " ["+code+"]") {
				t.Errorf("%s: a diagnostic with another code: %s", code, line)
			}
		}
		if got != want {
			changed = strings.Replace(changed, "```\n"+want+"\n```", "```\n"+got+"\n```", 1)
			if os.Getenv("UPDATE_GOLDEN") == "" {
				t.Errorf("%s: got\n%s\nthe guide shows\n%s", code, got, want)
			}
		}
	}
	if !slices.Equal(codes, lint.Codes()) {
		t.Errorf("the guide has\n%v\nthe code\n%v", codes, lint.Codes())
	}
	if os.Getenv("UPDATE_GOLDEN") != "" && changed != string(guide) {
		must(t, os.WriteFile(path, []byte(changed), 0o600))
	}
}
