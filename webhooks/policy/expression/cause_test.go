package expression_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestSameInOfPresence has values that a rule asks the presence or size of: where
// that may be what is wrong, another value in their place is a change.
func TestSameInOfPresence(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const (
		list, otherList, turned, fewer = `{"x": ["a", "b"]}`, `{"x": ["a", "c"]}`, `{"x": ["b", "a"]}`, `{"x": ["b"]}`
		text, otherText                = `{"x": "a"}`, `{"x": "b"}`
		object, otherObject            = `{"x": {"y": 1, "z": 1}}`, `{"x": {"y": 1, "z": 2}}`
		inner, otherInner              = `{"c": [{"i": "a", "x": {"y": 1}, "z": 1}]}`, `{"c": [{"i": "a", "x": {"y": 2}, "z": 1}]}`
		beside                         = `{"c": [{"i": "a", "x": {"y": 1}, "z": 2}]}`
		mixed, otherMixed              = `{"n": "bad", "x": {"y": 1, "z": 1}}`, `{"n": "bad", "x": {"y": 1, "z": 2}}`
	)
	for name, test := range map[string]struct {
		variables   []pair
		expression  string
		old, object string
		same        bool
	}{
		// Forbidden by presence.
		"has, of a list":                       {nil, "!has(object.x)", list, otherList, false},
		"has, of a list in another order":      {nil, "!has(object.x)", list, turned, true},
		"has, of a list with one gone":         {nil, "!has(object.x)", list, fewer, false},
		"has, of a string":                     {nil, "!has(object.x)", text, otherText, false},
		"has, of a number":                     {nil, "!has(object.x)", `{"x": 1}`, `{"x": 2}`, false},
		"has, of a bool":                       {nil, "!has(object.x)", `{"x": true}`, `{"x": false}`, false},
		"has, of null":                         {nil, "!has(object.x)", `{"x": null}`, `{"x": 1}`, false},
		"has, of an object":                    {nil, "!has(object.x)", object, otherObject, false},
		"has, of an object with another order": {nil, "!has(object.x)", object, `{"x": {"z": 1, "y": 1}}`, true},
		"has, by an optional":                  {nil, "!object.?x.hasValue()", text, otherText, false},
		"has, of an optional":                  {nil, "!has(object.?x.y)", object, `{"x": {"y": 2, "z": 1}}`, false},
		"null":                                 {nil, "object.?x.orValue(null) == null", text, otherText, false},
		"null, mirrored":                       {nil, "!(null != object.x)", text, otherText, false},
		"none":                                 {nil, "object.?x == optional.none()", text, otherText, false},
		"in":                                   {nil, "!('x' in object)", text, otherText, false},
		"in, of what a variable is":            {[]pair{{"o", "object"}}, "!('x' in variables.o)", text, otherText, false},
		"the name of a member":                 {nil, "object.all(k, k != 'x')", text, otherText, false},
		"the name of a member, filtered":       {nil, "object.filter(k, k == 'x').size() == 0", text, otherText, false},
		"in, of names":                         {nil, "!('x' in object.map(k, k))", text, otherText, false},
		"a type":                               {nil, "type(object.x) != list", list, otherList, false},
		"has, through a variable":              {[]pair{{"has", "has(object.x)"}}, "!variables.has", text, otherText, false},
		"has, through dyn":                     {nil, "!dyn(has(object.x))", text, otherText, false},
		"has, as a value":                      {nil, "has(object.x) == false", text, otherText, false},
		"has, as a text":                       {nil, "string(has(object.x)) == 'false'", text, otherText, false},
		"has, chosen":                          {nil, "has(object.x) ? false : true", text, otherText, false},
		"has, chosen for a text":               {nil, "(has(object.x) ? 'a' : 'b') == 'b'", text, otherText, false},
		"has, in a list":                       {nil, "[has(object.x)].all(h, !h)", text, otherText, false},
		"has, in a map":                        {nil, "{'h': has(object.x)}.h == false", text, otherText, false},
		"has, in a condition of a list":        {nil, "[1].filter(i, has(object.x)).size() == 0", text, otherText, false},
		"has, by optMap":                       {nil, "object.?x.optMap(v, false).orValue(true)", text, otherText, false},
		"has, by optFlatMap":                   {nil, "!object.?x.optFlatMap(v, optional.of(1)).hasValue()", text, otherText, false},
		"has, by an optional element":          {nil, "[?object.?x].size() == 0", text, otherText, false},
		"has, by an optional element of a map": {nil, "{?'x': object.?x}.size() == 0", text, otherText, false},
		"or":                                   {nil, "!object.?w.or(object.?x).hasValue()", text, otherText, false},
		"another value if it is absent":        {nil, "object.?x.orValue('good') == 'good'", text, otherText, false},

		// By size.
		"empty":                          {nil, "object.x == []", list, otherList, false},
		"empty, one gone":                {nil, "object.x == []", list, fewer, true},
		"empty, or absent":               {nil, "object.?x.orValue([]) == []", list, otherList, false},
		"an empty map":                   {nil, "object.x == {}", object, otherObject, false},
		"size 0":                         {nil, "object.x.size() == 0", list, otherList, false},
		"size 0, turned":                 {nil, "object.x.size() == 0", list, turned, true},
		"size 0, one gone":               {nil, "object.x.size() == 0", list, fewer, true},
		"size, less":                     {nil, "size(object.x) < 2", list, otherList, false},
		"size, more":                     {nil, "object.x.size() >= 3", list, otherList, false},
		"size, of a string":              {nil, "object.x.size() > 1", text, otherText, false},
		"size, of a map":                 {nil, "object.x.size() < 2", object, otherObject, false},
		"size, as a text":                {nil, "string(object.x.size()) == '0'", list, otherList, false},
		"size, summed":                   {nil, "object.x.size() + 1 == 1", list, otherList, false},
		"size, of a sum":                 {nil, "(object.x + object.?w.orValue([])).size() == 0", list, otherList, false},
		"size, of what is mapped":        {nil, "object.x.map(e, 1).size() == 0", list, otherList, false},
		"sum, of what is mapped":         {nil, "object.x.map(e, 1).sum() == 0", list, otherList, false},
		"size, of a range":               {nil, "lists.range(object.x.size()).size() == 0", list, otherList, false},
		"size, through a variable":       {[]pair{{"n", "object.x.size()"}}, "variables.n == 0", list, otherList, false},
		"size of a filter that says yes": {nil, "object.x.filter(e, true).size() == 0", list, otherList, false},
		"all, and none may be":           {nil, "object.x.all(e, false)", list, otherList, false},
		"exists, and none may be":        {nil, "!object.x.exists(e, true)", list, otherList, false},
		"exists_one":                     {nil, "object.x.exists_one(e, true)", list, otherList, false},
		"all, by something else":         {nil, "object.x.all(e, object.n == 1)", `{"n": 2, "x": ["a"]}`, `{"n": 2, "x": ["b"]}`, false},
		"all, by index":                  {nil, "object.x.all(i, e, i < 1)", list, otherList, false},
		"all, by key":                    {nil, "object.x.all(k, e, k == 'w')", object, otherObject, false},
		"transformList":                  {nil, "object.x.transformList(i, e, i).size() == 0", list, otherList, false},
		"transformMap":                   {nil, "object.x.transformMap(i, e, i).size() == 0", list, otherList, false},
		"the first":                      {nil, "!object.x.first().hasValue()", list, otherList, false},
		"the first, by index":            {nil, "!object.x[?0].hasValue()", list, `{"x": ["c", "b"]}`, false},
		"a size beside what is read":     {nil, "object.c.size() == 0 && object.c.all(c, c.i == 'a')", inner, beside, false},
		"none beside what is read":       {nil, "object.c.all(c, false) && object.c.all(c, c.i == 'a')", inner, beside, false},
		"mapped, beside what is read":    {nil, "object.c.map(c, c.i).size() == 0 && object.c.all(c, c.i == 'a')", inner, beside, false},

		// What is missing has no content.
		"a member that must be":           {nil, "object.x.all(e, e.size() < 1) && has(object.w)", `{"w": 1, "x": ["a"]}`, `{"w": 2, "x": ["a"]}`, true},
		"an optional that must be":        {nil, "object.n == 'good' && object.?x.hasValue()", mixed, otherMixed, true},
		"a list that must not be empty":   {nil, "object.n == 'good' && object.x.size() > 0", `{"n": "bad", "x": ["a"]}`, `{"n": "bad", "x": ["b"]}`, true},
		"a member of an element":          {nil, "object.c.all(c, has(c.p))", inner, otherInner, true},
		"a member of an element, listed":  {nil, "object.c.filter(c, !has(c.p)).size() == 0", inner, otherInner, true},
		"a name that must be":             {nil, "'w' in object.x", object, otherObject, true},
		"a string that must be":           {nil, "'w' in object.x", list, otherList, false},
		"a string that must be, is there": {nil, "'a' in object.x && object.n == 1", `{"n": 2, "x": ["a", "b"]}`, `{"n": 2, "x": ["a", "c"]}`, true},
		"one of two strings must be":      {nil, "'w' in object.x || 'v' in object.x", list, otherList, false},

		// A test of presence before what is read is none by which it is wrong.
		"a guard":                             {nil, "!has(object.x) || object.x.y == 2", object, otherObject, true},
		"a guard, and":                        {nil, "!(has(object.x) && object.x.y == 1)", object, otherObject, true},
		"a guard, chosen":                     {nil, "has(object.x) ? object.x.y == 2 : true", object, otherObject, true},
		"a guard, chosen for a value":         {nil, "(has(object.x) ? object.x.y : 2) == 2", object, otherObject, true},
		"a guard, chosen for an object":       {nil, "(has(object.x) ? object.x : {'y': 2}).y == 2", object, otherObject, true},
		"a guard by null":                     {nil, "object.x == null || object.x.y == 2", object, otherObject, true},
		"a guard by an optional":              {nil, "object.?x.optMap(x, x.y == 2).orValue(true)", object, otherObject, true},
		"a guard of the object":               {nil, "object == null || object.x.y == 2", object, otherObject, true},
		"a guard of labels":                   {nil, "has(object.x) && 'w' in object.x", object, otherObject, true},
		"a guard of a list":                   {nil, "!has(object.c) || object.c.size() == 0 || object.c.all(c, c.i == 'b')", inner, beside, true},
		"a guard of an element":               {nil, "object.c.all(c, !has(c.x) || c.x.y == 2)", inner, `{"c": [{"i": "a", "x": {"y": 1, "v": 1}, "z": 1}]}`, true},
		"a guard, filtered":                   {nil, "object.c.filter(c, has(c.x) && c.x.y == 1).size() == 0", inner, `{"c": [{"i": "a", "x": {"y": 1, "v": 1}, "z": 1}]}`, true},
		"a guard, filtered before":            {nil, "object.c.filter(c, has(c.x)).all(c, c.x.y == 2)", inner, `{"c": [{"i": "a", "x": {"y": 1, "v": 1}, "z": 1}]}`, true},
		"two guards":                          {nil, "!has(object.x) || !has(object.x.y) || object.x.y == 2", object, otherObject, true},
		"no guard, as another rule":           {nil, "(!has(object.x) || object.n == 'good') && (!has(object.x) || object.x.y == 1)", mixed, otherMixed, false},
		"no guard, as it need not be read":    {nil, "!has(object.x) || object.n == 'good' && object.x.y == 1", mixed, otherMixed, false},
		"no guard, as one branch reads it":    {nil, "has(object.x) ? (object.n == 'good' ? object.x.y == 1 : false) : true", mixed, otherMixed, false},
		"no guard, by optMap":                 {nil, "object.?x.optMap(x, object.n == 'good' || false).orValue(true)", mixed, otherMixed, false},
		"no guard, as it is of another value": {nil, "!has(object.x) || object.w.y == 1", `{"w": {"y": 2}, "x": 1}`, `{"w": {"y": 2}, "x": 2}`, false},
		"no guard of an element":              {nil, "object.c.all(c, !has(c.x) || object.n == 1)", `{"n": 2, "c": [{"x": 1}]}`, `{"n": 2, "c": [{"x": 2}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := compile(t, compiler, declare(t, compiler, test.variables...), test.expression).Reads()
			if got := sameIn(reads, parse(t, test.object), parse(t, test.old)); got != test.same {
				t.Errorf("%s, from %s to %s: same = %v", test.expression, test.old, test.object, got)
			}
			if !sameIn(reads, parse(t, test.old), parse(t, test.old)) {
				t.Errorf("%s: %s is not the same as itself", test.expression, test.old)
			}
		})
	}
}

// TestSameInOfConditions has what a match condition looks at, which a violation
// rests on too.
func TestSameInOfConditions(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for name, test := range map[string]struct {
		conditions  []string
		rule        string
		old, object string
		same        bool
	}{
		"presence":            {[]string{"has(object.x)"}, "object.n == 1", `{"n": 2, "x": 1}`, `{"n": 2, "x": 2}`, false},
		"presence, a guard":   {[]string{"has(object.x)"}, "object.x.y == 1", `{"x": {"y": 2, "z": 1}}`, `{"x": {"y": 2, "z": 2}}`, true},
		"absence":             {[]string{"!has(object.x)"}, "object.n == 1", `{"n": 2, "z": 1}`, `{"n": 2, "z": 2}`, true},
		"a value":             {[]string{"object.x != 1"}, "object.n == 1", `{"n": 2, "x": 2}`, `{"n": 2, "x": 3}`, false},
		"one of two":          {[]string{"has(object.x)", "has(object.n)"}, "object.n == 1", `{"n": 2, "x": 1}`, `{"n": 2, "x": 2}`, false},
		"what is not in them": {[]string{"has(object.x)", "has(object.n)"}, "object.n == 1", `{"n": 2, "x": 1}`, `{"n": 2, "x": 1, "z": 1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var declarations expression.Declarations
			for _, text := range test.conditions {
				condition, err := compiler.CompileCondition(text, expression.Declarations{})
				if err != nil {
					t.Fatal(err)
				}
				declarations.Conditions = append(declarations.Conditions, condition)
			}
			declarations.Reads = true
			program, err := compiler.Compile(test.rule, declarations, cel.BoolType)
			if err != nil {
				t.Fatal(err)
			}
			if got := sameIn(program.Reads(), parse(t, test.object), parse(t, test.old)); got != test.same {
				t.Errorf("%q and %s, from %s to %s: same = %v", test.conditions, test.rule, test.old, test.object, got)
			}
		})
	}
}

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
