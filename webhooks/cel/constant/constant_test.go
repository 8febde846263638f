package constant_test

import (
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"

	"github.com/gatehouse-dev/gatehouse/webhooks/cel/constant"
)

// environment has the variables a and b, which are booleans, and n.
func environment(t testing.TB) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("a", cel.BoolType), cel.Variable("b", cel.BoolType), cel.Variable("n", cel.IntType))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// languageOf counts evaluations.
func languageOf(env *cel.Env, evaluations *int) constant.Language {
	return constant.Language{
		IsVariable: func(name string) bool { return name == "a" || name == "b" || name == "n" },
		Evaluate: func(part *ast.AST) ref.Val {
			*evaluations++
			program, err := env.PlanProgram(part)
			if err != nil {
				return nil
			}
			result, _, err := program.Eval(cel.NoVars())
			if err != nil {
				return nil
			}
			return result
		},
	}
}

// TestCostIsBounded: what costs much is not evaluated.
func TestCostIsBounded(t *testing.T) {
	t.Parallel()
	env, evaluations := environment(t), 0
	for text, want := range map[string]int{
		"[1, 2, 3].all(i, [1, 2, 3].all(j, i + j > 9))": 1,
		"[1,2,3,4,5,6,7,8].all(i, [1,2,3,4,5,6,7,8].all(j, [1,2,3,4,5,6,7,8].all(k, [1,2,3,4,5,6,7,8].all(l, i + j + k + l > 99))))": 0,
		"a && b || n > 3": 0, "a && !(1 < 2)": 1,
	} {
		checked, issues := env.Compile(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		evaluations = 0
		languageOf(env, &evaluations).IsFalse(checked.NativeRep())
		if evaluations != want {
			t.Errorf("%s: %d evaluations, want %d", text, evaluations, want)
		}
	}
}

// FuzzIsFalse: what is said to be false is false for all values of the variables.
func FuzzIsFalse(f *testing.F) {
	for _, seed := range []string{
		"false", "1 == 2", "a && 1 == 2", "!(a || true)", "a ? false : false", "1 / 0 == 1", "a && 1 / 0 == 1", "(1 / 0 == 1) && false", "!(1 / 0 == 1 && false)",
		"[1].exists(a, a > 1)", "'a' in ['b'] || b", "n > 3 && n < 3", "{1: false}[1]", "has({'x': 1}.y)", "type(1) == string",
	} {
		f.Add(seed)
	}
	env := environment(f)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 {
			return
		}
		checked, issues := env.Compile(text)
		if issues.Err() != nil || !checked.OutputType().IsExactType(cel.BoolType) {
			return
		}
		evaluations := 0
		if !languageOf(env, &evaluations).IsFalse(checked.NativeRep()) {
			return
		}
		program, err := env.Program(checked, cel.CostLimit(1_000_000))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			result, _, err := program.Eval(map[string]any{"a": i&1 > 0, "b": i&2 > 0, "n": i & 4})
			if err != nil || result.Value() != false {
				t.Errorf("%s is %v (%v)", text, result, err)
			}
		}
	})
}
