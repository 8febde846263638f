package expression_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/celcost"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawcel"
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

// loopOver generates with the name of a loop.
func (g *costs) loopOver(names *[]string, generate func(name string) string) string {
	g.names++
	name := fmt.Sprintf("x%d", g.names)
	return with(names, name, func() string { return generate(name) })
}

// text returns an expression for a text, or what may be one.
func (g *costs) text(depth int) string {
	if depth <= 0 {
		return g.oneOf(g.of(g.texts), g.of(g.texts), "'a'", "'abc'", "''", "string(object.s)")
	}
	t, l, b := func() string { return g.text(depth - 1) }, func() string { return g.list(depth - 1) }, func() string { return g.cond(depth - 1) }
	switch g.IntN(20) {
	case 0, 1:
		return "(" + t() + " + " + t() + ")"
	case 2:
		return t() + ".replace(" + g.oneOf("''", "'a'", t()) + ", " + t() + g.oneOf(")", ", 2)")
	case 3:
		return t() + g.oneOf(".lowerAscii()", ".upperAscii()", ".trim()", ".substring(1)", ".substring(0, 2)", ".charAt(0)", ".find('[a-c]+')")
	case 4, 5:
		return l() + ".join(" + g.oneOf("", "''", "','", t()) + ")"
	case 6:
		return "string(" + g.oneOf(t(), "size("+l()+")", "bytes("+t()+")", "1.5", "quantity('1k')", "url("+t()+")", "ip('10.0.0.1')", "timestamp('2026-01-02T03:04:05Z')", "duration('1h')") + ")"
	case 7:
		return "(" + b() + " ? " + t() + " : " + t() + ")"
	case 8:
		return g.oneOf("'%s and %s'", "'%d'", "'%x %s'", t()) + ".format([" + t() + ", " + g.oneOf(l(), t(), "1") + "])"
	case 9:
		return l() + "[" + g.oneOf("0", "1", "size("+l()+")-1") + "]"
	case 10:
		return g.of(g.maps) + g.oneOf("[", "[?") + t() + "]" + g.oneOf("", ".orValue('')")
	case 11:
		return g.of(g.maps) + g.oneOf(".k1", ".?k1.orValue('')", ".?n.orValue("+t()+")", ".s", ".?a.optMap(x, x + "+t()+").orValue('')")
	case 12:
		return l() + g.oneOf(".min()", ".max()", ".sort()[0]", ".first().orValue('')", ".last().value()")
	case 13:
		return "optional.of(" + t() + ").orValue(" + g.oneOf("object.m", "object.l", t()) + ")"
	case 14:
		return "strings.quote(" + t() + ")"
	case 15:
		return "url(" + t() + ")" + g.oneOf(".getHost()", ".getEscapedPath()", ".getScheme()")
	case 16:
		if g.variables > 0 {
			return fmt.Sprintf("variables.v%d", g.IntN(g.variables))
		}
		fallthrough
	case 17:
		return "dyn(" + t() + ")"
	default:
		return g.of(g.texts)
	}
}

// list returns an expression for a list.
func (g *costs) list(depth int) string {
	if depth <= 0 {
		return g.oneOf(g.of(g.lists), g.of(g.lists), "object.i", "['a', 'b']", "[]")
	}
	t, l, b := func() string { return g.text(depth - 1) }, func() string { return g.list(depth - 1) }, func() string { return g.cond(depth - 1) }
	switch g.IntN(18) {
	case 0, 1:
		return "(" + l() + " + " + l() + ")"
	case 2:
		return t() + ".split(" + g.oneOf("''", "','", t()) + g.oneOf(")", ", 3)")
	case 3:
		return t() + ".findAll(" + g.oneOf("'[a-b]'", "''", t()) + ")"
	case 4, 5:
		over := l()
		return g.loopOver(&g.texts, func(x string) string { return over + ".map(" + x + ", " + t() + ")" })
	case 6, 7:
		over := l()
		return g.loopOver(&g.texts, func(x string) string { return over + ".filter(" + x + ", " + b() + ")" })
	case 8:
		over := l()
		return g.loopOver(&g.maps, func(x string) string {
			return over + ".map(" + x + ", " + x + g.oneOf(".l", ".?l.orValue([])", ".n", ".m") + ")"
		})
	case 9:
		over := g.of(g.maps)
		return g.loopOver(&g.texts, func(x string) string { return over + ".map(" + x + ", " + over + "[" + x + "])" })
	case 10:
		over := g.oneOf(l(), g.of(g.maps))
		return g.loopOver(&g.texts, func(k string) string {
			return g.loopOver(&g.texts, func(v string) string {
				return over + g.oneOf(".transformList(", ".transformMap(") + k + ", " + v + ", " + t() + ")"
			})
		})
	case 11:
		return l() + g.oneOf(".reverse()", ".slice(0, 1)", ".distinct()", ".sort()", ".flatten()", ".flatten(2)")
	case 12:
		return "lists.range(" + g.oneOf("3", "10", "size("+l()+")") + ")"
	case 13:
		return "[" + l() + ", " + l() + "]" + g.oneOf("[0]", "[1]", ".flatten()")
	case 14:
		return "(" + b() + " ? " + l() + " : " + l() + ")"
	case 15:
		over := l()
		return g.loopOver(&g.texts, func(x string) string { return over + ".sortBy(" + x + ", " + t() + ")" })
	case 16:
		return "dyn([" + l() + ", {'a': " + t() + ", " + t() + ": " + l() + "}])"
	default:
		return g.of(g.lists)
	}
}

