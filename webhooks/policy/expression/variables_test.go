package expression_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// counting counts how often the object is asked for.
type counting struct {
	source
	asked *int
}

func (c counting) ObjectValue() ref.Val {
	*c.asked++
	return c.source.ObjectValue()
}

// evaluated returns the variables that were evaluated, with their values.
func evaluated(input *expression.Input) []string {
	var out []string
	input.Evaluated(func(name string, _ *expression.Program, value ref.Val, err error, _ int64) {
		if err != nil {
			out = append(out, name+" failed")
			return
		}
		out = append(out, name+" = "+result(value, nil))
	})
	return out
}

func TestVariablesAreLazyAndEvaluatedOnce(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for name, test := range map[string]struct {
		variables   []pair
		expressions []string
		want        []string
		evaluated   []string
		// asked is how often the object is asked for.
		asked int
	}{
		"not asked for": {
			[]pair{{"a", "object.a"}, {"b", "object.nothing"}},
			[]string{"true || variables.a == 1", "1 == 1"},
			[]string{"bool true", "bool true"},
			nil, 0,
		},
		"asked for by one branch": {
			[]pair{{"a", "object.nothing"}, {"b", "object.b"}},
			[]string{"false ? variables.a == 1 : variables.b == 2"},
			[]string{"bool true"},
			[]string{"b = int 2"},
			1,
		},
		"asked for often": {
			[]pair{{"a", "object.a"}},
			[]string{"[1, 2, 3].all(i, variables.a == 1)", "variables.a + variables.a == 2"},
			[]string{"bool true", "bool true"},
			[]string{"a = int 1"},
			1,
		},
		"through each other": {
			[]pair{{"a", "object.a"}, {"b", "variables.a + 1"}, {"c", "variables.a + variables.b"}},
			[]string{"variables.c == 3", "variables.b == 2"},
			[]string{"bool true", "bool true"},
			[]string{"a = int 1", "b = int 2", "c = int 3"},
			1,
		},
		"an error is kept": {
			[]pair{{"a", "object.nothing"}},
			[]string{"variables.a == 1 || variables.a == 2", "variables.a == 1 || true"},
			[]string{`error: composited variable "a" fails to evaluate: no such key: nothing`, "bool true"},
			[]string{"a failed"},
			1,
		},
		"has asks": {
			[]pair{{"a", "object.nothing"}, {"b", "object.b"}},
			[]string{"has(variables.b)", "has(variables.a)"},
			[]string{"bool true", `error: composited variable "a" fails to evaluate: no such key: nothing`},
			[]string{"a failed", "b = int 2"},
			2,
		},
		"all of them": {
			[]pair{{"a", "object.a"}, {"b", "object.b"}},
			[]string{"dyn(variables).all(v, v > 0)", "dyn(variables)['a'] == 1"},
			[]string{"bool true", "bool true"},
			[]string{"a = int 1", "b = int 2"},
			2,
		},
		"none of that name": {
			[]pair{{"a", "object.a"}},
			[]string{"dyn(variables).b == 1", "has(dyn(variables).b)"},
			[]string{"error: no such key: b", "bool false"},
			nil, 0,
		},
		// As upstream, a name that looks like an escaped one stands for another.
		"escaped names": {
			[]pair{{"a__dot__b", "1"}, {"a__b", "2"}, {"__namespace__", "3"}},
			[]string{"variables.a__b == 2", "variables.a__dot__b == 1", "variables.__namespace__ == 3"},
			[]string{"bool true", "error: no such key: a__dot__b", "error: no such key: __namespace__"},
			[]string{"a__b = int 2"},
			0,
		},
		"itself": {
			[]pair{{"a", "1"}, {"a", "variables.a + 1"}},
			[]string{"variables.a == 2"},
			[]string{`error: composited variable "a" fails to evaluate: composited variable "a" fails to evaluate: the variable refers to itself`},
			[]string{"a failed"},
			0,
		},
		"itself through others": {
			[]pair{{"a", "1"}, {"b", "variables.a + 1"}, {"c", "variables.b + 1"}, {"a", "variables.c + 1"}},
			[]string{"variables.b == 2", "variables.a == 2"},
			[]string{
				`error: composited variable "b" fails to evaluate: composited variable "a" fails to evaluate: composited variable "c" fails to evaluate: composited variable "b" fails to evaluate: the variable refers to itself`,
				`error: composited variable "a" fails to evaluate: composited variable "c" fails to evaluate: composited variable "b" fails to evaluate: the variable refers to itself`,
			},
			[]string{"a failed", "b failed", "c failed"},
			0,
		},
		"itself, without need": {
			[]pair{{"a", "true"}, {"a", "true || variables.a"}},
			[]string{"variables.a"},
			[]string{"bool true"},
			[]string{"a = bool true"},
			0,
		},
		"twice, the last one holds": {
			[]pair{{"a", "1"}, {"b", "variables.a + 1"}, {"a", "5"}},
			[]string{"variables.b == 6"},
			[]string{"bool true"},
			[]string{"a = int 5", "b = int 6"},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variables := declare(t, compiler, test.variables...)
			asked := 0
			var input expression.Input
			input.Reset(counting{withObject(t, `{"a": 1, "b": 2}`), &asked}, nil, variables)
			phase := input.Phase(math.MaxInt64 / 2)
			for i, text := range test.expressions {
				value, _, err := phase.Eval(context.Background(), compile(t, compiler, variables, text))
				if got := result(value, err); got != test.want[i] {
					t.Errorf("%s is %s, want %s", text, got, test.want[i])
				}
			}
			if got := evaluated(&input); !slices.Equal(got, test.evaluated) {
				t.Errorf("evaluated %q, want %q", got, test.evaluated)
			}
			if asked != test.asked {
				t.Errorf("the object was asked for %d times, want %d", asked, test.asked)
			}
		})
	}
}

