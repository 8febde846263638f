package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// evaluation is the result of evaluating a policy for a request and a param,
// whatever the binding makes of it. It follows, decision by decision, upstream's
// k8s.io/apiserver/pkg/admission/plugin/policy/validating.(*validator).Validate
// and webhook/matchconditions.(*matcher).Match.
type evaluation struct {
	// matched is false if a match condition is false, or failed under Ignore;
	// condition is its name then.
	matched   bool
	condition string
	// failed is true if the policy could not be evaluated, under Fail: then its one
	// result says why.
	failed  bool
	results []ruleResult
	// annotations are the audit annotations to publish.
	annotations []annotationValue
	// modes are the warnings and annotations that the labels of the namespace ask for.
	modes modeResults
	cost  int64
}

// part is the part of a policy that a result is about.
type part uint8

const (
	// partRule is a validation, or a check of podSecurity.
	partRule part = iota
	// partAnnotation is an audit annotation that could not be evaluated.
	partAnnotation
	// partPolicy is a policy that could not be evaluated.
	partPolicy
	// partConfiguration is a policy or binding that cannot be evaluated as it is
	// configured.
	partConfiguration
)

// ruleResult is the result of one rule, or of another part of a policy.
type ruleResult struct {
	part part
	// name is that of the rule. For partPolicy it says what of the policy failed:
	// "matchConditions", "podSecurity", or "" if the cost limit was reached.
	name string
	// index is what upstream calls the index of the expression: the place of the rule in
	// the policy's validations, or -1.
	index   int
	outcome Outcome
	message string
	reason  metav1.StatusReason
	cost    int64
	// rule is nil for anything but a validation, and standard for anything but a
	// check of podSecurity that failed.
	rule     *ruleProgram
	standard *standardResult
}

// isViolation reports whether the rule is violated, or counts as violated.
func (result *ruleResult) isViolation() bool {
	return result.outcome == Violated || result.outcome == Failed
}

// standardResult is a check of Pod Security that failed.
type standardResult struct {
	level     podsecurity.Level
	violation podsecurity.Violation
}

// annotationValue is the value of an audit annotation.
type annotationValue struct{ published, value string }

// failureOutcome returns the outcome of a part that could not be evaluated.
func (p *compiledPolicy) failureOutcome() Outcome {
	if p.failurePolicy == admissionregistrationv1.Ignore {
		return Ignored
	}
	return Failed
}

// evaluationKey is what an evaluation depends on besides the request. The param is nil
// for a policy that does not use params.
type evaluationKey struct {
	policy *compiledPolicy
	param  *unstructured.Unstructured
}

// evaluate evaluates a policy for a request and a param. The result is valid until the
// next evaluation of the review.
//
// A policy that does not use params is evaluated once for all of its bindings, and one
// before an update once for all of its rules.
func evaluate(t target) *evaluation {
	r, p := t.request, t.policy
	v := r.decider
	usesParams := p.uses.Has(expression.UsesParams)
	out := &v.scratch
	if !v.explain && (r.isBefore || len(p.bindings) > 1 && !usesParams) {
		key := evaluationKey{policy: p}
		if usesParams && t.param != nil {
			key.param = t.param.Object
		}
		if known := r.evaluations[key]; known != nil {
			return known
		}
		if r.evaluations == nil {
			r.evaluations = map[evaluationKey]*evaluation{}
		}
		out = new(evaluation)
		r.evaluations[key] = out
	}
	v.unanswered = nil
	*out = evaluation{matched: true, results: out.results[:0], annotations: out.annotations[:0]}
	e := evaluator{request: r, policy: p, input: &v.input, out: out}
	if v.explain {
		e.explanation = &Evaluation{Kind: p.kind, Policy: p.name, Binding: t.bindingName(), Param: t.param.Name(), Template: r.template, Why: Evaluated, Contact: t.contact()}
	}
	e.input.Reset(r, t.param.Value(), p.variables)
	var times int64
	e.input.Counting, times = v.counting(&t)
	e.evaluate()
	out.cost = e.input.Spent
	if out.failed {
		out.results[0].cost = out.cost
	}
	v.spent += e.input.Spent
	v.observed += times * e.input.Spent
	if e.explanation != nil {
		v.evaluations = append(v.evaluations, e.explain())
	}
	return out
}

