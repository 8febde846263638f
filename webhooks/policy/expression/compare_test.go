package expression_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestComparisons compares versions of objects as testdata/comparisons.txtar says.
func TestComparisons(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/comparisons.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < 120 {
		t.Errorf("only %d rules", len(archive.Files))
	}
	compiler := sharedCompiler()
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			declarations := expression.Declarations{Authorizer: true, Reads: true}
			var variables []pair
			var program *expression.Program
			for line := range strings.Lines(string(file.Data)) {
				key, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
				name, isVariable := strings.CutPrefix(key, "variable ")
				switch {
				case strings.HasPrefix(line, "#"):
				case isVariable:
					variables = append(variables, pair{name, rest})
				case key == "condition":
					condition, err := compiler.CompileCondition(rest, expression.Declarations{})
					if err != nil {
						t.Fatal(err)
					}
					declarations.Conditions = append(declarations.Conditions, condition)
				case key == "rule":
					declarations.Variables = declare(t, compiler, variables...)
					compiled, err := compiler.Compile(rest, declarations, cel.AnyType)
					if err != nil {
						t.Fatal(err)
					}
					program = compiled
				default:
					old, object, _ := strings.Cut(rest, " -> ")
					if got, want := sameIn(program.Reads(), parse(t, object), parse(t, old)), key == "same"; got != want {
						t.Errorf("%s, from %s to %s: same = %v", program.Text(), old, object, got)
					}
					for _, text := range []string{old, object} {
						if !sameIn(program.Reads(), parse(t, text), parse(t, text)) {
							t.Errorf("%s: %s is not the same as itself", program.Text(), text)
						}
					}
				}
			}
		})
	}
}

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
			// What has the same text of what is read comes to the same. An object of an API server has no 1.0.
			if !strings.Contains(object+before, "1.0") && readText(t, program.Reads(), object) == readText(t, program.Reads(), before) {
				if is := evaluate(program, variables, withObject(t, object)); is != was {
					t.Errorf("seed %d: %s\nwith variables %q\nin %s is %s\nin %s is %s, and the text of what is read is the same", seed, program.Text(), g.declared, before, was, object, is)
				}
			}
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
