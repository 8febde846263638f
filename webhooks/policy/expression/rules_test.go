package expression_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// rules makes rules as people write them, about lists of items: an item has a
// name n, a number k, a list l of names, a map m of names and a list c of items,
// and any of them may be missing.
type rules struct {
	*generator

	items, texts []string
	names        int
}

func (g *rules) item(depth int) map[string]any {
	item := map[string]any{}
	for _, name := range []string{"c", "k", "l", "m", "n"} {
		if g.IntN(6) == 0 {
			continue
		}
		switch name {
		case "c":
			if depth > 0 {
				item[name] = g.list(func() any { return g.item(depth - 1) })
			}
		case "k":
			item[name] = plain(g.oneOf("0", "1", "2"))
		case "l":
			item[name] = g.list(func() any { return g.name() })
		case "m":
			item[name] = map[string]any{g.name(): g.name(), g.name(): g.name()}
		default:
			item[name] = g.name()
		}
	}
	return item
}

func (g *rules) list(element func() any) []any {
	list := []any{}
	for range g.IntN(4) {
		list = append(list, element())
	}
	return list
}

// fresh returns a name that no loop has.
func (g *rules) fresh() string {
	g.names++
	return fmt.Sprintf("x%d", g.names)
}

func (g *rules) pick(from []string) string { return from[g.IntN(len(from))] }

// with generates with an item, a text or a map in scope.
func with(scope *[]string, name string, generate func() string) string {
	outer := len(*scope)
	*scope = append(*scope, name)
	defer func() { *scope = (*scope)[:outer] }()
	return generate()
}

// itemList returns an expression for a list of items.
func (g *rules) itemList(depth int) string {
	switch n := g.IntN(12); {
	case n < 6 || depth <= 0:
		of := g.pick(g.items)
		return g.oneOf(of+".c", of+".?c.orValue([])", "object.c", "object.?d.orValue([])")
	case n == 6:
		return "(" + g.itemList(depth-1) + " + " + g.itemList(depth-1) + ")"
	case n < 10:
		x, over := g.fresh(), g.itemList(depth-1)
		return with(&g.items, x, func() string { return over + ".filter(" + x + ", " + g.condition(depth-1) + ")" })
	case n == 10 && g.variables > 0:
		return fmt.Sprintf("variables.v%d", g.IntN(g.variables))
	default:
		return "(" + g.condition(depth-1) + " ? " + g.itemList(depth-1) + " : " + g.itemList(depth-1) + ")"
	}
}

// textList returns an expression for a list of texts.
func (g *rules) textList(depth int) string {
	switch n := g.IntN(6); {
	case n < 3 || depth <= 0:
		of := g.pick(g.items)
		return g.oneOf(of+".l", of+".?l.orValue([])")
	case n == 3:
		x, over := g.fresh(), g.textList(depth-1)
		return with(&g.texts, x, func() string { return over + ".filter(" + x + ", " + g.condition(depth-1) + ")" })
	case n == 4:
		x, over := g.fresh(), g.itemList(depth-1)
		return over + ".map(" + x + ", " + x + ".n)"
	default:
		x, over := g.fresh(), g.itemList(depth-1)
		return with(&g.items, x, func() string {
			return over + ".map(" + x + ", " + g.condition(depth-1) + ", " + x + ".?n.orValue('a'))"
		})
	}
}

func (g *rules) mapOf() string { return g.pick(g.items) + g.oneOf(".m", ".m", ".?m.orValue({})") }

// sized compares the size of a list, to any of the sides.
func (g *rules) sized(list string) string {
	if g.IntN(3) == 0 {
		return g.oneOf(list+".size() == 0", "size("+list+") < 1", "!("+list+".size() > 0)")
	}
	size, number := g.oneOf("size("+list+")", list+".size()"), g.oneOf("0", "0", "1", "1", "2", "-1", "object.k")
	if g.IntN(3) == 0 {
		size, number = number, size
	}
	return size + g.oneOf(" == ", " == ", " != ", " < ", " <= ", " <= ", " > ", " >= ") + number
}

// loop asks something of all elements, of one, or of those that are left.
func (g *rules) loop(depth int) string {
	macro := g.oneOf(".all(", ".all(", ".exists(", ".exists_one(")
	x := g.fresh()
	switch g.IntN(7) {
	case 0, 1, 2:
		over := g.itemList(depth - 1)
		return with(&g.items, x, func() string { return over + macro + x + ", " + g.condition(depth-1) + ")" })
	case 3:
		over := g.textList(depth - 1)
		return with(&g.texts, x, func() string { return over + macro + x + ", " + g.condition(depth-1) + ")" })
	case 4:
		over := g.mapOf()
		return with(&g.texts, x, func() string { return over + macro + x + ", " + g.condition(depth-1) + ")" })
	case 5:
		over := g.mapOf()
		return over + macro + x + ", " + over + "[" + x + "]" + g.oneOf(" == '", " != '") + g.name() + "')"
	default:
		macro = strings.ReplaceAll(macro, "exists_one", "existsOne")
		i := g.fresh()
		if g.IntN(2) == 0 {
			over := g.mapOf()
			return with(&g.texts, x, func() string {
				return over + macro + i + ", " + x + ", " + i + " == 'a' || " + g.condition(depth-1) + ")"
			})
		}
		over := g.itemList(depth - 1)
		return with(&g.items, x, func() string {
			return over + macro + i + ", " + x + ", " + i + " == 0 || " + g.condition(depth-1) + ")"
		})
	}
}

