package expression_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// formula is a random condition on the fields of an object, each of which may be
// absent, and has members y and z if it is there: atoms joined by "and" and "or".
type formula struct {
	operator    string // "&&", "||" or "" for an atom
	left, right *formula
	negated     bool
	// An atom is about a field, and of that about a member, or about its presence.
	field, member int
	text          string
}

const (
	fields   = 2
	presence = -1
)

// formula makes one, with atoms written in all ways in which an expression can
// ask for presence or for size, or compare a member.
func (g *generator) formula(depth int) *formula {
	out := &formula{negated: g.IntN(2) == 0}
	if depth > 0 && g.IntN(4) > 0 {
		out.operator = g.oneOf("&&", "||")
		out.left, out.right = g.formula(depth-1), g.formula(depth-1)
		return out
	}
	out.field, out.member = g.IntN(fields), presence
	f := fmt.Sprintf("f%d", out.field)
	if g.IntN(3) > 0 {
		out.text = strings.ReplaceAll(g.oneOf(
			"has(object.F)", "object.?F.hasValue()", "'F' in object", "object[?'F'].hasValue()", "(has(object.F) ? true : false)", "object.?F.optMap(v, true).orValue(false)",
			"object.?F.orValue([]).size() > 0", "size(object.?F.orValue([])) != 0", "!(object.?F.orValue([]) == [])", "0 < object.?F.orValue([]).size()",
			"object.?F.orValue([]).exists(e, true)", "!object.?F.orValue([]).all(e, false)", "object.?F.orValue([]).map(e, 1).size() >= 1",
			"object.?F.orValue([]).exists(i, e, i == 0)", "object.?F.orValue([]).filter(e, true).size() > 0", "object.?F.orValue([]).map(e, e.y).size() > 0",
			"object.?F.orValue([])[?0].hasValue()", "variables.pF", "dyn(has(object.F))", "(has(object.F) == true)", "[has(object.F)][0]", "(object.?F.orValue(null) != null)",
			"(string(has(object.F)) == 'true')", "[?object.?F].size() == 1", "object.exists(k, k == 'F')", "(object.?F.orValue([]).transformList(i, e, i).size() > 0)",
			"(object.?F.orValue([]).size() + 1 > 1)", "(has(object.F) ? object.F : []).size() > 0",
		), "F", f)
		return out
	}
	out.member = g.IntN(2)
	out.text = strings.NewReplacer("F", f, "@", []string{"y", "z"}[out.member]).Replace(g.oneOf(
		"object.?F.orValue([]).exists(e, e.@ == 'a')", "(has(object.F) && object.F[0].@ == 'a')", "(has(object.F) ? object.F[0].@ == 'a' : false)",
		"object.?F.orValue([]).filter(e, e.@ == 'a').size() > 0", "object.?F.optMap(v, v[0].@ == 'a').orValue(false)", "('a' in object.?F.orValue([]).map(e, e.@))",
		"(has(object.F) ? object.F : []).exists(e, e.@ == 'a')",
	))
	return out
}

func (f *formula) String() string {
	text := f.text
	if f.operator != "" {
		text = "(" + f.left.String() + " " + f.operator + " " + f.right.String() + ")"
	}
	if f.negated {
		return "!(" + text + ")"
	}
	return text
}

// state has of each field whether it is there, and whether a member is "a".
type state [fields]struct {
	present bool
	members [2]bool
}

// holds evaluates it. What members come to is taken from what they are said to
// be, if they are there.
func (f *formula) holds(s state, said map[*formula]bool) bool {
	var is bool
	known, isKnown := said[f]
	switch of := s[f.field]; {
	case f.operator == "&&":
		is = f.left.holds(s, said) && f.right.holds(s, said)
	case f.operator == "||":
		is = f.left.holds(s, said) || f.right.holds(s, said)
	case f.member == presence:
		is = of.present
	case isKnown:
		is = of.present && known
	default:
		is = of.present && of.members[f.member]
	}
	return is != f.negated
}

