package bound

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Option returns one more option of each program in an environment, such as one that observes the evaluation.
type Option func(env *cel.Env) cel.ProgramOption

// Binding returns the implementation of the function that a call calls: its overload, or
// what finds the overload by the arguments.
func Binding(env *cel.Env, call interpreter.InterpretableCall) (functions.FunctionOp, error) {
	bindings, err := env.Functions()[call.Function()].Bindings()
	if err != nil {
		return nil, fmt.Errorf("find what %s does: %w", call.Function(), err)
	}
	var found *functions.Overload
	for _, b := range bindings {
		if b.Operator == call.OverloadID() || b.Operator == call.Function() && found == nil {
			found = b
		}
	}
	switch n := len(call.Args()); {
	case found == nil:
	case n == 1 && found.Unary != nil:
		return func(args ...ref.Val) ref.Val { return found.Unary(args[0]) }, nil
	case n == 2 && found.Binary != nil:
		return func(args ...ref.Val) ref.Val {
			if found.OperandTrait != 0 && !args[0].Type().HasTrait(found.OperandTrait) {
				return types.NewErr("no such overload: %s", call.Function())
			}
			return found.Binary(args[0], args[1])
		}, nil
	case found.Function != nil:
		return found.Function, nil
	}
	return nil, fmt.Errorf("find what %s does: it has no binding for %d arguments", call.Function(), len(call.Args()))
}
