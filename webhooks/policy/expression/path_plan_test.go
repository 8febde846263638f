package expression

import (
	"testing"

	"github.com/google/cel-go/cel"
)

// TestPathsArePlanned holds that cel-go calls what finds paths, with their ids: results would be the same without.
func TestPathsArePlanned(t *testing.T) {
	t.Parallel()
	compiler, err := NewCompiler("1.37", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"object.spec.a.b", "has(object.spec.a)"} {
		program, failed := compiler.Compile(text, Declarations{}, cel.AnyType)
		if failed != nil {
			t.Fatal(failed)
		}
		if _, ok := program.plan.(*path); !ok {
			t.Errorf("%s is planned as %T", text, program.plan)
		}
	}
}
