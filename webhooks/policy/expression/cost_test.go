package expression_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// costs makes expressions that cost much, and objects that they cost much for: with long texts and lists.
type costs struct {
	*generator
	texts, lists, maps []string
	names              int
}

func newCosts(seed uint64) *costs {
	return &costs{generator: newGenerator(seed), texts: []string{"object.s", "object.t"}, lists: []string{"object.l", "object.m.l"}, maps: []string{"object.m", "object"}}
}

func (g *costs) of(all []string) string { return all[g.IntN(len(all))] }

// long returns a text whose length grows with the size.
func (g *costs) long(size int) string {
	return strings.Repeat(g.oneOf("a", "ab", "b,", "1", "é", "10.0.0.1", " A", "x=y&"), g.IntN(size+1))
}

// large returns an object whose parts grow with the size.
func (g *costs) large(size int) map[string]any {
	list := func(element func() any) []any {
		all := make([]any, g.IntN(size+1))
		for i := range all {
			all[i] = element()
		}
		return all
	}
	text := func() any { return g.long(size / 4) }
	item := func() any {
		switch g.IntN(8) {
		case 0:
			return text()
		case 1:
			return plain(g.oneOf("1", "2.5"))
		default:
			return map[string]any{"n": text(), "l": list(text), "m": map[string]any{"a": text(), "b": text()}}
		}
	}
	m := map[string]any{"l": list(text)}
	for i := range g.IntN(size + 1) {
		m[fmt.Sprintf("k%d", i)] = text()
	}
	object := map[string]any{"s": text(), "t": g.long(3 * size), "l": list(text), "m": m, "i": list(item)}
	if g.IntN(4) == 0 {
		delete(object, g.oneOf("s", "t", "l", "m", "i"))
	}
	return object
}

// costly has the texts that a symbol, such as <text>, can stand for; text0 has those where no other symbol may follow.
// T, L and M are names of texts, lists and maps; @t, @l and @m declare one for the rest of the text, and # is the last.
var costly = map[string][]string{
	"text0": {"<T>", "<T>", "'a'", "'abc'", "''", "string(object.s)"},
	"text": {
		"(<text> + <text>)", "(<text> + <text>)", "<text>.replace(<short>, <text>)", "<text>.replace(<short>, <text>, 2)", "<text><change>",
		"<list>.join(<separator>)", "<list>.join(<separator>)", "string(<value>)", "(<cond> ? <text> : <text>)", "<format>.format([<text>, <value>])", "<list><index>",
		"<M>[<text>]", "<M>[?<text>].orValue('')", "<M>.k1", "<M>.?k1.orValue('')", "<M>.?n.orValue(<text>)", "<M>.s", "<M>.?a.optMap(@t, # + <text>).orValue('')",
		"<list><end>", "optional.of(<text>).orValue(object.m)", "optional.of(<text>).orValue(<text>)", "strings.quote(<text>)",
		"url(<text>).getHost()", "url(<text>).getEscapedPath()", "<v>", "dyn(<text>)", "<T>", "<T>",
	},
	"short":     {"''", "'a'", "<text>"},
	"separator": {"", "''", "','", "<text>"},
	"change":    {".lowerAscii()", ".upperAscii()", ".trim()", ".substring(1)", ".substring(0, 2)", ".charAt(0)", ".find('[a-c]+')"},
	"value": {
		"<text>", "size(<list>)", "<list>", "bytes(<text>)", "1.5", "1", "quantity('1k')", "url(<text>)", "ip('10.0.0.1')", "timestamp('2026-01-02T03:04:05Z')", "duration('1h')",
	},
	"format": {"'%s and %s'", "'%d'", "'%x %s'", "<text>"},
	"index":  {"[0]", "[1]", "[size(<list>)-1]"},
	"end":    {".min()", ".max()", ".sort()[0]", ".first().orValue('')", ".last().value()"},
	"list0":  {"<L>", "<L>", "object.i", "['a', 'b']", "[]"},
	"list": {
		"(<list> + <list>)", "(<list> + <list>)", "<text>.split(<short>)", "<text>.split(',', 3)", "<text>.findAll('[a-b]')", "<text>.findAll(<short>)",
		"<list>.map(@t, <text>)", "<list>.map(@t, <text>)", "<list>.filter(@t, <cond>)", "<list>.filter(@t, <cond>)", "<list>.map(@m, #.l)", "<list>.map(@m, #.?l.orValue([]))", "<list>.map(@m, #.n)",
		"object.m.map(@t, object.m[#])", "<over>.transformList(@t, @t, <text>)", "<over>.transformMap(@t, @t, <text>)", "<list><part>", "lists.range(<many>)",
		"[<list>, <list>][1]", "[<list>, <list>].flatten()", "(<cond> ? <list> : <list>)", "<list>.sortBy(@t, <text>)", "dyn([<list>, {'a': <text>, <text>: <list>}])", "<L>", "<L>",
	},
	"over":  {"<list>", "<list>", "<M>"},
	"part":  {".reverse()", ".slice(0, 1)", ".distinct()", ".sort()", ".flatten()", ".flatten(2)"},
	"many":  {"3", "10", "size(<list>)"},
	"cond0": {"true", "has(object.s)", "<T> == 'a'"},
	"cond": {
		"<text>.startsWith(<text>)", "<text>.contains(<text>)", "<text>.matches('^[a-z]+$')", "<text>.matches('a*b*c*')", "<text>.matches(<text>)", "<text> == <text>", "<text> != <text>", "<text> < <text>",
		"<text> in <list>", "<text> in <M>", "<text> in ['a', 'b']", "'a' in <list>", "<over>.all(@t, <cond>)", "<over>.all(@l, <cond>)", "<over>.exists(@t, <cond>)", "<over>.exists(@m, <cond>)",
		"<over>.exists_one(@t, <cond>)", "<over>.all(@t, @t, <cond>)", "<over>.existsOne(@t, @t, <cond>)", "sets.contains(<list>, <list>)", "sets.intersects(<list>, <list>)", "sets.equivalent(<list>, <list>)",
		"<list>.isSorted()", "<list>.includes(<text>)", "<list>.indexOf(<text>) > 0", "<list>.size() > 2", "<list>.sum() > 1", "isQuantity(<text>)", "isURL(<text>)", "isIP(<text>)", "isCIDR(<text>)", "isSemver(<text>)",
		"(<cond> && <cond>)", "(<cond> || <cond>)", "!(<cond>)", "<list> == <list>", "<M> == <M>", "object == oldObject", "type(<text>) == string", "has(<M>.n)",
		"cidr('10.0.0.0/8').containsIP(<text>)", "format.named('dns1123Label').value().validate(<text>).hasValue()", "format.dns1123Subdomain().validate(<text>) == optional.none()",
		"quantity(<text>).isGreaterThan(quantity('1'))", "<text>.indexOf(<text>) > 1", "<text>.size() > 3",
	},
}