// condition returns a rule, or a part of one.
func (g *rules) condition(depth int) string {
	n := g.IntN(20)
	switch {
	case depth <= 0 || n < 3:
		if len(g.texts) > 0 && g.IntN(2) == 0 {
			return g.pick(g.texts) + g.oneOf(" == '", " != '") + g.name() + "'"
		}
		x := g.pick(g.items)
		return g.oneOf(x+".n == '"+g.name()+"'", x+".n != '"+g.name()+"'", x+".k > 0", "has("+x+".n)", "!has("+x+".m."+g.name()+")", "'"+g.name()+"' in "+x+".l", x+".?k.orValue(0) < 2")
	case n < 8:
		return g.loop(depth)
	case n < 11:
		return g.sized(g.oneOf(g.itemList(depth-1), g.textList(depth-1), g.mapOf()))
	case n == 11:
		return g.oneOf(g.itemList(depth-1)+" == []", "[] == "+g.textList(depth-1), g.textList(depth-1)+" != []", g.mapOf()+" == {}")
	case n == 12:
		list := g.textList(depth - 1)
		return g.oneOf(list+"[0] == 'a'", list+".join(',').contains('a')", list+".isSorted()", list+".indexOf('b') == 1", list+" == ['a']", "'a' in "+list)
	case n < 15:
		return "(" + g.condition(depth-1) + g.oneOf(" && ", " || ") + g.condition(depth-1) + ")"
	case n < 18:
		return "!(" + g.condition(depth-1) + ")"
	case n == 18:
		return "(" + g.condition(depth-1) + " ? " + g.condition(depth-1) + " : " + g.condition(depth-1) + ")"
	default:
		return g.oneOf(g.condition(depth-1)+" == true", "dyn("+g.condition(depth-1)+")", g.mapOf()+"["+g.textList(depth-1)+"[0]] == 'a'")
	}
}

// checkLess makes a rule of several parts and an object from which it takes
// something, or in which it moves something: where the rule is said to see the
// same, no part that was true is not, and where nothing is taken every part comes
// to the same.
func checkLess(t *testing.T, compiler *expression.Compiler, seed uint64) (compiled, taken, moved int) {
	t.Helper()
	g := &rules{generator: newGenerator(seed), items: []string{"object"}}
	variables := expression.NewVariables()
	for i := range g.IntN(3) {
		text := g.itemList(2)
		if err := compiler.Declare(fmt.Sprintf("v%d", i), text, expression.Declarations{Variables: variables}); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		g.variables, g.declared = i+1, append(g.declared, text)
	}
	var parts []*expression.Program
	texts := make([]string, 1+g.IntN(2))
	for i := range texts {
		texts[i] = g.condition(3)
		program, err := tryCompile(compiler, variables, texts[i])
		if err != nil {
			return 0, 0, 0
		}
		parts = append(parts, program)
	}
	rule := compile(t, compiler, variables, strings.Join(texts, " && "))
	for range 6 {
		v := g.item(2)
		v["d"] = g.list(func() any { return g.item(1) })
		before := g.text(v)
		was := make([]string, len(parts))
		for i, part := range parts {
			was[i] = evaluate(part, variables, withObject(t, before))
		}
		for range 10 {
			var out any = v
			isTaken, isMoved := false, false
			for range 1 + g.IntN(2) {
				var t, m bool
				out, t, m = g.less(out)
				isTaken, isMoved = isTaken || t, isMoved || m
			}
			object := g.text(out)
			if object == before || !sameIn(rule.Reads(), parse(t, object), parse(t, before)) {
				continue
			}
			if isTaken {
				taken++
			} else if isMoved {
				moved++
			}
			for i, part := range parts {
				is := evaluate(part, variables, withObject(t, object))
				if worse(was[i], is, isTaken) {
					t.Errorf("seed %d: %s\nof %s\nwith variables %q\nin %s is %s\nin %s is %s", seed, part.Text(), rule.Text(), g.declared, before, was[i], object, is)
				}
			}
		}
	}
	return 1, taken, moved
}

func TestWhatWasTrueStaysTrue(t *testing.T) {
	t.Parallel()
	seeds := race.Cases(600)
	compiler := sharedCompiler()
	compiled, taken, moved := 0, 0, 0
	for seed := range uint64(seeds) {
		c, n, m := checkLess(t, compiler, seed)
		compiled, taken, moved = compiled+c, taken+n, moved+m
		if t.Failed() {
			break
		}
	}
	t.Logf("%d of %d rules compile; of the changes that they do not see, %d take something and %d move something", compiled, seeds, taken, moved)
	if !t.Failed() && (compiled < seeds*3/4 || taken < compiled || moved < compiled) {
		t.Error("too few")
	}
}

func FuzzWhatWasTrueStaysTrue(f *testing.F) {
	compiler := sharedCompiler()
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkLess(t, compiler, seed) })
}
