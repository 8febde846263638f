package expression_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// program returns an expression with the variables that it may name, all random.
func (g *generator) program(compiler *expression.Compiler, depth int) (*expression.Program, *expression.Variables) {
	declared := expression.NewVariables()
	for i := range g.IntN(3) {
		text := g.value(depth - 1)
		// A variable that does not compile is one, too.
		_ = compiler.Declare(fmt.Sprintf("v%d", i), text, expression.Declarations{Variables: declared})
		g.declared = append(g.declared, text)
		g.variables = i + 1
	}
	text := g.bool(depth)
	if g.IntN(3) == 0 {
		text = g.value(depth)
	}
	program, err := tryCompile(compiler, declared, text)
	if err != nil {
		return nil, nil
	}
	return program, declared
}

// checkSameIn makes an expression and an object, and changes that object: where
// the expression is said to see the same, it comes to the same if nothing is taken
// from what it may go through. Otherwise it stays true if it was.
func checkSameIn(t *testing.T, compiler *expression.Compiler, seed uint64) (compiled, same int) {
	t.Helper()
	g := newGenerator(seed)
	program, variables := g.program(compiler, 2+g.IntN(4))
	if program == nil {
		return 0, 0
	}
	for range 4 {
		old := g.object()
		before := g.text(old)
		was := evaluate(program, variables, withObject(t, before))
		check := func(object string, worse func(was, is string) bool) {
			if !sameIn(program.Reads(), parse(t, object), parse(t, before)) {
				return
			}
			same++
			if is := evaluate(program, variables, withObject(t, object)); worse(was, is) {
				t.Errorf("seed %d: %s\nwith variables %q\nin %s is %s\nin %s is %s", seed, program.Text(), g.declared, before, was, object, is)
			}
		}
		for range 8 {
			check(g.text(g.mutated(old, !g.goesThrough)), func(was, is string) bool { return was != is })
			less, taken, _ := g.less(old)
			check(g.text(less), func(was, is string) bool { return worse(was, is, taken) })
		}
	}
	return 1, same
}

// worse reports whether what an expression comes to may not come of a change by
// which it is said to see the same. Which of several errors it comes to depends
// on the order of lists.
func worse(was, is string, taken bool) bool {
	if taken {
		return was == "bool true" && is != was
	}
	return is != was && (!strings.HasPrefix(is, "error") || !strings.HasPrefix(was, "error"))
}

func TestWhatIsSeenTheSameComesToTheSame(t *testing.T) {
	t.Parallel()
	const most = 10
	seeds := race.Cases(1_000)
	compiler := sharedCompiler()
	compiled, same := 0, 0
	for seed := range uint64(seeds) {
		c, s := checkSameIn(t, compiler, seed)
		compiled, same = compiled+c, same+s
		if t.Failed() && seed > most {
			break
		}
	}
	t.Logf("%d of %d expressions compile, %d changes are not seen", compiled, seeds, same)
	if compiled < seeds/4 || same < compiled {
		t.Errorf("%d of %d expressions compile, %d changes are not seen: too few", compiled, seeds, same)
	}
}

func FuzzWhatIsSeenTheSameComesToTheSame(f *testing.F) {
	compiler := sharedCompiler()
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkSameIn(t, compiler, seed) })
}
