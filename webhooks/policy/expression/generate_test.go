package expression_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes objects and expressions about them.
type generator struct {
	*rand.Rand
	// scope are the names that comprehensions have declared.
	scope []string
	// variables is how many variables may be named: v0 to the one before.
	variables int
	// declared are their expressions.
	declared []string
	// goesThrough is true once there may be an expression that goes through the
	// members of a map.
	goesThrough bool
}

func newGenerator(seed uint64) *generator { return &generator{Rand: rand.New(rand.NewPCG(seed, 0))} }

func (g *generator) oneOf(texts ...string) string { return texts[g.IntN(len(texts))] }

func (g *generator) name() string { return g.oneOf("a", "b", "c") }

// tree returns a random value.
func (g *generator) tree(depth int) any {
	switch n := g.IntN(14); {
	case n < 3 && depth > 0:
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.tree(depth-1))
		}
		return list
	case n < 8 && depth > 0:
		object := map[string]any{}
		for range g.IntN(4) {
			object[g.name()] = g.tree(depth - 1)
		}
		return object
	case n == 8:
		return nil
	case n == 9:
		return g.IntN(2) == 0
	case n == 10:
		return plain(g.oneOf("1.0", "1.5"))
	case n == 11:
		return plain(g.oneOf("0", "1", "2", "9223372036854775807"))
	default:
		return g.oneOf("", "a", "b", "c")
	}
}

// object returns a random object.
func (g *generator) object() map[string]any {
	object := map[string]any{}
	for _, name := range []string{"a", "b", "c"} {
		if g.IntN(5) > 0 {
			object[name] = g.tree(3)
		}
	}
	return object
}

// plain is a number as it is written.
type plain string

// text returns the value's JSON, with members in random order if nothing goes through
// them.
func (g *generator) text(v any) string {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if !g.goesThrough {
			g.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		}
		members := make([]string, len(names))
		for i, name := range names {
			members[i] = fmt.Sprintf("%q%s:%s", name, g.oneOf("", " "), g.text(v[name]))
		}
		return "{" + strings.Join(members, ",") + "}"
	case []any:
		elements := make([]string, len(v))
		for i := range v {
			elements[i] = g.text(v[i])
		}
		return "[" + strings.Join(elements, ",") + "]"
	case string:
		if v == "a" {
			return g.oneOf(`"a"`, `"\u0061"`)
		}
		return fmt.Sprintf("%q", v)
	case plain:
		return string(v)
	case nil:
		return "null"
	default:
		return fmt.Sprint(v)
	}
}

// mutated returns the value after a change that adds or replaces. Only with remove it
// may take members of maps away.
func (g *generator) mutated(v any, remove bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		names := slices.Sorted(maps.Keys(v))
		switch {
		case len(names) > 0 && g.IntN(5) > 0:
			name := names[g.IntN(len(names))]
			out[name] = g.mutated(v[name], remove)
		case len(names) > 0 && remove && g.IntN(2) == 0:
			delete(out, names[g.IntN(len(names))])
		default:
			name := g.name()
			out[name] = g.instead(v[name])
		}
		return out
	case []any:
		out := slices.Clone(v)
		if len(out) > 0 && g.IntN(4) > 0 {
			i := g.IntN(len(out))
			if out[i] = g.mutated(v[i], remove); g.IntN(4) == 0 {
				out[i] = g.instead(v[i])
			}
			return out
		}
		return slices.Insert(out, g.IntN(len(out)+1), g.tree(1))
	default:
		return g.tree(2)
	}
}

// instead is another value: not of the same kind if something of the value could
// be gone.
func (g *generator) instead(v any) any {
	other := g.tree(2)
	switch v.(type) {
	case map[string]any:
		if _, same := other.(map[string]any); same {
			return g.name()
		}
	case []any:
		if _, same := other.([]any); same {
			return g.name()
		}
	}
	return other
}

// less returns a value of which something is taken away, or that is put in another
// order, and whether something was taken and whether something was moved.
func (g *generator) less(v any) (out any, taken, moved bool) {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if len(names) == 0 {
			return v, false, false
		}
		name, changed := names[g.IntN(len(names))], maps.Clone(v)
		if g.IntN(4) == 0 {
			delete(changed, name)
			return changed, true, false
		}
		changed[name], taken, moved = g.less(v[name])
		return changed, taken, moved
	case []any:
		changed := slices.Clone(v)
		switch n := g.IntN(6); {
		case len(v) == 0:
			return v, false, false
		case n < 2:
			i := g.IntN(len(v))
			return slices.Delete(changed, i, i+1), true, false
		case n == 2:
			g.Shuffle(len(changed), func(i, k int) { changed[i], changed[k] = changed[k], changed[i] })
			return changed, false, true
		default:
			i := g.IntN(len(v))
			changed[i], taken, moved = g.less(v[i])
			return changed, taken, moved
		}
	default:
		return v, false, false
	}
}

// within generates with names in scope.
func (g *generator) within(names []string, generate func() string) string {
	outer := len(g.scope)
	g.scope = append(g.scope, names...)
	defer func() { g.scope = g.scope[:outer] }()
	return generate()
}

