package bound

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// sharedBounds returns one environment and its bounds for all tests.
var sharedBounds = sync.OnceValues(func() (*cel.Env, *Bounds) {
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).NewExpressionsEnv().Extend(cel.Variable("object", cel.DynType), cel.Variable("variables", cel.DynType))
	if err != nil {
		panic(err)
	}
	bounds, err := New(env)
	if err != nil {
		panic(err)
	}
	return env, bounds
})

// nested returns the text of n parts, each in the one before.
func nested(n int, part func(i int) string, inner, end string) string {
	var out strings.Builder
	for i := range n {
		out.WriteString(part(i))
	}
	return out.String() + inner + strings.Repeat(end, n)
}

// hostile are expressions whose types or parts grow exponentially, or with a
// power, with n.
func hostile(n int) map[string]string {
	same := func(of string) func(int) string { return func(int) string { return of } }
	// unified says of each of n names that it is of a type made of that of the next.
	unified := func(from, as string) string {
		var all strings.Builder
		for i := 1; i < n; i++ {
			fmt.Fprintf(&all, " && "+as, i-1, i)
		}
		return nested(n, func(i int) string { return fmt.Sprintf(from, i) }, "true"+all.String(), ")")
	}
	const twice = "v%[1]d == {v%[2]d: v%[2]d}"
	chain := "m" // of maps, all of them in one name
	for range min(n, 60) {
		chain += "[[]][0]"
	}
	return map[string]string{
		"maps of elements": nested(n, func(i int) string {
			if i == 0 {
				return "[1].all(v0, "
			}
			return fmt.Sprintf("[{v%[1]d: v%[1]d}].all(v%[2]d, ", i-1, i)
		}, "true", ")"),
		"maps of maps":                "[1]" + strings.Repeat(".map(a, {a: a})", n) + " == []",
		"maps of optional values":     nested(n, func(i int) string { return fmt.Sprintf("optional.of({v%[1]d: v%[1]d}).optMap(v%[2]d, ", i-1, i) }, "true", ")") + ".hasValue()",
		"transformed maps":            "{1: 1}" + strings.Repeat(".transformMap(k, v, {v: v})", n) + " == {}",
		"transformed entries":         "{1: 1}" + strings.Repeat(".transformMapEntry(k, v, {v: v})", n) + " == {}",
		"repeated":                    "optional.of(1)" + strings.Repeat(".optMap(x, x)", n) + ".hasValue()",
		"repeated flat":               "optional.of(1)" + strings.Repeat(".optFlatMap(x, optional.of(x))", n) + ".hasValue()",
		"repeated, and a mistake":     "optional.of(1)" + strings.Repeat(".optMap(x, x)", n) + ".hasValue(",
		"lists of lists":              strings.Repeat("[", 6*n) + strings.Repeat("]", 6*n) + " == []",
		"types of types":              nested(6*n, same("type("), "1", ")") + " == int",
		"optional values of them":     nested(3*n, same("optional.of("), "1", ")") + ".hasValue()",
		"elements not known":          unified("[].all(v%d, ", twice),
		"lists of what is not known":  unified("[[]].all(v%d, ", twice),
		"optional values not known":   unified("optional.none().optMap(v%d, ", twice) + ".hasValue()",
		"values of dyn":               unified("[object.value()].all(v%d, ", twice),
		"values in values of dyn":     unified("[object[0][?1].value()].all(v%d, ", twice),
		"members of dyn":              unified("[object['x']].all(v%d, ", twice),
		"members of dyn, conditional": unified("[true ? object['x'] : object['y']].all(v%d, ", twice),
		"dyn and lists":               unified("(object.x + []).all(v%d, ", twice),
		"distinct elements of dyn":    unified("object.distinct().all(v%d, ", twice),
		"alternatives of dyn":         unified("object.orValue([]).all(v%d, ", twice),
		"filtered":                    unified("[[]].filter(x, true).all(v%d, ", twice),
		"mapped":                      unified("[1].map(x, []).all(v%d, ", twice),
		"keys and values":             unified("[{}].all(v%d, ", "v%[1]d.all(k, k == v%[2]d && v%[1]d[k] == v%[2]d)"),
		"long lists":                  unified("[].all(v%d, ", "v%[1]d == [[[[[[[[[[[[[[[[v%[2]d]]]]]]]]]]]]]]]]"),
		"results of loops":            nested(n, same("{[[]].map(x, {x: x})[0]: "), "1", "}") + " == 1",
		"patterns":                    "true" + strings.Repeat(" && 'a'.matches('^(ab{1,3}){1,300}')", n),
		"classes":                     `'a'.find('` + strings.Repeat(`\\pL`, 30*n) + `') == ''`,
		"one name":                    "[{}].all(m, " + chain + "[" + chain + "[[]]] == 1" + strings.Repeat(" && m[m[[]]][0][m[[]][0][[]]] == 1", n) + ")",
	}
}

