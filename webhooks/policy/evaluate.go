package policy

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// evaluation is what a policy comes to for a request and a param, whatever the
// bindings make of it. It follows, decision by decision, upstream's
// k8s.io/apiserver/pkg/admission/plugin/policy/validating.(*validator).Validate
// and webhook/matchconditions.(*matcher).Match.
type evaluation struct {
	// matched is false if a match condition is false, or failed under Ignore;
	// condition is its name then.
	matched   bool
	condition string
	// failure is why the policy could not be evaluated at all, under Fail, and
	// part what of it: "matchConditions", or "" if the cost limit was reached.
	failure, part string
	failed        bool
	rules         []ruleResult
	notes         []noteResult
	cost          int64
}

// ruleResult is what a rule comes to.
type ruleResult struct {
	// name is that of the rule, and index its place in the policy's validations,
	// or -1.
	name    string
	index   int
	outcome Outcome
	message string
	reason  metav1.StatusReason
	cost    int64
	// rule is nil for a check of podSecurity, of which standard says which it is.
	rule     *ruleProgram
	standard *standardResult
}

// standardResult is a check of Pod Security that failed.
type standardResult struct {
	level     podsecurity.Level
	violation podsecurity.Violation
}

// noteResult is what an audit annotation comes to: a value to publish, or an
// error under Fail.
type noteResult struct {
	*note
	value, err string
}

// failing is the outcome of what could not be evaluated.
func (p *compiledPolicy) failing() Outcome {
	if p.failurePolicy == admissionregistrationv1.Ignore {
		return Ignored
	}
	return Failed
}

// evaluator evaluates one policy for one request and param.
type evaluator struct {
	*request
	context context.Context //nolint:containedctx // it belongs to one call, like everything here
	policy  *compiledPolicy
	input   *expression.Input
	out     *evaluation
	// explained is nil unless it was asked for.
	explained *Evaluation
}

// run evaluates the policy.
func (e *evaluator) run() {
	defer func() {
		e.out.cost = e.input.Spent
		e.spent += e.input.Spent
	}()
	if !e.match() {
		return
	}
	if e.policy.podSecurity != nil {
		ok, err := e.policy.podSecurity.check(e)
		if err != nil {
			e.fail(err)
		}
		if !ok {
			return
		}
	}
	if len(e.policy.validations) == 0 && len(e.policy.notes) == 0 {
		return
	}
	first := len(e.out.rules)
	remaining, ok := e.validate()
	if !ok {
		return
	}
	e.messages(e.out.rules[first:], remaining)
	e.annotations()
}

// eval evaluates an expression. A failure of the list is the second result.
func (e *evaluator) eval(phase *expression.Phase, program *expression.Program) (value ref.Val, cost int64, failure *expression.EvaluationError, end error) {
	value, cost, err := phase.Eval(e.context, program)
	if errors.As(err, &failure) {
		err = nil
	}
	return value, cost, failure, err
}

// fails makes the whole policy one that could not be evaluated.
func (e *evaluator) fails(part string, err error) {
	e.out.rules, e.out.notes = e.out.rules[:0], e.out.notes[:0]
	if e.policy.failurePolicy != admissionregistrationv1.Ignore {
		e.out.failed, e.out.part, e.out.failure = true, part, err.Error()
	}
}

// match evaluates the match conditions.
func (e *evaluator) match() bool {
	conditions := e.policy.conditions
	e.out.matched = true
	if len(conditions) == 0 {
		return true
	}
	phase := e.input.Phase(celconfig.RuntimeCELCostBudgetMatchConditions)
	e.values.matching = true
	defer func() { e.values.matching = false }()
	var errs []error
	denied := -1
	for i := range conditions {
		c := &conditions[i]
		value, cost, failure, end := e.eval(phase, c.Program)
		e.explainCondition(c, value, cost, failure, end)
		switch {
		case end != nil:
			e.out.matched = e.policy.failurePolicy != admissionregistrationv1.Ignore
			e.out.condition = c.name
			e.fails("matchConditions", end)
			return false
		case failure != nil:
			errs = append(errs, failure)
			e.out.condition = c.name
		case value == types.False && denied < 0:
			denied = i
		}
		// What comes behind a condition that is false matters only if it can use
		// up the budget.
		if denied >= 0 && e.affordable(conditions[i+1:], phase.Remaining) {
			break
		}
	}
	switch {
	case denied >= 0:
		e.out.matched, e.out.condition = false, conditions[denied].name
		return false
	case len(errs) > 0:
		e.out.matched = e.policy.failurePolicy != admissionregistrationv1.Ignore
		e.fails("matchConditions", utilerrors.NewAggregate(errs))
		return false
	default:
		return true
	}
}

