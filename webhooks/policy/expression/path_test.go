package expression_test

import (
	"context"
	"math"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestPaths holds that members that are looked up without cel-go's steps are what cel-go finds, errors included, which the plan that
// counts leaves to it.
func TestPaths(t *testing.T) {
	t.Parallel()
	variables := declare(t, sharedCompiler(), pair{"spec", "object.spec"}, pair{"made", "{'a': {'b': 1}}"})
	from := withObject(t, `{"spec":{"a":{"b":1},"list":[{"name":"x"},{"name":"y","a":{"b":2}}],"text":"t","none":null,"a/b":3},"x":{"spec":4}}`)
	for _, tc := range []struct{ expression, want string }{
		{"object.spec.a.b", "int 1"},
		{"object.spec.a", "map {\"b\": 1}"},
		{"object.spec.none", "null_type null"},
		{"object.spec.missing", "error: no such key: missing"},
		{"object.missing.b", "error: no such key: missing"},
		{"object.spec.text.b", "error: no such key: b"},
		{"object.spec.none.b", "error: no such key: b"},
		{"object.spec.list.name", "error: unsupported index type 'string' in list"},
		{"has(object.spec.a.b)", "bool true"},
		{"has(object.spec.a.c)", "bool false"},
		{"has(object.spec.none)", "bool true"},
		{"has(object.missing.b)", "error: no such key: missing"},
		{"has(object.spec.text.b)", "bool false"},
		{"object.spec.?a.?b", "optional_type optional.of(1)"},
		{"object.?missing.b", "optional_type optional.none()"},
		{"object.spec['a'].b", "int 1"},
		{"object.spec['a/b']", "int 3"},
		{"object.spec.list[1].a.b", "int 2"},
		{"object.spec.list[0].a.b", "error: no such key: a"},
		{"object.spec.list.all(c, has(c.a) || c.name == 'x')", "bool true"},
		{"object.spec.list.map(c, c.name)", "list [\"x\", \"y\"]"},
		{"object.spec.list.exists(c, c.a.b == 2)", "bool true"},
		{"[object.x].all(object, object.spec == 4)", "bool true"},
		{"[object.x].all(object, .object.spec.a.b == 1)", "bool true"},
		{"[{'spec': {'a': {'b': 5}}}].map(object, object.spec.a.b)", "list [5]"},
		{"(true ? object.spec : object.x).a.b", "int 1"},
		{"variables.spec.a.b", "int 1"},
		{"variables.made.a.b", "int 1"},
		{"has(variables.spec.a)", "bool true"},
	} {
		program := compile(t, sharedCompiler(), variables, tc.expression)
		for _, counting := range []expression.Counting{expression.Counted, expression.Uncounted} {
			var in expression.Input
			in.Reset(from, types.NullValue, variables)
			in.Counting = counting
			value, _, err := in.Phase(math.MaxInt64/2).Eval(context.Background(), program)
			if got := result(value, err); got != tc.want {
				t.Errorf("%s, counting %d: got %s, want %s", tc.expression, counting, got, tc.want)
			}
		}
	}
}