var costlySymbol = regexp.MustCompile(`<[a-zA-Z]\w*>|@[tlm]|#`)

// expand returns an expression for a symbol, in which symbols stand in others up to a depth.
func (g *costs) expand(name string, depth int) string {
	switch name {
	case "L":
		return g.of(g.lists)
	case "M":
		return g.of(g.maps)
	case "v":
		if g.variables > 0 {
			return fmt.Sprintf("variables.v%d", g.IntN(g.variables))
		}
		fallthrough
	case "T":
		return g.of(g.texts)
	}
	all := costly[name]
	if leaves := costly[name+"0"]; leaves != nil && depth <= 0 {
		all = leaves
	}
	last, texts, lists, maps := "", g.texts, g.lists, g.maps
	out := costlySymbol.ReplaceAllStringFunc(g.of(all), func(s string) string {
		names, declares := map[string]*[]string{"@t": &g.texts, "@l": &g.lists, "@m": &g.maps}[s]
		switch {
		case s == "#":
			return last
		case !declares:
			return g.expand(s[1:len(s)-1], depth-1)
		}
		g.names++
		last = fmt.Sprintf("x%d", g.names)
		*names = append(slices.Clip(*names), last)
		return last
	})
	g.texts, g.lists, g.maps = texts, lists, maps
	return out
}

// measure returns the bytes and values of an object, as celcost has them.
func measure(v any) (bytes, values int) {
	add := func(v any) {
		b, n := measure(v)
		bytes, values = bytes+b, values+n+1
	}
	switch v := v.(type) {
	case string:
		return len(v), 0
	case plain:
		return len(v), 0
	case map[string]any:
		for name, member := range v {
			bytes += len(name)
			add(member)
		}
	case []any:
		for _, element := range v {
			add(element)
		}
	}
	return bytes, values
}

// checkBound compiles the expression with the variables, and holds for the objects that its bound is no less than what it costs,
// and that its plan without counting comes to the same.
func checkBound(t *testing.T, variables *expression.Variables, text string, declared []string, objects []any, g *generator) (isBounded bool) {
	t.Helper()
	program, failure := tryCompile(sharedCompiler(), variables, text)
	if failure != nil {
		return false
	}
	// Maps that expressions make have their members in random order.
	all := text + strings.Join(declared, " ")
	isUnordered := strings.Contains(all, "transformMap") || strings.Contains(all, "{'a'")
	bound := program.Bound()
	if variables != nil {
		bound = bound.Add(variables.Bound())
	}
	for _, object := range objects {
		written := g.text(object)
		from := source{object: celvalue.Value(parse(t, written))}
		bytes, values := measure(object)
		run := func(counting expression.Counting) (string, int64) {
			var in expression.Input
			in.Reset(from, types.NullValue, variables)
			in.Counting = counting
			value, _, err := in.Phase(math.MaxInt64/2).Eval(context.Background(), program)
			text := result(value, err)
			if err != nil {
				text, _, _ = strings.Cut(text, "{") // a message that shows a map has its members in random order
			}
			return text, in.Spent
		}
		counted, cost := run(expression.Counted)
		if most := bound.At(&celcost.Sizes{ObjectBytes: bytes, ObjectValues: values}); float64(cost) > most {
			t.Errorf("%s\nwith %q\ncosts %d, bound %v\nof %s", text, declared, cost, most, written)
		}
		if strings.Contains(counted, "actual cost limit exceeded") || isUnordered {
			continue
		}
		for _, counting := range []expression.Counting{expression.Uncounted, expression.Brief} {
			if got, _ := run(counting); got != counted {
				t.Errorf("%s\nwith %q\n    is %s\nwithout counting %s\nof %s", text, declared, counted, got, written)
			}
		}
	}
	return bound.IsFinite()
}