// TestHostile holds that such expressions are refused. A deep one could never be
// checked, and of each kind the first few are too small to do harm.
func TestHostile(t *testing.T) {
	t.Parallel()
	env, bounds := sharedBounds()
	for name := range hostile(1) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{16, 20, 40} {
				_, issues, err := bounds.Parse(env, hostile(n)[name], nil)
				if err == nil && issues.Err() == nil {
					t.Errorf("%d: not refused", n)
				}
				if issues.Err() != nil && !strings.Contains(issues.Err().Error(), "Syntax error") && !strings.Contains(issues.Err().Error(), "recursion depth") {
					t.Errorf("%d: %v", n, issues.Err())
				}
			}
		})
	}
}

// TestVariables holds that the type of a variable counts where it is used.
func TestVariables(t *testing.T) {
	t.Parallel()
	env, bounds := sharedBounds()
	declared := types.IntType
	fields := func(variable, field string) *types.Type {
		if variable == "variables" && field == "x" {
			return declared
		}
		return nil
	}
	const text = "{variables.x: variables.x}"
	for n := 0; ; n++ {
		if _, issues, err := bounds.Parse(env, text, fields); issues.Err() != nil {
			t.Fatal(issues.Err())
		} else if err != nil {
			break
		}
		if n > 10 {
			t.Fatal("a variable of a variable of … is never too large")
		}
		declared = cel.MapType(declared, declared)
	}
	if _, _, err := bounds.Parse(env, "[1].all(variables, {variables.x: variables.x} != {})", fields); err != nil {
		t.Errorf("an element that is named as the variables are: %v", err)
	}
}

// TestMacros holds that no macro repeats what it is given but those that are known
// to.
func TestMacros(t *testing.T) {
	t.Parallel()
	env, _ := sharedBounds()
	known := []string{
		"all", "exists", "existsOne", "exists_one", "filter", "has", "map", "optFlatMap", "optMap", "sortBy", "transformList", "transformMap", "transformMapEntry",
	}
	var names []string
	for _, macro := range env.Macros() {
		names = append(names, macro.Function())
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, known) {
		t.Errorf("there are other macros: %q", names)
	}
}

// FuzzParse holds that the types of what is taken are as small as was reckoned.
func FuzzParse(f *testing.F) {
	for _, n := range []int{2, 3, 5, 7} {
		for _, text := range hostile(n) {
			f.Add(text)
		}
	}
	for _, text := range []string{
		"object.spec.containers.all(c, c.image.startsWith('registry.example/') && c.?securityContext.?capabilities.?drop.orValue([]).exists(d, d == 'ALL'))",
		"object.?metadata.?labels['a'].optMap(x, x.size()).orValue(0) == 1 && object.spec.containers.map(c, {'n': c.name, 'i': [c.image]}).all(m, m.n != '')",
		"[{}, {1: []}, {[]: 1}].all(a, [a[0], a].map(b, {b: a}).exists(c, c[0] == a))",
		"{'a': [1]}.transformMap(k, v, {k: v}).transformList(k, v, [k, v]).sortBy(x, x[0])",
		"sets.contains([[]], object['a']['b'].first().or(optional.none()).value())",
	} {
		f.Add(text)
	}
	env, bounds := sharedBounds()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2_000 {
			return
		}
		parsed, issues, err := bounds.Parse(env, text, nil)
		if issues.Err() != nil || err != nil {
			return
		}
		typed, issues := env.Check(parsed)
		if issues.Err() != nil {
			return
		}
		sum := 0
		for _, t := range typed.NativeRep().TypeMap() {
			sum += Size(t)
		}
		if most := maxWork(len(text)) + 4*maxParts(len(text)); sum > most {
			t.Errorf("types of size %d, expected %d: %s", sum, most, text)
		}
	})
}