// reading returns the atoms about members of a field.
func (f *formula) reading(field int) []*formula {
	switch {
	case f.operator != "":
		return append(f.left.reading(field), f.right.reading(field)...)
	case f.field == field && f.member != presence:
		return []*formula{f}
	default:
		return nil
	}
}

// isByPresence reports whether the presence of a field alone is wrong: without
// it the condition holds, and with it it does not, whatever the atoms about what
// is in it come to. Two atoms may contradict each other: that no value satisfies
// both is not seen.
func (f *formula) isByPresence(s state, field int) bool {
	s[field].present = false
	if !f.holds(s, nil) {
		return false
	}
	s[field].present = true
	atoms := f.reading(field)
	for bits := range 1 << len(atoms) {
		said := map[*formula]bool{}
		for i, atom := range atoms {
			said[atom] = bits>>i&1 == 1
		}
		if f.holds(s, said) {
			return false
		}
	}
	return true
}

// object returns the state as an object. What else is in a field is given too.
func (s state) object(others [fields]string) string {
	var members []string
	for i, of := range s {
		if !of.present {
			continue
		}
		value := func(is bool) string {
			if is {
				return "a"
			}
			return "b"
		}
		members = append(members, fmt.Sprintf(`"f%d": [{"y": %q, "z": %q, "w": %q}]`, i, value(of.members[0]), value(of.members[1]), others[i]))
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func randomState(r *rand.Rand) state {
	var s state
	for i := range s {
		s[i].present = r.IntN(4) > 0
		s[i].members = [2]bool{r.IntN(2) == 0, r.IntN(2) == 0}
	}
	return s
}

// checkPresence makes a rule, an object that violates it, and updates of that: one
// that is said to make nothing worse leaves what is wrong by its presence as it
// was.
func checkPresence(t *testing.T, compiler *expression.Compiler, seed uint64) (byPresence, same int) {
	t.Helper()
	g := newGenerator(seed)
	rule := g.formula(1 + g.IntN(3))
	var variables []pair
	for i := range fields {
		variables = append(variables, pair{fmt.Sprintf("pf%d", i), fmt.Sprintf("has(object.f%d)", i)})
	}
	program := compile(t, compiler, declare(t, compiler, variables...), rule.String())
	for range 8 {
		old := randomState(g.Rand)
		if rule.holds(old, nil) {
			continue
		}
		if got := evaluate(program, declare(t, compiler, variables...), withObject(t, old.object([fields]string{}))); got != "bool false" {
			t.Fatalf("seed %d: %s is %s in %s", seed, rule, got, old.object([fields]string{}))
		}
		field := g.IntN(fields)
		changed, others := old, [fields]string{}
		if g.IntN(2) == 0 {
			others[field] = "other"
		} else {
			changed[field].members[g.IntN(2)] = g.IntN(2) == 0
		}
		before, after := old.object([fields]string{}), changed.object(others)
		passes := sameIn(program.Reads(), parse(t, after), parse(t, before))
		if passes && before != after {
			same++
		}
		if before == after || !rule.isByPresence(old, field) {
			continue
		}
		if byPresence++; passes {
			t.Errorf("seed %d: %s\nfield f%d alone is wrong, and passes\nfrom %s\n  to %s", seed, rule, field, before, after)
		}
	}
	return byPresence, same
}

func TestWhatIsWrongByItsPresenceDoesNotChange(t *testing.T) {
	t.Parallel()
	seeds := race.Cases(1_000)
	compiler := sharedCompiler()
	byPresence, same := 0, 0
	for seed := range uint64(seeds) {
		b, s := checkPresence(t, compiler, seed)
		byPresence, same = byPresence+b, same+s
		if t.Failed() && seed > 20 {
			break
		}
	}
	t.Logf("%d changes of what is wrong by its presence, %d other changes pass", byPresence, same)
	if byPresence < seeds/8 || same < seeds/20 {
		t.Errorf("%d changes of what is wrong by its presence, %d other changes pass: too few", byPresence, same)
	}
}

func FuzzWhatIsWrongByItsPresenceDoesNotChange(f *testing.F) {
	compiler := sharedCompiler()
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkPresence(t, compiler, seed) })
}