func TestVariableThatDoesNotCompile(t *testing.T) {
	t.Parallel()
	compiler, variables := sharedCompiler(), expression.NewVariables()
	if err := compiler.Declare("a", "object.", expression.Declarations{Variables: variables}); err == nil {
		t.Fatal("it compiles")
	}
	got := evaluate(compile(t, compiler, variables, "variables.a == 1"), variables, withObject(t, "{}"))
	if want := `error: composited variable "a" fails to compile`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := tryCompile(compiler, variables, "variables.b == 1"); err == nil {
		t.Error("a variable that was not declared can be named")
	}
	if _, err := tryCompile(compiler, expression.NewVariables(), "variables.a == 1"); err == nil {
		t.Error("a variable of another policy can be named")
	}
}

// TestVariablesCostOncePerPhase holds that a variable, and what it asked for,
// counts in every list of expressions that asks for it, and once there.
func TestVariablesCostOncePerPhase(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	// Ten times a hundred, and what the call costs besides.
	costly := "'" + strings.Repeat("x", 1000) + "'.contains('y')"
	variables := declare(t, compiler, pair{"a", costly}, pair{"b", costly + " || variables.a"}, pair{"c", "variables.a && variables.b"})
	var input expression.Input
	input.Reset(withObject(t, "{}"), nil, variables)
	spent := func(phase *expression.Phase, text string) int64 {
		before := phase.Remaining
		if _, _, err := phase.Eval(context.Background(), compile(t, compiler, variables, text)); err != nil {
			t.Fatal(err)
		}
		return before - phase.Remaining
	}
	const budget = 1_000_000
	phase := input.Phase(budget)
	own := spent(phase, "variables.c") // both, of which one is short-circuited away
	all := spent(phase, "variables.b || variables.c")
	if own < 100 || own >= 200 {
		t.Errorf("c costs %d, want that of a once", own)
	}
	if all < 100 || all >= 200 {
		t.Errorf("b costs %d, want its own", all)
	}
	if again := spent(phase, "variables.b || variables.c"); again >= 10 {
		t.Errorf("the second time they cost %d, want that of asking", again)
	}
	total := input.Spent
	phase = input.Phase(budget)
	if b := spent(phase, "variables.b"); b < 200 || b >= 300 {
		t.Errorf("in another phase b costs %d, want that of a, too", b)
	}
	if c := spent(phase, "variables.c"); c >= 10 {
		t.Errorf("c then costs %d, want its own", c)
	}
	if more := input.Spent - total; more >= 10 {
		t.Errorf("evaluating them again costs %d, want that of asking", more)
	}
	// What is left does not cover a variable.
	phase = input.Phase(150)
	if _, _, err := phase.Eval(context.Background(), compile(t, compiler, variables, "variables.b")); !isOutOfBudget(err) {
		t.Errorf("got %v, want that the budget is spent", err)
	}
	// And its cost is not carried over to the next.
	phase = input.Phase(150)
	if got := spent(phase, "true"); got > 1 {
		t.Errorf("true costs %d", got)
	}
}

