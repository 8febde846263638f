package expression_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// bounded returns an expression of which it can be said what it costs at most: a text,
// a number, a condition or something that is not known.
func (g *generator) bounded(depth int) string {
	v := func() string { return g.bounded(depth - 1) }
	if depth <= 0 {
		return g.oneOf("object."+g.name(), "object."+g.name(), "oldObject", "object", "'"+strings.Repeat("x", g.IntN(30))+"'", "1", "[]", "{}")
	}
	switch g.IntN(16) {
	case 0, 1, 2:
		return "(" + v() + " + " + v() + ")"
	case 3:
		return "(" + v() + " == " + v() + " ? " + v() + " : " + v() + ")"
	case 4:
		return "(" + v() + g.oneOf(" == ", " != ") + v() + g.oneOf(" && ", " || ") + v() + g.oneOf(" == ", " != ") + v() + ")"
	case 5:
		return "string(" + v() + ")"
	case 6:
		return "string(" + v() + ")" + g.oneOf(".startsWith(", ".endsWith(") + "string(" + v() + "))"
	case 7:
		return "size(" + v() + ")"
	case 8:
		return v() + ".?" + g.name() + ".orValue(" + v() + ")"
	case 9:
		return v() + ".?" + g.name() + ".hasValue()"
	case 10:
		return "!(" + v() + " == " + v() + ")"
	case 11:
		return g.oneOf("[", "[") + v() + ", " + v() + "]"
	case 12:
		return "{'a': " + v() + ", 'b': " + v() + "}"
	case 13:
		return "has(" + v() + "." + g.name() + ")"
	case 14:
		return v() + "[" + g.oneOf("0", "'a'", "?0", "?'b'") + "]"
	default:
		return "int(" + v() + ")"
	}
}

// checkMostCost holds that an expression does not cost more than it is said to.
func checkMostCost(t *testing.T, compiler *expression.Compiler, seed uint64) (tight float64) {
	t.Helper()
	g := newGenerator(seed)
	program, err := tryCompile(compiler, nil, g.bounded(g.IntN(6)))
	if err != nil {
		return 0
	}
	for range 4 {
		object := g.object()
		for _, name := range []string{"a", "b", "c"} {
			if g.IntN(2) == 0 {
				object[name] = strings.Repeat(g.name(), g.IntN(1+g.IntN(3000)))
			}
		}
		text := g.text(object)
		from := withObject(t, text)
		from.oldObject = from.object
		// What it looks at twice may be put together.
		most, bounded := program.MostCost(2 * len(text))
		if !bounded {
			continue
		}
		var input expression.Input
		input.Reset(from, nil, nil)
		if _, cost, _ := input.Phase(math.MaxInt64/2).Eval(context.Background(), program); cost > most {
			t.Errorf("seed %d: %s costs %d in %.200s, and at most %d", seed, program.Text(), cost, text, most)
		} else {
			tight = max(tight, float64(cost)/float64(most))
		}
		if most, _ := program.MostCost(0); len(text) < 20 && input.Spent > most && !strings.Contains(program.Text(), "bject") {
			t.Errorf("seed %d: %s costs %d, and at most %d", seed, program.Text(), input.Spent, most)
		}
	}
	return tight
}

func TestMostCost(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	n, seeds := 0, race.Cases(1000)
	for seed := range uint64(seeds) {
		if checkMostCost(t, compiler, seed) > 0 {
			n++
		}
	}
	if n < seeds*15/100 {
		t.Errorf("only %d expressions are bounded", n)
	}
}

func FuzzMostCost(f *testing.F) {
	compiler := sharedCompiler()
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkMostCost(t, compiler, seed) })
}

// TestMostCostOfConstants has what costs something without any text.
func TestMostCostOfConstants(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for _, text := range []string{"true", "[]", "{}", "[[], [{}]]", "{'a': {}}", "'a' + 'b'", "[1] + [2]", "[] == []"} {
		program := compile(t, compiler, nil, text)
		var input expression.Input
		input.Reset(withObject(t, "{}"), nil, nil)
		_, cost, err := input.Phase(math.MaxInt64/2).Eval(context.Background(), program)
		if err != nil {
			t.Fatal(err)
		}
		if most, bounded := program.MostCost(0); !bounded || cost > most {
			t.Errorf("%s costs %d, and at most %d, %v", text, cost, most, bounded)
		}
	}
}

func TestUnbounded(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	variables := declare(t, compiler, pair{"a", "1"})
	for _, text := range []string{
		"[1].all(x, x == 1)", "variables.a == 1", "object.a.contains('x')", "object.a.matches('x')", "'x' in object.a",
		"object.a.split('x') == []", "quantity('1').isInteger()", "authorizer.path('/x').check('get').allowed()", "object.a.replace('', 'x') == ''",
	} {
		if most, bounded := compile(t, compiler, variables, text).MostCost(10); bounded {
			t.Errorf("%s is said to cost at most %d", text, most)
		}
	}
}

