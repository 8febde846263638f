package expression_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSameIn has what an expression sees in two versions of an object.
func TestSameIn(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	type change struct {
		old, object string
		same        bool
	}
	for name, test := range map[string]struct {
		variables  []pair
		expression string
		changes    []change
	}{
		"select": {nil, "object.a.b == 1", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}, "d": 1}`, true},
			{`{"a": {"b": 1}}`, `{"a":{"\u0062":1}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, false},
			{`{"a": {"b": 1}}`, `{"a": {"b": 1.0}}`, false},
			{`{"a": {"b": "x"}}`, `{"a": {"b": "\u0078"}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {}}`, false},
			{`{"a": {}}`, `{"a": {"b": 1}}`, false},
			{`{"a": {"b": null}}`, `{"a": {}}`, false},
			{`{}`, `{"c": 1}`, true},
			{`{}`, `{"a": {}}`, false},
			{`{"a": {}}`, `{"a": []}`, false},
			{`{"a": "x"}`, `{"a": {}}`, false},
			{`{"a": null}`, `{}`, false},
			{`{"a": 1}`, `{"a": 1.0}`, false},
		}},
		"index": {nil, "object['a']['b'] == 1", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, false},
		}},
		"whole": {nil, "object.a == {'b': 1}", []change{
			{`{"a": {"b": 1, "c": [1, {}]}}`, `{"a": { "c":[1,{}],"b" : 1}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": null}}`, false},
			{`{"a": {"b": 1, "c": 1}}`, `{"a": {"b": 1}}`, false},
			{`{"a": [1, 2]}`, `{"a": [2, 1]}`, false},
			{`{"a": [1, 2]}`, `{"a": [1]}`, false},
		}},
		"null": {nil, "object.a == null || object == null", []change{
			{`{"a": 1}`, `{"a": 1, "b": 1}`, true},
			{`{"a": 1}`, `{"a": "x", "b": 1}`, false}, // that it is not null is all that is wrong
			{`{"a": null}`, `{"a": 1}`, false},
			{`{}`, `{"a": 1}`, false},
		}},
		"has": {nil, "has(object.a.b)", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": {}}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": null}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {}}`, false},
			{`{"a": {}}`, `{"a": {"b": 1}}`, false},
			{`{"a": {}}`, `{"a": []}`, false},
			{`{}`, `{"a": {}}`, false},
		}},
		"in": {nil, "'x' in object.a", []change{
			{`{"a": ["x", "y"]}`, `{"a": ["z", "x"]}`, true},
			{`{"a": {"x": 1}}`, `{"a": {"x": 2, "y": 1}}`, true},
			{`{"a": ["y"]}`, `{"a": ["y", "x"]}`, false},
			{`{"a": {"x": 1}}`, `{"a": ["x"]}`, false},
			{`{"a": ["\u0078"]}`, `{"a": ["x"]}`, true},
			{`{}`, `{"a": []}`, false},
			{`{"a": 1}`, `{"a": []}`, false},
		}},
		"in, what is looked up": {nil, "object.b in object.a", []change{
			{`{"a": ["x"], "b": "x"}`, `{"a": ["x"], "b": "x", "c": 1}`, true},
			{`{"a": ["x"], "b": "x"}`, `{"a": ["x", "y"], "b": "x"}`, false},
			{`{"a": ["x"], "b": "x"}`, `{"a": ["x"], "b": "y"}`, false},
		}},
		"in a list of values": {nil, "object.a in ['x', 'y']", []change{
			{`{"a": "x"}`, `{"a": "x", "b": 1}`, true},
			{`{"a": "x"}`, `{"a": "y"}`, false},
		}},
		"optional": {nil, "object.?a.?b.orValue(1) == 1", []change{
			{`{}`, `{"a": {"c": 1}}`, true},
			{`{"a": {"c": 1}}`, `{}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}}`, true},
			{`{}`, `{"a": {"b": 1}}`, false},
			{`{}`, `{"a": []}`, false},
			{`{}`, `{"a": null}`, false},
			{`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, false},
		}},
		"optional, then not": {nil, "object.?a.b == optional.of(1)", []change{
			{`{}`, `{"a": {}}`, true},
			{`{}`, `{"a": {"b": 1}}`, false},
		}},
		"empty object instead": {nil, "object.?a.orValue({}).?b.orValue(false) == true", []change{
			{`{}`, `{"a": {"c": 1}}`, true},
			{`{}`, `{"a": {"b": true}}`, false},
			{`{}`, `{"a": []}`, false},
		}},
		"empty list instead": {nil, "(object.a + object.?b.orValue([])).all(c, c.d == 1)", []change{
			{`{"a": [{"d": 2}]}`, `{"a": [{"d": 2, "e": 1}], "b": []}`, true},
			{`{"a": [{"d": 2}], "b": [{"d": 3}]}`, `{"a": [{"d": 2}]}`, true},
			{`{"a": [{"d": 2}]}`, `{"a": [{"d": 2}], "b": [{"d": 3}]}`, false},
			{`{"a": [{"d": 2}]}`, `{"a": [{"d": 2}], "b": {}}`, false},
			{`{"a": []}`, `{}`, false},
		}},
		"something else instead": {nil, "object.?a.orValue(object.b).size() == 1", []change{
			{`{"b": [1]}`, `{"b": [1], "c": 1}`, true},
			{`{"b": [1]}`, `{"b": [2]}`, false},
			{`{"b": [1]}`, `{"a": [1], "b": [1]}`, false},
			{`{"a": [1], "b": [1]}`, `{"a": [1], "b": {}}`, false},
		}},
		"or": {nil, "object.?a.or(object.?b).?c.orValue(0) == 0", []change{
			{`{"b": {"c": 1}}`, `{"a": {}, "b": {"c": 1}}`, false},
			{`{"b": {"c": 1}}`, `{"b": {"c": 1, "d": 1}}`, true},
		}},
		"hasValue": {nil, "object.?a.?b.hasValue()", []change{
			{`{}`, `{"a": {}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, true},
			{`{"a": {}}`, `{"a": {"b": 1}}`, false},
		}},
		"optMap": {nil, "object.?a.optMap(x, x.b).orValue(0) == 0", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}}`, true},
			{`{}`, `{"a": {"b": 0}}`, false},
		}},
		"all": {nil, "object.a.all(x, x.b == 1)", []change{
			{`{"a": [{"b": 1}, {"b": 2}]}`, `{"a": [{"b": 1}, {"b": 2, "c": 1}]}`, true},
			{`{"a": [{"b": 1}, {"b": 2}]}`, `{"a": [{"b": 2}]}`, true},
			{`{"a": [{"b": 1}, {"b": 2}]}`, `{"a": [{"b": 2}, {"b": 1}]}`, true},
			{`{"a": [{"b": 1}, {"b": 2}]}`, `{"a": [{"b": 2}, {"b": 2}]}`, false},
			{`{"a": [{"b": 1}]}`, `{"a": [{"b": 1}, {"b": 2}]}`, false},
			{`{"a": [{"b": 1}]}`, `{"a": []}`, true},
			{`{"a": []}`, `{"a": {}}`, false},
			{`{"a": []}`, `{"a": "x"}`, false},
		}},
		"all of a map": {nil, "object.a.all(k, k != 'x')", []change{
			{`{"a": {"x": 1, "y": 1}}`, `{"a": {"y": 1, "x": 1}}`, true},
			{`{"a": {"x": 1, "y": 1}}`, `{"a": {"x": 1}}`, true},
			{`{"a": {"x": 1}}`, `{"a": {"x": 1, "y": 1}}`, false},
		}},
		"keys and values": {nil, "object.a.all(k, v, k != 'x' || has(v.b))", []change{
			{`{"a": {"x": {"b": 1}}}`, `{"a": {"x": {"b": 2}}}`, true},
			{`{"a": {"x": {"b": 1}}}`, `{"a": {"y": {"b": 1}}}`, false},
			{`{"a": {"x": {"b": 1}}}`, `{"a": {"x": {}}}`, false},
		}},
		"indexes and values": {nil, "object.a.exists(i, v, i > 0 && v == 1)", []change{
			{`{"a": [1, 2]}`, `{"a": [1, 2], "b": 1}`, true},
			{`{"a": [1, 2]}`, `{"a": [1, 2, 3]}`, false},
		}},
		"nested": {nil, "object.a.all(x, x.b.all(y, has(y.c)))", []change{
			{`{"a": [{"b": [{}, {"c": 1}]}]}`, `{"a": [{"b": [{"d": 1}, {"c": 2}], "e": 1}]}`, true},
			{`{"a": [{"b": [{}, {"c": 1}]}, {"b": []}]}`, `{"a": [{"b": [{}, {"c": 1}]}, {"b": [{}]}]}`, false},
		}},
		"filter and map": {nil, "object.a.filter(x, x.b > 1).map(x, x.c) == ['x']", []change{
			{`{"a": [{"b": 1, "c": "x"}]}`, `{"a": [{"b": 1, "c": "x", "d": 1}]}`, true},
			{`{"a": [{"b": 1, "c": "x"}]}`, `{"a": [{"b": 2, "c": "x"}]}`, false},
			{`{"a": [{"b": 1, "c": "x"}]}`, `{"a": [{"b": 1, "c": "y"}]}`, false},
		}},
		"how many are left": {nil, "object.a.filter(x, has(x.b)).size() == 1", []change{
			{`{"a": [{"b": 1}]}`, `{"a": [{"b": 1, "c": 1}]}`, true},
			{`{"a": [{"b": 1}]}`, `{"a": [{"b": 2}]}`, false},
			{`{"a": [{"b": 1}]}`, `{"a": [{}]}`, false},
		}},
		"transformList": {nil, "object.a.transformList(i, v, v.b)[0] == 1", []change{
			{`{"a": [{"b": 1}]}`, `{"a": [{"b": 1, "c": 1}]}`, true},
			{`{"a": [{"b": 1}]}`, `{"a": [{"b": 2}]}`, false},
		}},
		"transformMap": {nil, "object.a.transformMap(k, v, v.b).x == 1", []change{
			{`{"a": {"x": {"b": 1}}}`, `{"a": {"x": {"b": 1, "c": 1}}}`, true},
			{`{"a": {"x": {"b": 1}}}`, `{"a": {"x": {"b": 2}}}`, false},
		}},
		"size": {nil, "object.a.size() > 1 || size(object.b) > 1", []change{
			{`{"a": [1, 2], "b": "xx"}`, `{"a": [2, 1], "b": "xx"}`, true},
			{`{"a": [1, 2], "b": "xx"}`, `{"a": [3, 4], "b": "xx"}`, false},
			{`{"a": {"x": 1}, "b": ""}`, `{"a": {"x": 2}, "b": ""}`, false},
			{`{"a": [1, 2], "b": ""}`, `{"a": [1, 2, 3], "b": ""}`, false},
			{`{"a": [1], "b": "x"}`, `{"a": [1], "b": "xy"}`, false},
			{`{"a": {"x": 1}, "b": ""}`, `{"a": {"y": 1}, "b": ""}`, false},
		}},
		"size of a list of values": {nil, "[object.a, object.b].size() == 2", []change{
			{`{"a": 1, "b": 1}`, `{"a": 1, "b": 1, "c": 1}`, true},
			{`{"a": 1, "b": 1}`, `{"a": 2, "b": 1}`, false},
			{`{"a": 1}`, `{"a": 1, "b": 1}`, false},
		}},
		"size of a list of what is there": {nil, "[?object.?a].size() == 1", []change{
			{`{"a": 1}`, `{"a": 1, "b": 1}`, true},
			{`{"a": 1}`, `{"a": 2}`, false},
			{`{}`, `{"a": 1}`, false},
		}},
		"sum": {nil, "(object.a + object.b)[0].c == 1", []change{
			{`{"a": [{"c": 1}], "b": []}`, `{"a": [{"c": 1, "d": 1}], "b": []}`, true},
			{`{"a": [{"c": 1}], "b": []}`, `{"a": [{"c": 1}], "b": [{"c": 2}]}`, false},
		}},
		"sum of texts": {nil, "object.a + object.b == 'x'", []change{
			{`{"a": "x", "b": ""}`, `{"a": "", "b": "x"}`, false},
		}},
		"ternary": {nil, "(object.a.b ? object.c : object.d).e == 1", []change{
			{`{"a": {"b": true}, "c": {"e": 1}, "d": {"e": 2}}`, `{"a": {"b": true}, "c": {"e": 1, "f": 1}, "d": {"e": 2, "f": 1}}`, true},
			{`{"a": {"b": true}, "c": {"e": 1}, "d": {"e": 2}}`, `{"a": {"b": false}, "c": {"e": 1}, "d": {"e": 2}}`, false},
			{`{"a": {"b": true}, "c": {"e": 1}, "d": {"e": 2}}`, `{"a": {"b": true}, "c": {"e": 3}, "d": {"e": 2}}`, false},
		}},
		"index by a value": {nil, "object.a[object.b].c == 1", []change{
			{`{"a": {"x": {"c": 1}}, "b": "x"}`, `{"a": {"x": {"c": 1, "d": 1}}, "b": "x"}`, true},
			{`{"a": {"x": {"c": 1}, "y": {"c": 2}}, "b": "x"}`, `{"a": {"x": {"c": 1}, "y": {"c": 2}}, "b": "y"}`, false},
			{`{"a": {"x": {"c": 1}}, "b": "x"}`, `{"a": {"x": {"c": 2}}, "b": "x"}`, false},
		}},
		"a name for it": {nil, "[object.a].exists(x, x.b == 1 || x.c == 1)", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "d": 1}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}}`, false},
		}},
		"a name for nothing": {nil, "[object.a.b].all(x, true)", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 1}}`, true},
			{`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, false},
			{`{"a": {"b": 1}}`, `{"a": {}}`, false},
		}},
		"a name that hides": {nil, "[{'a': 1}].all(object, object.a == 1)", []change{
			{`{"a": 1}`, `{"a": 2}`, true},
		}},
		"a name that does not hide": {nil, "[1].all(object, .object.a == object)", []change{
			{`{"a": 1}`, `{"a": 2}`, false},
			{`{"a": 1}`, `{"a": 1, "b": 1}`, true},
		}},
		"variables that are hidden": {[]pair{{"a", "object.a"}}, "[{'a': 1}].all(variables, variables.a == 1)", []change{
			{`{"a": 1}`, `{"a": 2}`, true},
		}},
		"variable": {[]pair{{"a", "object.a"}, {"b", "variables.a.b"}}, "variables.b.c == 1", []change{
			{`{"a": {"b": {"c": 1}}}`, `{"a": {"b": {"c": 1, "d": 1}}}`, true},
			{`{"a": {"b": {"c": 1}}}`, `{"a": {"b": {"c": 2}}}`, false},
		}},
		"variable for the name of another": {[]pair{{"a", "object.a"}}, "dyn(variables)['a'] == 1", []change{
			{`{"a": 1}`, `{"a": 2}`, false},
		}},
		"all variables": {[]pair{{"a", "object.a"}}, "dyn(variables).all(v, v == 1)", []change{
			{`{"a": 1}`, `{"a": 2}`, false},
		}},
		"a variable that is itself": {[]pair{{"a", "object.a"}, {"a", "variables.a + object.b"}}, "variables.a == 1", []change{
			{`{"a": 1, "b": 1}`, `{"a": 1, "b": 1}`, true},
			{`{"a": 1, "b": 1}`, `{"a": 1, "b": 2}`, false},
		}},
		"as a text": {nil, "string(object.a) == '1' || type(object.b) == int", []change{
			{`{"a": 1, "b": 1}`, `{"a": 1, "b": 1, "c": 1}`, true},
			{`{"a": 1, "b": 1}`, `{"a": 1, "b": "x"}`, false},
			{`{"a": 1, "b": 1}`, `{"a": 2, "b": 1}`, false},
		}},
		"dyn": {nil, "dyn(object).a == 1", []change{
			{`{"a": 1}`, `{"a": 1, "b": 2}`, true},
			{`{"a": 1}`, `{"a": 2}`, false},
		}},
		"in a map": {nil, "{'x': object.a}.x.b == 1", []change{
			{`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, false},
		}},
		"sorted": {nil, "object.a.sortBy(x, x.b)[0].c == 1", []change{
			{`{"a": [{"b": 1, "c": 1}]}`, `{"a": [{"b": 1, "c": 2}]}`, false},
			{`{"a": [{"b": 1, "c": 1}]}`, `{"a": [{"b": 2, "c": 1}]}`, false},
		}},
		"not the object": {nil, "oldObject.a == 1 && request == null", []change{
			{`{"a": 1}`, `{"a": 2}`, true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variables := declare(t, compiler, test.variables...)
			program := compile(t, compiler, variables, test.expression)
			for _, c := range test.changes {
				if got := sameIn(program.Reads(), parse(t, c.object), parse(t, c.old)); got != c.same {
					t.Errorf("%s, from %s to %s: same = %v", test.expression, c.old, c.object, got)
				}
				if !sameIn(program.Reads(), parse(t, c.object), parse(t, c.object)) {
					t.Errorf("%s: %s is not the same as itself", test.expression, c.object)
				}
			}
		})
	}
}