func withAuthorizer(t testing.TB, object string) source {
	t.Helper()
	out := withObject(t, object)
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	out.authorizer = library.NewAuthorizerVal(&user.DefaultInfo{Name: "alice"}, allow)
	return out
}

func TestWithoutAuthorizer(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const may = "authorizer.path('/healthz').check('get').allowed()"
	variables := declare(t, compiler, pair{"may", may}, pair{"through", "variables.may"}, pair{"a", "object.a"})
	var input expression.Input
	input.Reset(withAuthorizer(t, `{"a": 1}`), nil, variables)
	eval := func(phase *expression.Phase, text string) string {
		value, _, err := phase.Eval(context.Background(), compile(t, compiler, variables, text))
		return result(value, err)
	}
	phase := input.Phase(math.MaxInt64 / 2)
	for _, text := range []string{may, "variables.may", "variables.through"} {
		if got := eval(phase, text); got != "bool true" {
			t.Errorf("%s is %s", text, got)
		}
	}
	// What was evaluated with an authorizer is not to be had without.
	phase = input.WithoutAuthorizer(math.MaxInt64 / 2)
	for text, want := range map[string]string{
		may:                 "error: no such attribute(s): authorizer",
		"variables.may":     `error: composited variable "may" fails to evaluate: no such attribute(s): authorizer`,
		"variables.through": `error: composited variable "through" fails to evaluate: composited variable "may" fails to evaluate: no such attribute(s): authorizer`,
		"variables.a == 1":  "bool true",
	} {
		if got := eval(phase, text); got != want {
			t.Errorf("without: %s is %s, want %s", text, got, want)
		}
	}
	// The next request has one again.
	input.Reset(withAuthorizer(t, `{"a": 1}`), nil, variables)
	if got := eval(input.Phase(math.MaxInt64/2), "variables.through"); got != "bool true" {
		t.Errorf("then: %s", got)
	}
}

// TestWithoutAuthorizerKeeps holds that variables are not evaluated again where
// none of them asks the authorizer.
func TestWithoutAuthorizerKeeps(t *testing.T) {
	t.Parallel()
	compiler, asked := sharedCompiler(), 0
	variables := declare(t, compiler, pair{"a", "object.a"})
	program := compile(t, compiler, variables, "variables.a == 1")
	var input expression.Input
	input.Reset(counting{withObject(t, `{"a": 1}`), &asked}, nil, variables)
	for _, phase := range []func(int64) *expression.Phase{input.Phase, input.WithoutAuthorizer} {
		if _, _, err := phase(math.MaxInt64/2).Eval(context.Background(), program); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("the object was asked for %d times", asked)
	}
}

// TestResetForgets evaluates for one request after another with one Input, of
// policies with more and fewer variables.
func TestResetForgets(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	type policy struct {
		variables *expression.Variables
		program   *expression.Program
	}
	var policies []policy
	for n := range 4 {
		var pairs []pair
		text := "'' + object.name"
		for i := range n {
			pairs = append(pairs, pair{fmt.Sprintf("v%d", i), "object.name"})
			text += fmt.Sprintf(" + variables.v%d", i)
		}
		variables := declare(t, compiler, pairs...)
		policies = append(policies, policy{variables, compile(t, compiler, variables, text)})
	}
	var input expression.Input
	for i, n := range []int{3, 0, 3, 1, 2, 0, 1, 3, 3} {
		name := string(rune('a' + i))
		input.Reset(withObject(t, `{"name": "`+name+`"}`), nil, policies[n].variables)
		if got := evaluated(&input); input.Spent != 0 || len(got) > 0 {
			t.Errorf("%s begins with %q, and %d spent", name, got, input.Spent)
		}
		value, _, err := input.Phase(math.MaxInt64/2).Eval(context.Background(), policies[n].program)
		if got, want := result(value, err), `string "`+strings.Repeat(name, n+1)+`"`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if i == 4 {
			// One that ends early leaves nothing behind either.
			if _, _, err := input.Phase(0).Eval(context.Background(), policies[n].program); !isOutOfBudget(err) {
				t.Errorf("got %v, want that the budget is spent", err)
			}
		}
	}
}