// evaluator evaluates one policy for one request and param.
type evaluator struct {
	request *request
	policy  *compiledPolicy
	input   *expression.Input
	out     *evaluation
	// explanation is nil unless it was asked for.
	explanation *Evaluation
}

func (e *evaluator) evaluate() {
	if !e.evaluateConditions() || !e.checkPodSecurity() {
		return
	}
	if len(e.policy.validations) == 0 && len(e.policy.auditAnnotations) == 0 {
		return
	}
	first := len(e.out.results)
	remaining, ok := e.evaluateValidations()
	if !ok {
		return
	}
	e.evaluateMessages(e.out.results[first:], remaining)
	e.evaluateAnnotations()
}

// evaluated is the result of one expression: a value, a failure of the expression
// alone, or the error that ends its phase.
type evaluated struct {
	value   ref.Val
	cost    int64
	failure *expression.EvaluationError
	end     error
}

// err returns the failure or the error.
func (result *evaluated) err() error {
	if result.failure != nil {
		return result.failure
	}
	return result.end
}

func (e *evaluator) evaluateExpression(phase *expression.Phase, program *expression.Program) evaluated {
	value, cost, err := phase.Eval(e.request.decider.context, program)
	failure := e.request.decider.unansweredError(program)
	if err != nil {
		var failed *expression.EvaluationError
		if !errors.As(err, &failed) {
			return evaluated{value: value, cost: cost, end: err}
		}
		failure = cmp.Or(failure, failed)
	}
	return evaluated{value: value, cost: cost, failure: failure}
}

// isUndecided reports whether an expression has no result because of a value that is not known,
// and notes it for the review.
func (e *evaluator) isUndecided(failure *expression.EvaluationError) bool {
	if failure == nil || !errors.Is(failure, ErrUnanswered) {
		return false
	}
	e.request.decider.noteUndecided(title(e.policy.kind, e.policy.name, ""), failure)
	return true
}

// failPolicy replaces the results by one: the whole policy could not be evaluated.
func (e *evaluator) failPolicy(name string, err error) {
	e.out.results, e.out.annotations = e.out.results[:0], e.out.annotations[:0]
	if e.policy.failurePolicy == admissionregistrationv1.Ignore {
		return
	}
	e.out.failed = true
	e.out.results = append(e.out.results, ruleResult{part: partPolicy, name: name, outcome: Failed, message: err.Error()})
}

// evaluateConditions evaluates the match conditions, and reports whether the policy is
// to be evaluated.
func (e *evaluator) evaluateConditions() bool {
	conditions := e.policy.conditions
	if len(conditions) == 0 {
		return true
	}
	phase := e.input.Phase(celconfig.RuntimeCELCostBudgetMatchConditions)
	e.request.values.matching = true
	defer func() { e.request.values.matching = false }()
	fail := func(name string, err error) {
		e.out.matched, e.out.condition = e.policy.failurePolicy != admissionregistrationv1.Ignore, name
		e.failPolicy("matchConditions", err)
	}
	var errs []error
	failed, denied := "", -1
	var (
		undecided *expression.Condition
		unknown   error
	)
	for i := range conditions {
		c := &conditions[i]
		result := e.evaluateExpression(phase, c.Program)
		e.explainCondition(c, result)
		switch {
		case result.end != nil:
			fail(c.Name, result.end)
			return false
		case result.failure != nil && errors.Is(result.failure, ErrUnanswered):
			undecided = c
			unknown = result.failure
		case result.failure != nil:
			errs, failed = append(errs, result.failure), c.Name
		case result.value == types.False && denied < 0:
			denied = i
		}
	}
	switch {
	case denied >= 0:
		e.out.matched, e.out.condition = false, conditions[denied].Name
		return false
	case undecided != nil:
		e.request.decider.noteUndecided(title(e.policy.kind, e.policy.name, ""), unknown)
		e.out.matched, e.out.condition = false, undecided.Name
		return false
	case len(errs) > 0:
		fail(failed, utilerrors.NewAggregate(errs))
		return false
	default:
		return true
	}
}

// checkPodSecurity adds the results of the Pod Security Standard, and reports whether
// the evaluation goes on.
func (e *evaluator) checkPodSecurity() bool {
	if e.policy.podSecurity == nil {
		return true
	}
	failure, err := e.policy.podSecurity.check(e.request, e.out)
	switch {
	case errors.Is(failure, ErrUnanswered):
		e.request.decider.noteUndecided(title(e.policy.kind, e.policy.name, ""), failure)
		return false
	case failure != nil:
		e.failPolicy("podSecurity", failure)
		return false
	case err != nil:
		e.request.decider.fail(err)
		return false
	default:
		return true
	}
}

