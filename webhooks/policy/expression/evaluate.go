package expression

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// interruptCheckFrequency is after how many rounds of a loop the context is checked.
const interruptCheckFrequency = celconfig.CheckFrequency

// evaluate does with the plan what ContextEval of a cel.Program does with its own; of
// an expression that loops over nothing, which ends by itself, what Eval does. A cost
// that cannot be had is more than any budget.
func (p *Program) evaluate(ctx context.Context, in *Input) (value ref.Val, cost int64, err error) {
	var costs *interpreter.CostTracker
	defer func() {
		if r := recover(); r != nil {
			if cancelled, ok := r.(interpreter.EvalCancelledError); ok {
				err = cancelled
			} else {
				err = fmt.Errorf("internal error: %v", r)
			}
		}
		cost = math.MaxInt64
		if costs != nil {
			cost = int64(min(costs.ActualCost(), math.MaxInt64))
		}
		if err != nil && p.loops && errors.Is(err, interpreter.InterruptError{}) {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}()
	frame, err := interpreter.NewExecutionFrame(in)
	if err != nil {
		return nil, 0, err
	}
	defer frame.Close()
	if p.loops {
		if err := frame.SetContext(ctx, interruptCheckFrequency); err != nil {
			return nil, 0, err
		}
	}
	value = p.plan.ObserveExec(frame, func(observed any) {
		if counting, ok := observed.(*interpreter.CostTracker); ok {
			costs = counting
		}
	})
	if failed, ok := value.(*types.Err); ok {
		return value, 0, failed
	}
	return value, 0, nil
}