// cond returns an expression for a condition.
func (g *costs) cond(depth int) string {
	if depth <= 0 {
		return g.oneOf("true", "has(object.s)", g.of(g.texts)+" == 'a'")
	}
	t, l, b := func() string { return g.text(depth - 1) }, func() string { return g.list(depth - 1) }, func() string { return g.cond(depth - 1) }
	switch g.IntN(18) {
	case 0:
		return t() + g.oneOf(".startsWith(", ".endsWith(", ".contains(", ".contains(") + t() + ")"
	case 1:
		return t() + ".matches(" + g.oneOf("'^[a-z]+$'", "'a*b*c*'", t()) + ")"
	case 2, 3:
		return t() + g.oneOf(" == ", " != ", " < ", " >= ") + t()
	case 4:
		return g.oneOf(t()+" in "+l(), t()+" in "+g.of(g.maps), t()+" in ['a', 'b']", "'a' in "+l())
	case 5, 6, 7, 8:
		over := g.oneOf(l(), l(), g.of(g.maps))
		names := &g.texts
		switch g.IntN(4) {
		case 0:
			names = &g.maps
		case 1:
			names = &g.lists
		}
		return g.loopOver(names, func(x string) string {
			return over + g.oneOf(".all(", ".exists(", ".exists_one(") + x + ", " + b() + ")"
		})
	case 9:
		over := g.oneOf(l(), g.of(g.maps))
		return g.loopOver(&g.texts, func(k string) string {
			return g.loopOver(&g.texts, func(v string) string {
				return over + g.oneOf(".all(", ".exists(", ".existsOne(") + k + ", " + v + ", " + b() + ")"
			})
		})
	case 10:
		return g.oneOf("sets.contains(", "sets.intersects(", "sets.equivalent(") + l() + ", " + l() + ")"
	case 11:
		return l() + g.oneOf(".isSorted()", ".includes("+t()+")", ".indexOf("+t()+") > 0", ".size() > 2", ".sum() > 1")
	case 12:
		return g.oneOf("isQuantity(", "isURL(", "isIP(", "isCIDR(", "isSemver(") + t() + ")"
	case 13:
		return "(" + b() + g.oneOf(" && ", " || ") + b() + ")"
	case 14:
		return "!(" + b() + ")"
	case 15:
		return g.oneOf(l()+" == "+l(), g.of(g.maps)+" == "+g.of(g.maps), "object == oldObject", "type("+t()+") == string", "has("+g.of(g.maps)+".n)")
	case 16:
		return g.oneOf("cidr('10.0.0.0/8').containsIP("+t()+")", "format.named('dns1123Label').value().validate("+t()+").hasValue()",
			"quantity("+t()+").isGreaterThan(quantity('1'))", t()+".indexOf("+t()+") > 1", "format.dns1123Subdomain().validate("+t()+") == optional.none()")
	default:
		return t() + ".size() > 3"
	}
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
		from := source{object: rawcel.Value(parse(t, written))}
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
		text := g.oneOf(g.text(2), g.list(2))
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
		text := g.oneOf(g.cond(3), g.text(3), g.list(3))
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
