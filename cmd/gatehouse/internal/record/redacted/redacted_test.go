package redacted_test

import (
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawcel"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// TestGuard evaluates expressions over objects with redacted values. What is known must have a
// result or an error of its own, and what depends on a redacted value must not.
func TestGuard(t *testing.T) {
	t.Parallel()
	const undecided, failed = "undecided", "failed"
	const a, b = redacted.Prefix + "k:aaaa", redacted.Prefix + "k:bbbb"
	object := `{"kind":"ConfigMap","data":{"a":"` + a + `","b":"` + b + `","same":"` + a + `"},
		"env":[{"name":"PLAIN"},{"name":"TOKEN","value":"` + a + `"}],"list":["x","` + b + `"],"plain":["x","y"]}`
	old := `{"kind":"ConfigMap","data":{"a":"` + a + `","b":"` + b + `","same":"` + a + `"},"env":[],"list":["x","` + b + `"]}`
	for _, tt := range []struct{ expression, want string }{
		{`has(object.data.a)`, "true"},
		{`'a' in object.data`, "true"},
		{`object.data == oldObject.data`, "true"},
		{`object.data.a == oldObject.data.a`, "true"},
		{`object.data.a == object.data.same`, "true"},
		{`object.data.a == object.data.b`, "false"},
		{`object.data.a != object.data.b`, "true"},
		{`object.data.a == "prod"`, undecided},
		{`"prod" == object.data.a`, undecided},
		{`"prod" != object.data.a`, undecided},
		{`object.data.a == 1`, undecided},
		{`object.data.a == null`, "false"},
		{`object.data == {"a": "x", "b": "y", "same": "x"}`, undecided},
		{`{"a": "x", "b": "y", "same": "x"} == object.data`, undecided},
		{`object.data == {"a": "x"}`, "false"},
		{`object.list == ["x", "y"]`, undecided},
		{`["z", "y"] == object.list`, "false"},
		{`object.list == oldObject.list`, "true"},
		{`"x" in object.list`, "true"},
		{`"y" in object.list`, undecided},
		{`object.data.a in ["x"]`, undecided},
		{`object.data.a in object.data.map(k, object.data[k])`, "true"},
		{`object.data.a in {"x": true}`, undecided},
		{`{"x": true}[object.data.a]`, undecided},
		{`object.data.a.startsWith("x")`, undecided},
		{`object.data.a.startsWith("x") || has(object.env)`, "true"},
		{`object.data.a.startsWith("x") && !has(object.env)`, "false"},
		{`object.data.a.startsWith("x") ? true : true`, undecided},
		{`object.env.all(e, e.name != "AWS")`, "true"},
		{`object.env.all(e, !has(e.value) || e.value.size() < 9)`, undecided},
		{`object.env.exists(e, e.name == "PLAIN" || e.value == "x")`, "true"},
		{`object.env.exists(e, e.name == "TOKEN" && has(e.value))`, "true"},
		{`size(object.data) == 3`, "true"},
		{`size(object.data.a) == 3`, undecided},
		{`object.data.a + "x" == "y"`, undecided},
		{`string(object.data.a) == "y"`, undecided},
		{`object.?data.?a.orValue("") == "y"`, undecided},
		{`object.?data.?a.hasValue()`, "true"},
		{`object.?data.?a.orValue("") == oldObject.?data.?a.orValue("")`, "true"},
		{`object.?data.?none.orValue("y") == "y"`, "true"},
		{`object.plain.join(",") == "x,y"`, "true"},
		{`object.list.join(",") == "x,y"`, undecided},
		{`"a-b".replace("a", object.data.a) == "x"`, undecided},
		{`object.plain == ["x", "y"]`, "true"},
		{`(object.plain + object.list).size() == 4`, "true"},
		{`object.data.a < "x"`, undecided},
		{`object.data.a.matches("^x$")`, undecided},
		{`object.kind == "ConfigMap"`, "true"},
		{`!object.data.a`, undecided},
		{`object.data.a && has(object.env)`, undecided},
		{`object.data.a && !has(object.env)`, "false"},
		{`object.data.a || !has(object.env)`, undecided},
		{`object.data.a || has(object.env)`, "true"},
		{`object.data.a ? true : false`, undecided},
		{`object.data.all(k, object.data[k])`, undecided},
		{`object.data.exists(k, object.data[k])`, undecided},
		{`object.data.exists_one(k, object.data[k])`, undecided},
		{`object.list.filter(x, x).size() == 0`, undecided},
		{`object.list.map(x, x, true).size() == 0`, undecided},
		{`"x" in {object.data.a: true}`, undecided},
		{`{object.data.a: true}["x"]`, undecided},
		{`{"x": object.data.a}["x"] == object.data.a`, "true"},
		{`object.data.missing == "x"`, failed},
		{`object.list[2] == "x"`, failed},
		{`1 / (size(object.data) - 3) == 1`, failed},
		{`int(object.kind) == 1`, failed},
		{`object.kind.startsWith("x") || int(object.kind) == 1`, failed},
		{`int(object.kind) == 1 ? true : object.data.a`, failed},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.OptionalTypes(), ext.Strings())
			if err != nil {
				t.Fatal(err)
			}
			ast, issues := env.Compile(tt.expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			program, err := env.Program(ast, redacted.Guard{}.Option(env))
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]any{"object": rawcel.Value(rawjson.Value(object)), "oldObject": rawcel.Value(rawjson.Value(old))}
			result, _, err := program.Eval(vars)
			got := undecided
			switch {
			case err == nil:
				text, _ := result.ConvertToType(types.StringType).Value().(string)
				got = text
			case !redacted.Depends(redacted.Explain(err).Error()):
				got = failed
			}
			if got != tt.want {
				t.Errorf("= %s (%v), want %s", got, err, tt.want)
			}
		})
	}
}