// evaluateValidations evaluates the rules, and returns the budget that remains for
// their messages.
func (e *evaluator) evaluateValidations() (remaining int64, ok bool) {
	phase := e.input.Phase(celconfig.RuntimeCELCostBudget)
	e.out.results = slices.Grow(e.out.results, len(e.policy.validations))
	for i := range e.policy.validations {
		rule := &e.policy.validations[i]
		out := ruleResult{name: rule.name, index: i, outcome: Passed, rule: rule}
		if rule.Program != nil {
			result := e.evaluateExpression(phase, rule.Program)
			out.cost = result.cost
			switch {
			case result.end != nil:
				e.failPolicy("", result.end)
				return 0, false
			case e.isUndecided(result.failure):
				out.outcome = Ignored
			case result.failure != nil:
				out.outcome, out.message = e.policy.failureOutcome(), result.failure.Error()
			case result.value != types.True:
				out.outcome, out.message, out.reason = Violated, rule.message, rule.reason
			}
		}
		e.out.results = append(e.out.results, out)
	}
	return phase.Remaining, true
}

// cheapRules is what the rules of a policy cost, at most, that are taken to have
// cheap messages. It is a tenth of the budget.
const cheapRules = celconfig.RuntimeCELCostBudget / 10

// evaluateMessages evaluates the messageExpressions. As upstream, those of rules that
// pass count too: if together they cost more than what remains, no rule could be
// evaluated. But if none of them will be shown, and the rules were cheap, none is
// evaluated: messages read what the rules read, and a quarter of the time of a request
// that is allowed would go into messages that nobody sees.
func (e *evaluator) evaluateMessages(results []ruleResult, remaining int64) {
	needed := remaining < celconfig.RuntimeCELCostBudget-cheapRules
	for i := range results {
		needed = needed || results[i].outcome == Violated && results[i].rule.messageExpression != nil
	}
	if !needed {
		return
	}
	phase := e.input.WithoutAuthorizer(remaining)
	for i := range results {
		out := &results[i]
		if out.rule.messageExpression == nil {
			continue
		}
		result := e.evaluateExpression(phase, out.rule.messageExpression)
		if result.end != nil {
			for k := range results {
				if results[k].outcome == Passed || results[k].outcome == Violated {
					results[k].outcome, results[k].message, results[k].reason = e.policy.failureOutcome(), "failed messageExpression: "+result.end.Error(), ""
				}
			}
			return
		}
		if out.outcome == Violated && result.failure != nil && errors.Is(result.failure, ErrUnanswered) {
			out.message = fmt.Sprintf("%s (%v)", out.message, ErrUnanswered)
		}
		if out.outcome == Violated && result.failure == nil {
			if message := validMessage(result.value); message != "" {
				out.message = message
			}
		}
	}
}

// validMessage returns the value of a messageExpression, or "" for one that upstream
// does not show.
func validMessage(value ref.Val) string {
	message, _ := value.Value().(string)
	message = strings.TrimSpace(message)
	if len(message) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(message, "\n") {
		return ""
	}
	return message
}

// evaluateAnnotations evaluates the audit annotations.
func (e *evaluator) evaluateAnnotations() {
	if len(e.policy.auditAnnotations) == 0 {
		return
	}
	phase := e.input.WithoutAuthorizer(celconfig.RuntimeCELCostBudget)
	for i := range e.policy.auditAnnotations {
		a := &e.policy.auditAnnotations[i]
		if a.Program == nil {
			continue
		}
		result := e.evaluateExpression(phase, a.Program)
		e.explainAnnotation(a, result)
		switch {
		case result.end != nil:
			e.failPolicy("", result.end)
			return
		case e.isUndecided(result.failure):
		case result.failure != nil:
			if e.policy.failurePolicy != admissionregistrationv1.Ignore {
				e.out.results = append(e.out.results, ruleResult{part: partAnnotation, name: a.name, outcome: Failed, message: result.failure.Error()})
			}
		default:
			value, _ := result.value.Value().(string)
			if value = strings.TrimSpace(value); value != "" {
				e.out.annotations = append(e.out.annotations, annotationValue{a.published, value})
			}
		}
	}
}
