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
		lint.TokenVolume: {"spec.mutations[0].jsonPatch.expression: 1:11 in", "it replaces all volumes", `"/spec/volumes/-"`},
		lint.Resize:      {"spec.matchConstraints.resourceRules[0].resources[1]", "makes the client's valid resize fail", "excludeResourceRules"},
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
	for name, change := range map[string][2]string{
		"one volume":                {`"/spec/volumes", value: [Object.spec.volumes{name: "tmp"}]`, `"/spec/volumes/-", value: Object.spec.volumes{name: "tmp"}`},
		"for a pod that has none":   {`'[JSONPatch{`, `'has(object.spec.volumes) ? [] : [JSONPatch{`},
		"with those that are there": {`value: [Object.spec.volumes{name: "tmp"}]`, `value: object.spec.?volumes.orValue([]) + [dyn(Object.spec.volumes{name: "tmp"})]`},
		"a test of them":            {`op: "add"`, `op: "test"`},
		"a condition":               {"  mutations:", "  matchConditions: [{name: none, expression: '!has(object.spec.volumes)'}]\n  mutations:"},
		"of another kind":           {`apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]`, `apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [replicationcontrollers]`},
	} {
		text := strings.Replace(lint.Example(lint.TokenVolume), change[0], change[1], 1)
		if got := lintText(t, text); got != "" || text == lint.Example(lint.TokenVolume) {
			t.Errorf("%s: %s", name, got)
		}
	}
	merged := strings.Replace(lint.Example(lint.AtomicField), `args: ["--quiet"]`, `image: "a"`, 1)
	if got := lintText(t, merged); got != "" {
		t.Errorf("a field that is not atomic: %s", got)
	}
	for mistake, c := range map[string]struct{ right, want string }{
		"resources: [pod]":              {"resources: [pods]", `spec.matchConstraints.resourceRules[0].resources[0]: API group "" has no resource "pod"`},
		"operations: [CONNECT]":         {"operations: [CREATE]", `"pods" is not connected to`},
		"Object.spec{container:":        {"Object.spec{containers:", `there is no field "container" in Object.spec (hint: did you mean "containers"?)`},
		"containers{nam: c.name":        {"containers{name: c.name", `there is no field "nam" in Object.spec.containers (hint: did you mean "name"?)`},
		"resources: [pods, configmaps]": {"resources: [pods]", ""},
		"reinvocationPolicy: Never\n  matchConditions: [{name: a, expression: object.spec.host == ''}]": {"reinvocationPolicy: Never", `there is no field "host" in core/v1.PodSpec`},
	} {
		if got := lintText(t, strings.Replace(merged, c.right, mistake, 1)); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", mistake, got, c.want)
		}
	}
}
