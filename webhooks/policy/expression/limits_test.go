package expression_test

import (
	"strings"
	"testing"
	"time"
)

// TestHugeRange holds that a list that is too long for any expression is not even
// made.
func TestHugeRange(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const tooLong = "error: a list must not have more than 1000000 elements"
	for object, want := range map[string]string{
		`{"n": 3}`:                   "list [0, 1, 2]",
		`{"n": 0}`:                   "list []",
		`{"n": -1}`:                  "error: lists.range: size must be non-negative, got -1",
		`{"n": 1000001}`:             tooLong,
		`{"n": 100000000000}`:        tooLong,
		`{"n": 9223372036854775807}`: tooLong,
		`{"n": "x"}`:                 "error: no such overload: lists.range(string)",
	} {
		if got := evaluate(compile(t, compiler, nil, "lists.range(object.n)"), nil, withObject(t, object)); got != want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
}

// TestHugeText holds that a text that is too long for any expression is not even
// made.
func TestHugeText(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const tooLong = "error: a text must not have more than 10000000 bytes"
	long, list := strings.Repeat("x", 500_000), "["+strings.Repeat(`"x",`, 100_000)+`"x"]`
	for name, test := range map[string]struct{ expression, object, want string }{
		"nothing replaced":  {"object.a.replace('', object.b).size() > 0", `{"a": "` + long + `", "b": "` + long + `"}`, tooLong},
		"text replaced":     {"object.a.replace('x', object.b).size() > 0", `{"a": "` + long + `", "b": "` + long + `"}`, tooLong},
		"nothing there":     {"object.a.replace('y', object.b).size()", `{"a": "` + long + `", "b": "` + long + `"}`, "int 500000"},
		"made shorter":      {"object.a.replace('x', '')", `{"a": "` + long + `"}`, `string ""`},
		"made a bit longer": {"object.a.replace('x', 'yy').size()", `{"a": "` + long + `"}`, "int 1000000"},
		"only one":          {"object.a.replace('x', object.b, 1).size()", `{"a": "` + long + `", "b": "` + long + `"}`, "int 999999"},
		"of dyn":            {"dyn(object.a).replace(object.b, object.c)", `{"a": "abcabc", "b": "b", "c": "xy"}`, `string "axycaxyc"`},
		"some of them":      {"object.a.replace('b', 'xy', 1)", `{"a": "abcabc"}`, `string "axycabc"`},
		"of a number":       {"object.a.replace('b', 'xy')", `{"a": 1}`, "error: no such overload: replace(int, string, string)"},
		"joined":            {"object.a.join(object.b).size() > 0", `{"a": ` + list + `, "b": "` + long + `"}`, tooLong},
		"joined shortly":    {"object.a.join(', ').size()", `{"a": ` + list + `}`, "int 300001"},
		"joined by nothing": {"object.a.join('') + ['a', 'b'].join()", `{"a": ["x", "y"]}`, `string "xyab"`},
		"one joined":        {"object.a.join(object.b)", `{"a": ["x"], "b": "y"}`, `string "x"`},
		"numbers joined":    {"object.a.join(',')", `{"a": [1]}`, "error: no such overload: join(list, string)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer timely(t, 5*time.Second)()
			if got := evaluate(compile(t, compiler, nil, test.expression), nil, withObject(t, test.object)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestHugePattern holds that a regular expression that is too large is not even
// compiled, whatever it is made of.
func TestHugePattern(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const tooLarge = "error: a regular expression must not have more than 10000 parts, with repetitions written out"
	object := `{"p": "(?:` + strings.Repeat("a", 20) + `){1000}", "q": "a{1000}", "text": "a"}`
	for text, want := range map[string]string{
		"object.text.matches(object.p)":                        tooLarge,
		"matches(object.text, object.p)":                       tooLarge,
		"object.text.matches(object.p + 'b')":                  tooLarge,
		"object.text.find(object.p)":                           tooLarge,
		"object.text.findAll(object.p)":                        tooLarge,
		"object.text.findAll(object.p, 1)":                     tooLarge,
		"object.text.matches(object.q)":                        "bool false",
		"object.text.matches('^a$')":                           "bool true",
		"'aa'.find('a' + object.text)":                         `string "aa"`,
		"object.p.matches('a{3}') && 'a'.matches(object.text)": "bool true",
	} {
		if got := evaluate(compile(t, compiler, nil, text), nil, withObject(t, object)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