func (g *generator) iterator() string { return g.oneOf("x", "x", "y", "object", "variables") }

// start returns a name of a value.
func (g *generator) start() string {
	if len(g.scope) > 0 && g.IntN(2) == 0 {
		return g.scope[g.IntN(len(g.scope))]
	}
	if g.variables > 0 && g.IntN(3) == 0 {
		name := fmt.Sprintf("v%d", g.IntN(g.variables))
		return g.oneOf("variables.", "variables.", ".variables.", "dyn(variables).") + name
	}
	return g.oneOf("object", "object", "object", ".object")
}

// value returns an expression for any value, and of it a path most of the time.
func (g *generator) value(depth int) string {
	if depth <= 0 {
		return g.oneOf(g.start(), g.start(), "dyn(1)", "dyn(1.0)", "dyn('a')", "dyn(null)", "dyn([])", "dyn({})")
	}
	v := func() string { return g.value(depth - 1) }
	switch g.IntN(32) {
	case 0, 1, 2, 3, 4, 5, 6:
		return v() + "." + g.name()
	case 7, 8, 9:
		return v() + ".?" + g.name()
	case 10:
		return v() + "['" + g.name() + "']"
	case 11:
		return v() + "[?'" + g.name() + "']"
	case 12:
		g.goesThrough = true
		return v() + "[" + g.oneOf("0", "?0", "1", v(), "?"+v()) + "]"
	case 13, 14, 15:
		return v() + ".?" + g.name() + ".orValue(" + g.oneOf(v(), "{}", "[]", "{}", "[]", "''", "dyn(0)") + ")"
	case 16:
		return v() + ".?" + g.name() + "." + g.oneOf("value()", "or("+v()+".?"+g.name()+")")
	case 17:
		return "dyn([" + v() + ", " + v() + "])"
	case 18:
		return "dyn([?" + v() + ".?" + g.name() + "])"
	case 19:
		return "dyn({'" + g.name() + "': " + v() + "})"
	case 20:
		return "(" + v() + " + " + v() + ")"
	case 21:
		return "(" + g.bool(depth-1) + " ? " + v() + " : " + v() + ")"
	case 22, 23:
		g.goesThrough = true
		x := g.iterator()
		over := v()
		return g.within([]string{x}, func() string { return over + ".filter(" + x + ", " + g.bool(depth-1) + ")" })
	case 24, 25:
		g.goesThrough = true
		x := g.iterator()
		over := v()
		return g.within([]string{x}, func() string { return over + ".map(" + x + ", " + v() + ")" })
	case 26:
		g.goesThrough = true
		x := g.iterator()
		over := v()
		return g.within([]string{"i", x}, func() string {
			return over + g.oneOf(".transformList", ".transformMap") + "(i, " + x + ", " + v() + ")"
		})
	case 27, 28:
		x := g.iterator()
		init := v()
		return g.within([]string{x}, func() string { return "[" + init + "].map(" + x + ", " + v() + ")[0]" })
	case 29:
		x := g.iterator()
		over := v()
		return g.within([]string{x}, func() string {
			return over + ".?" + g.name() + g.oneOf(".optMap(", ".optFlatMap(") + x + ", " + v() + ")"
		})
	case 30:
		return "dyn(" + v() + ")"
	default:
		return g.start()
	}
}

// bool returns an expression for a condition.
func (g *generator) bool(depth int) string {
	if depth <= 0 {
		return g.oneOf("true", "false", "has(object."+g.name()+")")
	}
	v := func() string { return g.value(depth - 1) }
	b := func() string { return g.bool(depth - 1) }
	switch g.IntN(20) {
	case 0, 1, 2:
		return "has(" + v() + g.oneOf(".", ".", ".?"+g.name()+".") + g.name() + ")"
	case 3, 4:
		return v() + g.oneOf(" == ", " != ") + v()
	case 5:
		return v() + g.oneOf(" == null", " != null")
	case 6, 7:
		return "'" + g.name() + "' in " + v()
	case 8:
		return v() + " in " + v()
	case 9:
		return v() + ".?" + g.name() + ".hasValue()"
	case 10, 11:
		g.goesThrough = true
		return g.oneOf("size("+v()+")", v()+".size()") + g.oneOf(" == 1", " == 0", " > 1")
	case 12, 13, 14:
		g.goesThrough = true
		x := g.iterator()
		over := v()
		return g.within([]string{x}, func() string {
			return over + g.oneOf(".exists(", ".all(", ".exists_one(") + x + ", " + b() + ")"
		})
	case 15:
		g.goesThrough = true
		x := g.iterator()
		over := v()
		return g.within([]string{"i", x}, func() string { return over + g.oneOf(".exists(i, ", ".all(i, ") + x + ", " + b() + ")" })
	case 16, 17:
		return "(" + b() + g.oneOf(" && ", " || ") + b() + ")"
	case 18:
		return "!(" + b() + ")"
	default:
		return "type(" + v() + ") == " + g.oneOf("int", "string", "list", "map")
	}
}
