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
	var (
		counting *interpreter.ObservableInterpretable
		costs    *interpreter.CostTracker
	)
	uncounted := in.Counting != Counted && p.plan != nil
	if !uncounted {
		if counting, err = p.countingPlan(); err != nil {
			return nil, math.MaxInt64, err
		}
	}
	defer func() {
		if r := recover(); r != nil {
			if cancelled, ok := r.(interpreter.EvalCancelledError); ok {
				err = cancelled
			} else {
				err = fmt.Errorf("internal error: %v", r)
			}
		}
		switch {
		case uncounted:
			cost = 0
		case costs != nil:
			cost = int64(min(costs.ActualCost(), math.MaxInt64))
		default:
			cost = math.MaxInt64
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
	if p.loops && (!uncounted || in.Counting != Brief) {
		if err := frame.SetContext(ctx, interruptCheckFrequency); err != nil {
			return nil, 0, err
		}
	}
	if uncounted {
		value = p.plan.Exec(frame)
	} else {
		value = counting.ObserveExec(frame, func(observed any) {
			if tracker, ok := observed.(*interpreter.CostTracker); ok {
				costs = tracker
			}
		})
	}
	if failed, ok := value.(*types.Err); ok {
		return value, 0, failed
	}
	return value, 0, nil
}
