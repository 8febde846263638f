package diagnostic_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Each mistake is given to the parser, whose messages may change.
func TestYAMLHint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a key in another column":     {"a:\n  b: 1\n c: 2\n", "check the indentation"},
		"a key deeper than the first": {"a:\n  b: 1\n   c: 2\n", "check the indentation"},
		"an element outdented":        {"a:\n  - b\n - c\n", "check the indentation"},
		"a key beside elements":       {"a:\n  - b: 1\n  c: 2\n", "check the indentation"},
		"no colon":                    {"a: 1\nb\nc: 2\n", "check the indentation"},
		"a tab":                       {"a:\n\tb: 1\n", "never with tabs"},
		"a colon in text":             {"a: b: c\n", "colon"},
		"an at sign":                  {"a: @b\n", "in quotes"},
		"open quotes":                 {"a: \"b\n", "close the quotes"},
		"an open bracket":             {"a: [b\n", "check the brackets"},
		"an open brace":               {"a: {b: c\n", "check the brackets"},
		"a star":                      {"a: *\n", "begins with * or &"},
		"a backslash":                 {"a: \"\\d\"\n", "backslash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var value any
			err := yaml.Unmarshal([]byte(c.text), &value)
			if err == nil {
				t.Fatalf("it is %v", value)
			}
			if hint := diagnostic.YAMLHint(err.Error()); !strings.Contains(hint, c.want) {
				t.Errorf("the hint about %q is %q, want %q", err, hint, c.want)
			}
		})
	}
	if hint := diagnostic.YAMLHint("anything else"); hint != "" {
		t.Errorf("got %q", hint)
	}
}
