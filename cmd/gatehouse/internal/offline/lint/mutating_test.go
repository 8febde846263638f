package lint_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
)

// TestMutating has what lint says of mutating policies: the field, both results, and what to write in place.
func TestMutating(t *testing.T) {
	t.Parallel()
	for code, want := range map[lint.Code][]string{
		lint.AtomicField: {
			"spec.mutations[0].applyConfiguration.expression", "spec.containers.args is atomic",
			`[JSONPatch{op: "add", path: "/spec/containers/0/args", value: ["--quiet"]}]`,
		},
		lint.Order: {
			`for the object of test config/web, MutatingAdmissionPolicy "blue" and "green" give different results in different orders at /data/team`,
			`"green" or "blue"`,
		},
		lint.NotIdempotent: {"spec.mutations[0]", "a second pass over the result changes /data/a again"},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			got := lintText(t, lint.Example(code))
			for _, text := range want {
				if !strings.Contains(got, text) {
					t.Errorf("got %s, want %q", got, text)
				}
			}
		})
	}
	element := strings.Replace(lint.Example(lint.AtomicField), "containers: object", `imagePullSecrets: [Object.spec.imagePullSecrets{name: "a"}], containers: object`, 1)
	if got := lintText(t, element); !strings.Contains(got, "spec.imagePullSecrets is atomic") {
		t.Errorf("an element that is atomic: %s", got)
	}
	merged := strings.Replace(lint.Example(lint.AtomicField), `args: ["--quiet"]`, `image: "a"`, 1)
	if got := lintText(t, merged); got != "" {
		t.Errorf("a field that is not atomic: %s", got)
	}
	ignored := strings.Replace(lint.Example(lint.Order), "{name: blue}", `{name: blue, annotations: {gatehouse.dev/lint-ignore: order}}`, 1)
	if got := lintText(t, ignored); got != "" {
		t.Errorf("the code is ignored: %s", got)
	}
}
