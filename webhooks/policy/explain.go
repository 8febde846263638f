package policy

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// explainNot tells why a policy, or a binding of it, was not evaluated.
func (r *request) explainNot(p *compiledPolicy, b *binding, why Why, detail string) {
	if !r.explain || r.template != "" && why == OtherRequest {
		return
	}
	e := Evaluation{Kind: p.kind, Policy: p.name, Template: r.template, Why: why, Detail: detail}
	if b != nil {
		e.Binding = b.name
	}
	r.evaluations = append(r.evaluations, e)
}

// explainExempt tells that no policy is evaluated for such a request.
func (r *request) explainExempt() {
	for _, p := range r.set.policies {
		r.explainNot(p, nil, Exempt, "no policy is evaluated for "+r.requested.GroupResource().String())
	}
}

// explainedExpression is an expression that was evaluated.
func explainedExpression(name string, program *expression.Program, value ref.Val, cost int64, err error) Expression {
	out := Expression{Name: name, Text: program.Text(), Cost: cost}
	var failure *expression.EvaluationError
	switch {
	case errors.As(err, &failure):
		out.Error = failure.Cause.Error()
	case err != nil:
		out.Error = err.Error()
	default:
		out.Value = shownValue(value)
	}
	return out
}

// asError is the one of two errors that there is.
func asError(failure *expression.EvaluationError, end error) error {
	if failure != nil {
		return failure
	}
	return end
}

func (e *evaluator) explainCondition(c *condition, value ref.Val, cost int64, failure *expression.EvaluationError, end error) {
	if e.explained != nil {
		e.explained.Conditions = append(e.explained.Conditions, explainedExpression(c.name, c.Program, value, cost, asError(failure, end)))
	}
}

func (e *evaluator) explainNote(n *note, value ref.Val, cost int64, failure *expression.EvaluationError, end error) {
	if e.explained != nil {
		e.explained.AuditAnnotations = append(e.explained.AuditAnnotations, explainedExpression(n.key, n.Program, value, cost, asError(failure, end)))
	}
}

// finished is the explanation of what was evaluated.
func (e *evaluator) finished() Evaluation {
	out := *e.explained
	out.Cost = e.out.cost
	if !e.out.matched {
		out.Why, out.Detail = ConditionFalse, "match condition "+e.out.condition
		return out
	}
	if e.out.failed {
		out.Detail = e.out.failure
	}
	e.input.Evaluated(func(name string, program *expression.Program, value ref.Val, err error, cost int64) {
		out.Variables = append(out.Variables, explainedExpression(name, program, value, cost, err))
	})
	for i := range e.out.rules {
		result := &e.out.rules[i]
		rule := Rule{Name: result.name, Outcome: result.outcome, Message: printable(result.message), Cost: result.cost}
		if result.rule != nil && result.rule.Program != nil {
			rule.Text = result.rule.Text()
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// explainVerdict tells what became of a violation of the rule that was evaluated
// last.
func (v *review) explainVerdict(rule int, violation *Violation) {
	if !v.explain || len(v.evaluations) == 0 {
		return
	}
	last := &v.evaluations[len(v.evaluations)-1]
	if rule < len(last.Rules) {
		last.Rules[rule].Outcome, last.Rules[rule].Exception, last.Rules[rule].Tried = violation.Outcome, violation.Exception, v.tried
	}
}

// maxShown is how many bytes of a value are shown.
const maxShown = 1024

// shownValue is a value as JSON if it can be written so.
func shownValue(value ref.Val) string {
	native, err := value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return cutText(value.Type().TypeName(), maxShown, "…")
	}
	message, ok := native.(*structpb.Value)
	if !ok {
		return value.Type().TypeName()
	}
	text, err := json.Marshal(message.AsInterface())
	if err != nil {
		return value.Type().TypeName()
	}
	return cutText(string(slices.Clip(text)), maxShown, "…")
}