func TestTouches(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	path := []string{"metadata", "finalizers"}
	for text, want := range map[string]bool{
		// Whatever of these is read, finalizers are not.
		`object.spec.replicas <= 5`:                                         false,
		`has(object.metadata.labels) && object.metadata.labels["a"] == "b"`: false,
		`object.spec.containers.all(c, c.image.startsWith("a/"))`:           false,
		`object.?metadata.?annotations["a"].orValue("") == ""`:              false,
		`object["metadata"]["labels"].exists(k, k == "a")`:                  false,
		`[1, 2].exists(i, object.spec.x == i)`:                              false,
		`object.spec.metadata.finalizers == 1`:                              false,
		`dyn(object).metadata.name == ""`:                                   false,
		`object == null || object.metadata != null`:                         false,
		`"labels" in object.metadata`:                                       false,
		`oldObject.metadata.finalizers == []`:                               false,
		// These may show them.
		`has(object.metadata.finalizers)`:                   true,
		`object.metadata.finalizers.size() > 0`:             true,
		`object.?metadata[?"finalizers"].hasValue()`:        true,
		`object.metadata == oldObject.metadata`:             true,
		`object == oldObject`:                               true,
		`object.metadata.exists(k, k == "a")`:               true,
		`size(object.metadata) > 1`:                         true,
		`object[object.spec.x].finalizers == []`:            true,
		`object.metadata["final" + "izers"] == []`:          true,
		`"finalizers" in object.metadata`:                   true,
		`[object].all(o, !has(o.metadata.finalizers))`:      true,
		`[object.metadata].all(m, !has(m.finalizers))`:      true,
		`string(object.metadata) == ""`:                     true,
		`{"a": object}.a.metadata.finalizers == []`:         true,
		`has(.object.metadata.finalizers)`:                  true,
		`[1].all(object, has(.object.metadata.finalizers))`: true,
		`has(variables.m.finalizers)`:                       true,
		`dyn(variables)["m"] == 1`:                          true,
	} {
		variables := declare(t, compiler, pair{"m", "object.metadata"})
		if got := compile(t, compiler, variables, text).Reads().Touches(path...); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestSameInTakesNoLongTime compares what takes very long to compare in plain
// ways.
func TestSameInTakesNoLongTime(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const many = 100_000
	var forth, back strings.Builder
	for i := range many {
		fmt.Fprintf(&forth, `,"k%d":%d`, i, i)
		fmt.Fprintf(&back, `,"k%d":%d`, many-1-i, many-1-i)
	}
	lists := func(n int, last string) string {
		list := "[" + strings.Repeat(`{"a":1},`, n) + last + "]"
		return `{"a":[` + strings.Repeat(`{"b":`+list+`},`, n) + `{"b":` + list + `}]}`
	}
	// Each list is like each other one but for its last element, and both the lists
	// and what is in them begin at the other end.
	crossed := func(n int, forth bool) string {
		var list strings.Builder
		for i := range n {
			if !forth {
				i = n - 1 - i
			}
			fmt.Fprintf(&list, `{"a":%d},`, i)
		}
		lists := make([]string, n)
		for i := range lists {
			at := i
			if !forth {
				at = n - 1 - i
			}
			lists[at] = fmt.Sprintf(`{"b":[%s{"a":-%d}]}`, list.String(), i+1)
		}
		return `{"a":[` + strings.Join(lists, ",") + "]}"
	}
	for name, test := range map[string]struct {
		expression, old, object string
		same                    bool
	}{
		// They are the same, but to see that takes a minute.
		"lists in lists, crossed":  {"object.a.all(x, x.b.all(y, y.a == 1))", crossed(250, true), crossed(250, false), false},
		"members in another order": {"object.a == object.b", `{"a":{"":0` + forth.String() + `}}`, `{"a":{"":0` + back.String() + `}}`, true},
		"members gone through":     {"object.a.all(k, k != '')", `{"a":{"":0` + forth.String() + `}}`, `{"a":{"":0` + back.String() + `}}`, true},
		"a long list":              {"object.a.all(x, x == 1)", `{"a":[` + strings.Repeat("1,", many) + `2]}`, `{"a":[` + strings.Repeat("1,", many) + `2], "b": 1}`, true},
		"a long list with a change at its end": {
			"object.a.all(x, x.b == 1)", `{"a":[` + strings.Repeat(`{"b":1},`, many) + `{"b":2}]}`, `{"a":[` + strings.Repeat(`{"b":1},`, many) + `{"b":2,"c":1}]}`, true,
		},
		"a long list with all of it changed": {"object.a.all(x, x == 1)", `{"a":[` + strings.Repeat("1,", many) + `1]}`, `{"a":[` + strings.Repeat("2,", many) + `2]}`, false},
		"lists in lists":                     {"object.a.all(x, x.b.all(y, y.a == 1))", lists(250, `{"a":2}`), lists(250, `{"a":3}`), false},
		"lists in lists, in another order":   {"object.a.all(x, x.b.all(y, y.a == 1))", lists(250, `{"a":2}`), strings.ReplaceAll(lists(250, ""), "},]", "}]"), true},
		"deep":                               {"object.a == object.b", `{"a":` + strings.Repeat("[", 9000) + "1" + strings.Repeat("]", 9000) + "}", `{"a":` + strings.Repeat("[", 9000) + "2" + strings.Repeat("]", 9000) + "}", false},
		"many texts, of which one is new":    {"object.a.exists(x, 'x' in x)", `{"a":[` + strings.Repeat(`["a"],`, many) + `["a"]]}`, `{"a":[` + strings.Repeat(`["a"],`, many) + `["x"]]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := compile(t, compiler, nil, test.expression)
			object, old := parse(t, test.object), parse(t, test.old)
			defer timely(t, 5*time.Second)()
			if got := sameIn(program.Reads(), object, old); got != test.same {
				t.Errorf("same = %v", got)
			}
		})
	}
}

// TestReadsOfHugeExpressions looks through expressions that stand for very many
// places or parts.
func TestReadsOfHugeExpressions(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	chain := "object.a" + strings.Repeat(".map(x, x)", 40) + ".size() == 1"
	wide := "[" + strings.Repeat("object.a, ", 200) + "object.b][0] == 1"
	many := "["
	for i := range 200 {
		many += fmt.Sprintf("object.a%d, ", i)
	}
	many += "object.b].exists(x, x.c == 1)"
	doubling := []pair{{"v0", "object.a"}}
	for i := range 40 {
		doubling = append(doubling, pair{fmt.Sprintf("v%d", i+1), fmt.Sprintf("[variables.v%d, variables.v%d]", i, i)})
	}
	for name, test := range map[string]struct {
		variables  []pair
		expression string
		same       bool
	}{
		"chain":    {nil, chain, true},
		"wide":     {nil, wide, true},
		"many":     {nil, many, true},
		"doubling": {doubling, "variables.v40.size() == 1", false}, // taken for all of the object
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer timely(t, 10*time.Second)()
			variables := declare(t, compiler, test.variables...)
			reads := compile(t, compiler, variables, test.expression).Reads()
			if got := sameIn(reads, parse(t, `{"a": [1], "b": 1, "c": 2}`), parse(t, `{"a": [1], "b": 1}`)); got != test.same {
				t.Errorf("same = %v", got)
			}
			if sameIn(reads, parse(t, `{"a": [1, 2], "b": 2, "a7": 1}`), parse(t, `{"a": [1], "b": 1}`)) {
				t.Error("a change is not seen")
			}
		})
	}
}
