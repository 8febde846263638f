package policy

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// explainSkipped records why a policy, or a binding of it, was not evaluated.
func (v *decider) explainSkipped(t target, m match) {
	if !v.explain || t.request.template != "" && m.why == OtherRequest {
		return
	}
	v.evaluations = append(v.evaluations, Evaluation{
		Kind: t.policy.kind, Policy: t.policy.name, Binding: t.bindingName(), Template: t.request.template, Why: m.why, Detail: m.detail,
	})
}

// explainExempt records that no policy is evaluated for such a request.
func (v *decider) explainExempt(r *request) {
	for _, p := range v.set.policies {
		v.explainSkipped(target{request: r, policy: p}, match{why: Exempt, detail: "no policy is evaluated for " + r.Requested.GroupResource().String()})
	}
}

// explained returns the explanation of an expression that was evaluated.
func explained(name string, program *expression.Program, value ref.Val, cost int64, err error) Expression {
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

func (e *evaluator) explainCondition(c *expression.Condition, result evaluated) {
	if e.explanation != nil {
		e.explanation.Conditions = append(e.explanation.Conditions, explained(c.Name, c.Program, result.value, result.cost, result.err()))
	}
}

func (e *evaluator) explainAnnotation(a *auditAnnotation, result evaluated) {
	if e.explanation != nil {
		e.explanation.AuditAnnotations = append(e.explanation.AuditAnnotations, explained(a.key, a.Program, result.value, result.cost, result.err()))
	}
}

// explain returns the explanation once the policy is evaluated.
func (e *evaluator) explain() Evaluation {
	out := *e.explanation
	out.Cost = e.out.cost
	if !e.out.matched {
		out.Why, out.Detail = ConditionFalse, "match condition "+e.out.condition
		return out
	}
	e.input.Evaluated(func(name string, program *expression.Program, value ref.Val, err error, cost int64) {
		out.Variables = append(out.Variables, explained(name, program, value, cost, err))
	})
	for i := range e.out.results {
		result := &e.out.results[i]
		if result.part == partPolicy {
			out.Detail = result.message
		}
		if result.part != partRule {
			continue
		}
		rule := Rule{Name: result.name, Outcome: result.outcome, Message: printable(result.message), Cost: result.cost}
		if result.rule != nil && result.rule.Program != nil {
			rule.Text = result.rule.Text()
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// explainVerdict records what became of a violation of the i-th rule that was evaluated
// last.
func (v *decider) explainVerdict(i int, violation *Violation, tried []TriedException) {
	if !v.explain || len(v.evaluations) == 0 {
		return
	}
	last := &v.evaluations[len(v.evaluations)-1]
	if i < len(last.Rules) {
		rule := &last.Rules[i]
		rule.Outcome, rule.Exception, rule.Baseline, rule.Containers, rule.Tried = violation.Outcome, violation.Exception, violation.Baseline, violation.containers, tried
	}
}

// maxShown is how many bytes of a value are shown.
const maxShown = 1024

// shownValue returns a value as JSON if it can be written so, and otherwise its type.
func shownValue(value ref.Val) string {
	native, err := value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if message, ok := native.(*structpb.Value); ok && err == nil {
		if text, err := json.Marshal(message.AsInterface()); err == nil {
			return truncate.Bytes(string(text), maxShown)
		}
	}
	return truncate.Bytes(value.Type().TypeName(), maxShown)
}
