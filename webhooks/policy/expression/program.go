package expression

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"

	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
)

// Program is a compiled expression. It is immutable and safe for concurrent use.
type Program struct {
	text string
	// plan does not count the cost of the expression. It is nil if the cost has no bound.
	plan interpreter.InterpretableV2
	// counting is the plan that counts the cost, nil until countingPlan is called. It takes more memory
	// than plan, and most policies never need it.
	counting atomic.Pointer[interpreter.ObservableInterpretable]
	// compiler and declared are for countingPlan.
	compiler *Compiler
	declared declared
	// bound is that of the expression alone, without variables.
	bound  celcost.Bound
	output *cel.Type
	uses   Uses
	// asked are the variables that it names.
	asked askedVariables
	// loops is true if a part of the expression may be evaluated more than once.
	loops bool
	// isNever is true for a condition that is always false.
	isNever  bool
	patterns int
	reads    *Reads
	// own is reads without those of the conditions.
	own       *Reads
	variables *Variables
	// root is nil for all but conditions that are not sealed.
	root ast.Expr
}

// Seal drops what is kept for compiling expressions that the program is a condition of.
func (p *Program) Seal() { p.root = nil }

// Text returns the expression as it was written.
func (p *Program) Text() string { return p.text }

// Patterns returns how large the regular expressions are that are written down in the
// expression, which are kept with it: a hundred bytes for each.
func (p *Program) Patterns() int { return p.patterns }

// IsNever reports whether the expression is a condition that is certainly never true, as "1 == 2".
func (p *Program) IsNever() bool { return p.isNever }

// Bound returns an upper bound of what the expression costs. What variables cost is not included.
func (p *Program) Bound() celcost.Bound { return p.bound }

// Uses returns the names that the expression mentions, with what the variables that
// it may ask for mention.
func (p *Program) Uses() Uses {
	if !p.uses.Has(UsesVariables) || p.variables == nil {
		return p.uses
	}
	uses := p.uses
	p.visitVariables(make([]bool, len(p.variables.list)), func(declared *Program) { uses |= declared.uses })
	return uses
}

// visitVariables visits the variables that the expression may ask for, and those that these ask for. It leaves out those that
// are marked, and marks those that it visits.
func (p *Program) visitVariables(visited []bool, with func(*Program)) {
	if p.variables == nil {
		return
	}
	visit := func(i int) {
		if !visited[i] {
			visited[i] = true
			if declared := p.variables.list[i].program; declared != nil {
				with(declared)
				declared.visitVariables(visited, with)
			}
		}
	}
	all := p.asked.all
	for _, name := range p.asked.names {
		i, ok := p.variables.find(name)
		if !ok {
			all = true // what it names is not known
			break
		}
		visit(i)
	}
	for i := 0; all && i < len(visited); i++ {
		visit(i)
	}
}

// Reads returns what the expression reads of the object, and what its match conditions read.
func (p *Program) Reads() *Reads { return p.reads }

// OwnReads returns what the expression itself reads of the object.
func (p *Program) OwnReads() *Reads { return p.own }

// AppendSource appends the text of the expression and of the variables that it may ask for. Space
// at the ends of lines and between words does not count.
func (p *Program) AppendSource(dst []byte) []byte {
	dst = appendText(dst, p.text)
	if p.variables == nil {
		return dst
	}
	visited := make([]bool, len(p.variables.list))
	p.visitVariables(visited, func(*Program) {})
	for i, asked := range visited {
		if v := &p.variables.list[i]; asked && v.program != nil {
			dst = appendText(append(append(dst, '\n'), v.name...), ": "+v.program.text)
		}
	}
	return dst
}

// appendText appends a text without space that does not count.
func appendText(dst []byte, text string) []byte {
	for line := range strings.Lines(text) {
		if words := strings.Join(strings.Fields(line), " "); words != "" {
			dst = append(append(dst, words...), '\n')
		}
	}
	return dst
}

// EvaluationError is an expression that did not come to a value.
type EvaluationError struct {
	// Expression is its text, and Cause what went wrong.
	Expression string
	Cause      error
}

// Error returns the text that upstream gives.
func (f *EvaluationError) Error() string {
	return fmt.Sprintf("expression '%s' resulted in error: %v", f.Expression, f.Cause)
}

// Unwrap returns the cause.
func (f *EvaluationError) Unwrap() error { return f.Cause }

// errOutOfBudget is upstream's error for expressions that together cost more
// than they may.
var errOutOfBudget = &apiservercel.Error{
	Type:   apiservercel.ErrorTypeInvalid,
	Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
	Cause:  apiservercel.ErrOutOfBudget,
}

// Phase is one list of expressions that share a budget, as upstream evaluates
// match conditions, validations, messages and audit annotations. A variable
// counts once in each.
type Phase struct {
	// Remaining is what may still be spent, in units of CEL cost.
	Remaining int64

	input   *Input
	charged []bool
	pending int64
	// unauthorized is true for expressions that cannot ask the authorizer.
	unauthorized bool
}

// Phase begins a list of expressions.
func (in *Input) Phase(budget int64) *Phase {
	p := &in.phase
	*p = Phase{Remaining: budget, input: in, charged: p.charged[:0]}
	if in.Variables != nil {
		for range in.Variables.list {
			p.charged = append(p.charged, false)
		}
	}
	return p
}

// WithoutAuthorizer begins a list of expressions for which, as upstream has it
// for messages and audit annotations, there is no authorizer, not even for the
// variables that they ask for.
func (in *Input) WithoutAuthorizer(budget int64) *Phase {
	if in.Variables != nil && in.Variables.uses.Has(UsesAuthorizer) {
		in.values.reset(in)
	}
	p := in.Phase(budget)
	p.unauthorized = true
	return p
}

// Eval evaluates an expression. Cost is its own, without that of variables.
//
// The error is a *EvaluationError if the expression did not come to a value, and then
// the next one may be evaluated. Any other error ends the list: the budget is
// spent.
func (p *Phase) Eval(ctx context.Context, program *Program) (value ref.Val, cost int64, err error) {
	p.input.context = ctx
	value, cost, failure := p.input.run(ctx, program)
	if pending := p.pending; pending > 0 {
		p.pending = 0
		if pending > p.Remaining {
			return nil, cost, errOutOfBudget
		}
		p.Remaining -= pending
	}
	if cost > p.Remaining {
		return nil, cost, errOutOfBudget
	}
	p.Remaining -= cost
	if failure != nil {
		return nil, cost, &EvaluationError{Expression: program.text, Cause: failure}
	}
	return value, cost, nil
}

// run evaluates a program, and counts what it costs.
func (in *Input) run(ctx context.Context, program *Program) (ref.Val, int64, error) {
	value, cost, err := program.evaluate(ctx, in)
	in.Spent = add(in.Spent, cost)
	return value, cost, err
}

// add returns a sum that does not overflow.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
