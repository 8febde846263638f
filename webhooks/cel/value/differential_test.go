package value_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The ways to give an expression two documents. The first is the measure.
var ways = []struct {
	name          string
	object, other func(testing.TB, rawjson.Value) any
}{
	{"decoded", decoded, decoded},
	{"decoded, as the API server gives it", tree, tree},
	{"raw", raw, raw},
	{"raw against decoded", raw, decoded},
	{"decoded against raw", decoded, raw},
}

func raw(_ testing.TB, v rawjson.Value) any     { return celvalue.Value(v) }
func decoded(t testing.TB, v rawjson.Value) any { return native(t, v) }
func tree(t testing.TB, v rawjson.Value) any    { return decode(t, v) }

func TestExpressions(t *testing.T) {
	t.Parallel()
	total := 0
	for _, group := range expressions {
		total += len(group)
	}
	if total < 150 {
		t.Fatalf("only %d expressions", total)
	}
	for group, list := range expressions {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for _, expression := range list {
				p := programOf(t, expression)
				succeeded := false
				for _, object := range slices.Sorted(maps.Keys(documents)) {
					for _, other := range []string{object, "another pod", "whole numbers"} {
						a, b := parse(t, documents[object]), parse(t, documents[other])
						want := outcome(p, ways[0].object(t, a), ways[0].other(t, b))
						succeeded = succeeded || want[:5] != "error"
						for _, way := range ways[1:] {
							if got := outcome(p, way.object(t, a), way.other(t, b)); got != want {
								t.Errorf("%s\nof %q, other is %q, %s:\n got %s\nwant %s", expression, object, other, way.name, got, want)
							}
						}
					}
				}
				if succeeded == (group == failing) {
					t.Errorf("%s: in the wrong group: it has a result for some document: %t", expression, succeeded)
				}
			}
		})
	}
}

// Where cel-go names a Go type, it names the one here.
func TestGoTypeInMessage(t *testing.T) {
	t.Parallel()
	v := parse(t, `{"a":{}}`)
	p := programOf(t, `object[object.a]`)
	for want, object := range map[string]any{
		`error "invalid qualifier type: *value.object", cost 3`:  celvalue.Value(v),
		`error "invalid qualifier type: *types.baseMap", cost 3`: types.DefaultTypeAdapter.NativeToValue(decode(t, v)),
	} {
		if got := outcome(p, object, nil); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
