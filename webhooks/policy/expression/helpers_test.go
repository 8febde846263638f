package expression_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// source is a request of which there is no more than the objects.
type source struct {
	object, oldObject ref.Val
	authorizer        ref.Val
}

var _ expression.Source = source{}

func (s source) ObjectValue() ref.Val           { return orNull(s.object) }
func (s source) OldObjectValue() ref.Val        { return orNull(s.oldObject) }
func (source) RequestValue() ref.Val            { return types.NullValue }
func (source) NamespaceValue() ref.Val          { return types.NullValue }
func (s source) AuthorizerValue() ref.Val       { return s.authorizer }
func (source) ResourceAuthorizerValue() ref.Val { return nil }

func orNull(v ref.Val) ref.Val {
	if v == nil {
		return types.NullValue
	}
	return v
}

// withObject returns a request about an object.
func withObject(t testing.TB, text string) source {
	t.Helper()
	return source{object: celvalue.Value(parse(t, text))}
}

func parse(t testing.TB, text string) rawjson.Value {
	t.Helper()
	if text == "" {
		return nil
	}
	value, err := rawjson.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// sharedCompiler returns one compiler for all tests: to make its environments takes longer
// than most of them.
var sharedCompiler = sync.OnceValue(func() *expression.Compiler {
	compiler, err := expression.NewCompiler("1.36", nil)
	if err != nil {
		panic(err)
	}
	return compiler
})

// pair is a variable: its name and its expression.
type pair struct{ name, text string }

// declare declares variables, all of which compile.
func declare(t testing.TB, compiler *expression.Compiler, variables ...pair) *expression.Variables {
	t.Helper()
	if len(variables) == 0 {
		return nil
	}
	declared := expression.NewVariables()
	for _, v := range variables {
		if err := compiler.Declare(v.name, v.text, expression.Declarations{Variables: declared, Authorizer: true}); err != nil {
			t.Fatalf("%s: %v", v.text, err)
		}
	}
	return declared
}

// compile compiles an expression of any type.
func compile(t testing.TB, compiler *expression.Compiler, variables *expression.Variables, text string) *expression.Program {
	t.Helper()
	program, err := tryCompile(compiler, variables, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return program
}

func tryCompile(compiler *expression.Compiler, variables *expression.Variables, text string) (*expression.Program, *apiservercel.Error) {
	return compiler.Compile(text, expression.Declarations{Variables: variables, Authorizer: true, Reads: true}, cel.AnyType)
}

// evaluate returns the value of an expression, or its error, as a text that tells
// values apart.
func evaluate(program *expression.Program, variables *expression.Variables, from expression.Source) string {
	var input expression.Input
	input.Reset(from, nil, variables)
	value, _, err := input.Phase(math.MaxInt64/2).Eval(context.Background(), program)
	return result(value, err)
}

func result(value ref.Val, err error) string {
	var failure *expression.EvaluationError
	switch {
	case errors.As(err, &failure):
		return "error: " + failure.Cause.Error()
	case err != nil:
		return "end: " + err.Error()
	default:
		return fmt.Sprintf("%s %s", value.Type().TypeName(), types.Format(value))
	}
}

// timely fails the test if the returned function is not called before the thread has used
// that much CPU time. Time that other programs use does not count.
func timely(t testing.TB, limit time.Duration) func() {
	t.Helper()
	if race.Enabled {
		limit *= 4 // the race detector takes several times as long
	}
	runtime.LockOSThread()
	began := threadTime()
	return func() {
		t.Helper()
		defer runtime.UnlockOSThread()
		if used := threadTime() - began; used > limit {
			t.Errorf("used %s of CPU time, more than %s", used, limit)
		}
	}
}

// threadTime returns the CPU time that the thread has used, and 0 where the system does
// not count it.
func threadTime() time.Duration {
	var usage syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if err := syscall.Getrusage(thread, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// sameIn is SameWithin with a budget of its own.
func sameIn(reads *expression.Reads, object, old rawjson.Value) bool {
	budget := expression.MostCompared
	return reads.SameWithin(object, old, &budget)
}

// readText returns the text of what is read of an object.
func readText(t testing.TB, reads *expression.Reads, object string) string {
	t.Helper()
	decoded, err := parse(t, object).Decode()
	if err != nil {
		t.Fatal(err)
	}
	return string(reads.AppendRead(nil, decoded))
}

// isOutOfBudget reports whether the error is that of a Phase that has nothing left.
func isOutOfBudget(err error) bool { return errors.Is(err, apiservercel.ErrOutOfBudget) }
