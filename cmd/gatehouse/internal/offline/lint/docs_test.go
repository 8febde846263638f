package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
)

// TestExplanations lints the example of each code, which has diagnostics with this code and no others.
func TestExplanations(t *testing.T) {
	t.Parallel()
	for _, code := range lint.Codes() {
		read := lintText
		if strings.HasPrefix(string(code), "static-") {
			read = staticText
		}
		got := read(t, lint.Example(code))
		for line := range strings.SplitSeq(got, "\n") {
			if !strings.HasSuffix(line, fmt.Sprintf(" [%s]", code)) {
				t.Errorf("%s: its example gives %q", code, line)
			}
		}
		text := lint.Explain(code)
		for line := range strings.SplitSeq(lint.Example(code), "\n") {
			if !strings.Contains(text, line) {
				t.Errorf("%s: the explanation lacks %q", code, line)
			}
		}
	}
	if lint.Explain("nothing") != "" {
		t.Error("an unknown code is explained")
	}
}
