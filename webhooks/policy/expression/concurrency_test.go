package expression_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestConcurrently compiles the policies of several goroutines with one Compiler,
// while their expressions and those of earlier ones are evaluated, each about an
// object of its own. It is for the race detector, too.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 8, 20
	compiler := sharedCompiler()
	shared := declare(t, compiler, pair{"a", "object.a"}, pair{"b", "variables.a.map(x, x.b)"})
	program := compile(t, compiler, shared, "variables.b.all(b, b in object.c) && quantity(object.q).isLessThan(quantity('2Gi')) && object.m.all(k, v, k == v)")
	var group sync.WaitGroup
	for n := range goroutines {
		group.Go(func() {
			var input expression.Input
			from := withObject(t, `{"a": [{"b": "x"}, {"b": "y"}], "c": ["y", "x"], "q": "1Gi", "m": {"x": "x", "y": "y"}}`)
			for i := range rounds {
				// Each has variables of its own, of the same names and other types.
				declared := expression.NewVariables()
				value, want := fmt.Sprintf("'%d-%d'", n, i), "bool true"
				text := fmt.Sprintf("variables.own.startsWith('%d-')", n)
				if i%2 == 0 {
					value, text = fmt.Sprint(n), fmt.Sprintf("variables.own + 1 == %d", n+1)
				}
				if err := compiler.Declare("own", value, expression.Declarations{Variables: declared}); err != nil {
					t.Error(err)
					return
				}
				own, err := tryCompile(compiler, declared, text)
				if err != nil {
					t.Error(err)
					return
				}
				declared.Seal()
				for _, e := range []struct {
					program   *expression.Program
					variables *expression.Variables
				}{{own, declared}, {program, shared}} {
					input.Reset(from, nil, e.variables)
					value, _, err := input.Phase(math.MaxInt64/2).Eval(context.Background(), e.program)
					if got := result(value, err); got != want {
						t.Errorf("%s is %s", e.program.Text(), got)
					}
				}
				if !sameIn(program.Reads(), parse(t, `{"a": [{"b": "x"}], "c": [], "q": "1", "m": {}}`), parse(t, `{"a": [{"b": "x"}], "c": [], "q": "1", "m": {}}`)) || program.Uses() == 0 {
					t.Error("what the program sees has changed")
				}
			}
		})
	}
	group.Wait()
}