// checkCosts does checkBound for random expressions.
func checkCosts(t *testing.T, seed uint64) (compiled, bounded int) {
	t.Helper()
	g := newCosts(seed)
	variables := expression.NewVariables()
	for i := range g.IntN(3) {
		text := g.expand(g.oneOf("text", "list"), 2)
		if sharedCompiler().Declare(fmt.Sprintf("v%d", i), text, expression.Declarations{Variables: variables, Authorizer: true}) != nil {
			continue
		}
		g.variables, g.declared = i+1, append(g.declared, text)
		g.lists = append(g.lists, fmt.Sprintf("variables.v%d", i))
	}
	var objects []any
	for range 3 {
		objects = append(objects, g.large(g.oneOfSizes()))
	}
	for range 4 {
		text := g.expand(g.oneOf("cond", "text", "list"), 3)
		if _, err := tryCompile(sharedCompiler(), variables, text); err != nil {
			continue
		}
		compiled++
		if checkBound(t, variables, text, g.declared, objects, g.generator) {
			bounded++
		}
	}
	return compiled, bounded
}

func (g *costs) oneOfSizes() int { return []int{0, 2, 8, 20, 40}[g.IntN(5)] }

// TestBound holds for random expressions that they cost no more than their bound, and come to the same without counting.
func TestBound(t *testing.T) {
	t.Parallel()
	compiled, bounded := 0, 0
	seeds := race.Cases(500)
	for seed := range uint64(seeds) {
		c, b := checkCosts(t, seed)
		compiled, bounded = compiled+c, bounded+b
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("of %d expressions, %d compile and %d have a bound", 4*seeds, compiled, bounded)
	if compiled < seeds || bounded < compiled/2 {
		t.Error("too few")
	}
}

// TestBoundOfRules does what TestBound does for expressions of other kinds.
func TestBoundOfRules(t *testing.T) {
	t.Parallel()
	compiled, bounded := 0, 0
	seeds := race.Cases(500)
	for seed := range uint64(seeds) {
		g := newGenerator(seed)
		r := &rules{generator: g, items: []string{"object"}}
		var objects []any
		for range 2 {
			objects = append(objects, r.item(3), g.object())
		}
		for _, text := range []string{r.condition(4), g.bool(4), g.value(4)} {
			if strings.Contains(text, "variables") {
				continue
			}
			if _, err := tryCompile(sharedCompiler(), nil, text); err == nil {
				compiled++
				if checkBound(t, nil, text, nil, objects, g) {
					bounded++
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("of %d expressions, %d compile and %d have a bound", 3*seeds, compiled, bounded)
	if compiled < seeds || bounded < compiled*3/4 {
		t.Error("too few")
	}
}

func FuzzBound(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkCosts(t, seed) })
}

// TestDeclaredTwice has a variable that is declared again with another type, which what was compiled before does not know: it has no
// bound, and comes to what it came to.
func TestDeclaredTwice(t *testing.T) {
	t.Parallel()
	variables := declare(t, sharedCompiler(), pair{"a", "1"}, pair{"b", "variables.a + 1"}, pair{"a", "'x'"})
	if variables.Bound().IsFinite() {
		t.Error("there is a bound")
	}
	const want = "error: composited variable \"b\" fails to evaluate: no such overload"
	if got := evaluate(compile(t, sharedCompiler(), variables, "variables.b == 2"), variables, source{}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCountingPlanIsKept holds that the plan that counts is made once. It is not parallel: what others allocate would count.
//
//nolint:paralleltest // it measures
func TestCountingPlanIsKept(t *testing.T) {
	program := compile(t, sharedCompiler(), nil, "object.a.all(x, x == 'kept')")
	from := withObject(t, `{"a": ["kept"]}`)
	evaluate(program, nil, from)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		evaluate(program, nil, from)
	}
	runtime.ReadMemStats(&after)
	// To plan it takes more than a hundred kilobytes.
	if each := (after.TotalAlloc - before.TotalAlloc) / 100; each > 20<<10 {
		t.Errorf("each time %d bytes are allocated", each)
	}
}
