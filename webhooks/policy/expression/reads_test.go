package expression_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

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
		`object == null || has(object.metadata.name)`:                       false,
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

func TestCanSpare(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for text, want := range map[string]bool{
		// Each element is asked by itself.
		`object.spec.containers.all(c, c.x == 1)`:                                                               true,
		`!object.spec.containers.exists(c, c.x == 1) && !has(object.spec.y)`:                                    true,
		`object.spec.containers.filter(c, c.x == 1).size() == 0 || has(object.spec.y)`:                          true,
		`object.spec.containers.filter(c, c.x == 1).map(c, c.name).size() == 0 || has(object.spec.y)`:           true,
		`(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, c.x == object.spec.y)`:       true,
		`has(object.spec.initContainers) ? object.spec.initContainers.all(c, c.x == object.spec.y) : true`:      true,
		`size(variables.bad) == 0 && !has(object.spec.y)`:                                                       true,
		`object.spec.containers.map(c, c.name).all(n, n != object.spec.y)`:                                      true,
		`object.spec.containers.map(c, c.x.map(y, [y])).flatten().filter(y, y[0] == object.spec.y).size() == 0`: true,
		`object.spec.containers.map(c, c.x).distinct().all(x, x == object.spec.y)`:                              true,
		`has(object.spec.y)`: true, // it reads none
		// Nothing else is read.
		`size(object.spec.containers) <= 2`:                                           true,
		`object.spec.containers[0].x == 1`:                                            true,
		`object.spec.containers.exists(c, c.x == 1)`:                                  true,
		`object.spec.containers.all(c, object.spec.containers.exists(d, d.x == c.x))`: true,
		// Fewer elements may hide what is asked of the rest.
		`size(object.spec.containers) <= 2 || has(object.spec.y)`:                                 false,
		`size(object.spec.containers) == 0 || has(object.spec.y)`:                                 false,
		`object.spec.containers == [] || has(object.spec.y)`:                                      false,
		`object.spec.containers.all(c, c.x == 1) == has(object.spec.y)`:                           false,
		`object.spec.containers.exists(c, c.x == 1) || has(object.spec.y)`:                        false,
		`!object.spec.containers.all(c, c.x == 1) || has(object.spec.y)`:                          false,
		`object.spec.containers[0].x == 1 || has(object.spec.y)`:                                  false,
		`!has(object.spec.initContainers) || has(object.spec.y)`:                                  false,
		`object.spec.containers.map(c, c.x).join("") == "" || has(object.spec.y)`:                 false,
		`object.spec.containers.all(c, object.spec.containers.exists(d, d.x == c.x)) || object.y`: false,
		`string(object.spec) == ""`:                                                               false,
		`object.spec.all(k, k != "x")`:                                                            false,
		`size(object.spec.containers) <= 2 && object.spec.volumes.all(v, v.name != "")`:           false,
		`object.spec.containers.map(c, c.x).distinct().size() == 1 || has(object.spec.y)`:         false,
		`size(variables.bad) <= 1 || has(object.spec.y)`:                                          false,
	} {
		variables := declare(t, compiler, pair{"bad", "object.spec.containers.filter(c, c.x == 1)"})
		if got := compile(t, compiler, variables, text).Reads().CanSpare([]string{"spec", "containers"}, []string{"spec", "initContainers"}); got != want {
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
		"lists in lists, crossed":  {"object.a.all(x, x.b.all(y, y.a == 1))", crossed(250, true), crossed(250, false), false},
		"members in another order": {"object.a == object.b", `{"a":{"":0` + forth.String() + `}}`, `{"a":{"":0` + back.String() + `}}`, false},
		"members gone through":     {"object.a.all(k, k != '')", `{"a":{"":0` + forth.String() + `}}`, `{"a":{"":0` + back.String() + `}}`, false},
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