// affordable tells whether conditions cannot cost more than what remains. How
// large params are is not known.
func (e *evaluator) affordable(conditions []condition, remaining int64) bool {
	for i := range conditions {
		most, bounded := conditions[i].MostCost(e.textSize())
		if remaining -= most; !bounded || remaining < 0 || conditions[i].Uses().Has(expression.UsesParams) {
			return false
		}
	}
	return true
}

// validate evaluates the rules, and returns what is left for their messages.
func (e *evaluator) validate() (remaining int64, ok bool) {
	phase := e.input.Phase(celconfig.RuntimeCELCostBudget)
	e.out.rules = slices.Grow(e.out.rules, len(e.policy.validations))
	for i := range e.policy.validations {
		rule := &e.policy.validations[i]
		result := ruleResult{name: rule.name, index: i, outcome: Passed, rule: rule}
		if rule.Program != nil {
			value, cost, failure, end := e.eval(phase, rule.Program)
			result.cost = cost
			switch {
			case end != nil:
				e.fails("", end)
				return 0, false
			case failure != nil:
				result.outcome, result.message = e.policy.failing(), failure.Error()
			case value != types.True:
				result.outcome, result.message, result.reason = Violated, rule.message, rule.reason
			}
		}
		e.out.rules = append(e.out.rules, result)
	}
	return phase.Remaining, true
}

// messages evaluates the messageExpressions. As upstream, those of rules that are
// kept count, too: if together they cost more than what is left, no rule could be
// evaluated. But if none of them will be shown, and the rules were cheap, none is
// evaluated: messages look at what the rules looked at, and a quarter of the time
// of a request that is allowed would go into texts that nobody sees.
func (e *evaluator) messages(rules []ruleResult, remaining int64) {
	needed := remaining < celconfig.RuntimeCELCostBudget-cheapRules
	for i := range rules {
		needed = needed || rules[i].outcome == Violated && rules[i].rule.text != nil
	}
	if !needed {
		return
	}
	phase := e.input.WithoutAuthorizer(remaining)
	for i := range rules {
		result := &rules[i]
		if result.rule.text == nil {
			continue
		}
		value, _, failure, end := e.eval(phase, result.rule.text)
		if end != nil {
			for k := range rules {
				if rules[k].outcome == Passed || rules[k].outcome == Violated {
					rules[k].outcome, rules[k].message, rules[k].reason = e.policy.failing(), "failed messageExpression: "+end.Error(), ""
				}
			}
			return
		}
		if result.outcome != Violated || failure != nil {
			continue
		}
		if text := usable(value); text != "" {
			result.message = text
		}
	}
}

// cheapRules is what the rules of a policy cost, at most, that are taken to have
// cheap messages. It is a tenth of the budget.
const cheapRules = celconfig.RuntimeCELCostBudget / 10

// usable is the text of a message, or "" for one that upstream does not show.
func usable(value ref.Val) string {
	text, ok := value.Value().(string)
	if !ok {
		return ""
	}
	text = strings.TrimSpace(text)
	if len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return ""
	}
	return text
}

// annotations evaluates the audit annotations.
func (e *evaluator) annotations() {
	if len(e.policy.notes) == 0 {
		return
	}
	phase := e.input.WithoutAuthorizer(celconfig.RuntimeCELCostBudget)
	for i := range e.policy.notes {
		n := &e.policy.notes[i]
		if n.Program == nil {
			continue
		}
		value, cost, failure, end := e.eval(phase, n.Program)
		e.explainNote(n, value, cost, failure, end)
		switch {
		case end != nil:
			e.fails("", end)
			return
		case failure != nil:
			if e.policy.failurePolicy != admissionregistrationv1.Ignore {
				e.out.notes = append(e.out.notes, noteResult{note: n, err: failure.Error()})
			}
		default:
			if text, ok := value.Value().(string); ok {
				if text = strings.TrimSpace(text); text != "" {
					e.out.notes = append(e.out.notes, noteResult{note: n, value: text})
				}
			}
		}
	}
}
