package expression

import (
	"errors"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celconstant "github.com/gatehouse-dev/gatehouse/webhooks/cel/constant"
)

// planner plans the expressions of an environment.
//
// A cel.Program holds much more than the plan of its expression: an index of all
// functions that there are, and what calls of them cost, which is five times as
// much and the same for all. So of the cel.Program that an expression is planned
// with nothing but the plan is kept.
type planner struct {
	env *cel.Env
	// option is that of the compiler, nil for none.
	option celbound.Option
	// bounds are those of what env may check.
	bounds *celbound.Bounds
	// costs is how every plan counts what it costs.
	costs *interpreter.CostTracker
	// counted is a plan with what begins to count each time that it is evaluated.
	counted interpreter.ObservableInterpretable
	// uncounted is env for plans that do not count. It has what plans depend on, and nothing of what
	// the checker needs.
	uncounted *cel.Env
}

// errNoPlan means that the library does not plan as it did.
var errNoPlan = errors.New("the plan of the expression was not found")

func newPlanner(env *cel.Env, option celbound.Option) (*planner, error) {
	bounds, err := celbound.New(env)
	if err != nil {
		return nil, err
	}
	functions := make([]*decls.FunctionDecl, 0, len(env.Functions()))
	for _, f := range env.Functions() {
		functions = append(functions, f)
	}
	uncounted, err := cel.NewCustomEnv(cel.OptionalTypes(), cel.FunctionDecls(functions...),
		cel.CustomTypeAdapter(env.CELTypeAdapter()), cel.CustomTypeProvider(env.CELTypeProvider()))
	if err != nil {
		return nil, err
	}
	p := &planner{env: env, bounds: bounds, option: option, uncounted: uncounted}
	checked, issues := env.Compile("null")
	if issues != nil {
		return nil, issues.Err()
	}
	null := checked.NativeRep()
	if _, err := p.part(env, null, cel.CostTrackerOptions(p.shareCosts)); err != nil {
		return nil, err
	}
	if p.costs == nil {
		return nil, errNoPlan
	}
	provider, adapter := env.CELTypeProvider(), env.CELTypeAdapter()
	attributes := interpreter.NewAttributeFactory(env.Container, adapter, provider)
	plan, err := interpreter.NewInterpreter(interpreter.NewDispatcher(), env.Container, provider, adapter, attributes).
		NewInterpretable(null, interpreter.CostObserver(interpreter.CostTrackerFactory(p.costs.Clone)))
	if err != nil {
		return nil, err
	}
	counted, ok := plan.(*interpreter.ObservableInterpretable)
	if !ok {
		return nil, errNoPlan
	}
	p.counted = *counted
	return p, nil
}

// plan plans a checked expression without counting its cost. Its functions keep to their limits.
func (p *planner) plan(checked *ast.AST) (interpreter.InterpretableV2, error) {
	// The options are those of the API server's environment, see environment.MustBaseEnvSet, without the
	// cost. TestBound holds that the results are the same.
	options := []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize),
		cel.OptimizeRegex(library.FindRegexOptimization, library.FindAllRegexOptimization),
	}
	if p.option == nil {
		options = append(options, cel.CustomDecoratorV2(findPaths(checked)))
	}
	return p.part(p.uncounted, checked, options...)
}

// language is that of conditions, for which those are found that are never true.
func (p *planner) language() celconstant.Language {
	return celconstant.Language{
		IsVariable: func(name string) bool { return usesOf(name) != 0 },
		Evaluate: func(part *ast.AST) ref.Val {
			plan, err := p.plan(part)
			if err != nil {
				return nil
			}
			return plan.Eval(interpreter.EmptyActivation())
		},
	}
}

// planCounting plans a checked expression so that its cost is counted.
func (p *planner) planCounting(checked *ast.AST) (*interpreter.ObservableInterpretable, error) {
	part, err := p.part(p.env, checked, cel.CostTrackerOptions(p.shareCosts))
	if err != nil {
		return nil, err
	}
	out := p.counted
	out.InterpretableV2 = part
	return &out, nil
}

// part plans an expression as part of another one, a list of it, because decorators
// are shown parts when all else is done to them, and the whole one before.
func (p *planner) part(env *cel.Env, checked *ast.AST, options ...cel.ProgramOption) (plan interpreter.InterpretableV2, err error) {
	id := ast.MaxID(checked) + 1
	list := ast.NewExprFactory().NewList(id, []ast.Expr{checked.Expr()}, nil)
	whole := ast.NewCheckedAST(ast.NewAST(list, checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
	options = append(options,
		cel.InterruptCheckFrequency(interruptCheckFrequency),
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			if list, ok := i.(interpreter.InterpretableConstructor); ok && i.ID() == id && len(list.InitVals()) == 1 {
				plan = list.InitVals()[0]
			}
			return i, nil
		}),
		limited(p.env),
	)
	if p.option != nil {
		options = append(options, p.option(p.env))
	}
	if _, err := env.PlanProgram(whole, options...); err != nil {
		return nil, err
	}
	if plan == nil {
		return nil, errNoPlan
	}
	return plan, nil
}

// shareCosts makes all plans count in one way, that of the environment's options, which
// come before this one.
func (p *planner) shareCosts(own *interpreter.CostTracker) error {
	if p.costs == nil {
		p.costs = own
	} else {
		*own = *p.costs
	}
	return nil
}