func TestPhaseBudget(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	program := compile(t, compiler, nil, "object.a == 1 && object.b == 2")
	failing := compile(t, compiler, nil, "object.a == 1 && object.nothing == 2")
	from := withObject(t, `{"a": 1, "b": 2}`)
	var input expression.Input
	input.Reset(from, nil, nil)
	_, cost, err := input.Phase(math.MaxInt64).Eval(context.Background(), program)
	if err != nil || cost <= 0 {
		t.Fatalf("costs %d, %v", cost, err)
	}
	for _, test := range []struct {
		budget int64
		want   int // how many can be evaluated
	}{{-1, 0}, {0, 0}, {cost - 1, 0}, {cost, 1}, {2*cost - 1, 1}, {2 * cost, 2}, {math.MaxInt64, 5}} {
		input.Reset(from, nil, nil)
		phase, done := input.Phase(test.budget), 0
		for range 5 {
			value, own, err := phase.Eval(context.Background(), program)
			if own != cost {
				t.Errorf("costs %d, want %d", own, cost)
			}
			if err != nil {
				if !isOutOfBudget(err) || value != nil {
					t.Errorf("with %d: %v, %v", test.budget, value, err)
				}
				break
			}
			done++
		}
		if done != test.want {
			t.Errorf("with %d, %d are evaluated, want %d", test.budget, done, test.want)
		}
		if left := test.budget - int64(done)*cost; phase.Remaining != left {
			t.Errorf("with %d, %d is left, want %d", test.budget, phase.Remaining, left)
		}
	}

	// What fails costs as well, and the next one is evaluated.
	input.Reset(from, nil, nil)
	phase := input.Phase(1000)
	_, own, err := phase.Eval(context.Background(), failing)
	var failure *expression.EvaluationError
	if !errors.As(err, &failure) || isOutOfBudget(err) {
		t.Fatalf("got %v", err)
	}
	if want := "expression 'object.a == 1 && object.nothing == 2' resulted in error: no such key: nothing"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if phase.Remaining != 1000-own || own <= 0 || input.Spent != own {
		t.Errorf("costs %d, %d is left, %d spent", own, phase.Remaining, input.Spent)
	}
	if _, _, err := phase.Eval(context.Background(), program); err != nil {
		t.Error(err)
	}
}

// TestEndedContext holds that what has a loop ends with its context.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	loop := "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"
	variables := declare(t, compiler, pair{"v", loop}, pair{"through", "variables.v"})
	for _, text := range []string{loop, "variables.v", "variables.through"} {
		var input expression.Input
		input.Reset(withObject(t, "{}"), nil, variables)
		_, _, err := input.Phase(math.MaxInt64/2).Eval(ctx, compile(t, compiler, variables, text))
		if err == nil || !strings.Contains(err.Error(), "operation interrupted") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestResultTypes(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for _, test := range []struct {
		text string
		want string
		of   []*cel.Type
	}{
		{"true", "", []*cel.Type{cel.BoolType}},
		{"1", "must evaluate to bool but got int", []*cel.Type{cel.BoolType}},
		{"object.a", "must evaluate to bool but got dyn", []*cel.Type{cel.BoolType}},
		{"1", "must evaluate to one of [string null_type] but got int", []*cel.Type{cel.StringType, cel.NullType}},
		{"null", "", []*cel.Type{cel.StringType, cel.NullType}},
		{"1", "", []*cel.Type{cel.AnyType}},
	} {
		_, err := compiler.Compile(test.text, expression.Declarations{}, test.of...)
		switch {
		case err == nil && test.want != "":
			t.Errorf("%s compiles", test.text)
		case err != nil && err.Detail != test.want:
			t.Errorf("%s: %s, want %q", test.text, err.Detail, test.want)
		}
	}
	for _, version := range []string{"", "1", "latest", "1.x"} {
		if _, err := expression.NewCompiler(version); err == nil || err.Error() != fmt.Sprintf("%q is not a Kubernetes version such as \"1.36\"", version) {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	variables := declare(t, compiler, pair{"a", "oldObject.a"}, pair{"b", "authorizer.path('/x').check('get').allowed()"})
	for text, want := range map[string]expression.Uses{
		"true":                     0,
		"object.a == 1":            expression.UsesObject,
		".object.a == 1":           expression.UsesObject,
		"object.oldObject == 1":    expression.UsesObject,
		"object.a == request.name": expression.UsesObject | expression.UsesRequest,
		"namespaceObject == null":  expression.UsesNamespace,
		"authorizer.requestResource.check('get').allowed()": expression.UsesAuthorizer,
		// A variable stands for all of them.
		"variables.a == 1":             expression.UsesVariables | expression.UsesOldObject | expression.UsesAuthorizer,
		"[1].all(object, object == 1)": expression.UsesObject,
	} {
		if got := compile(t, compiler, variables, text).Uses(); got != want {
			t.Errorf("%s uses %b, want %b", text, got, want)
		}
	}
}
