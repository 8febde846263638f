package policy

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// Review decides on one request.
//
// The answer names every violation of every policy, ordered by the names of
// policy, binding and param and by the place of the rule. It is "could not
// tell", code 500, if the request cannot be read, if the context ends while
// policies are evaluated, or if they cost more than they may together. It keeps
// nothing of the request.
func (s *Set) Review(ctx context.Context, req admission.Request) admission.Response {
	return newRequest(newReview(ctx, s), req).decide()
}

// ReviewObserved is Review for a caller whose codec has checked that the objects
// are JSON, as webhooks/review does: they are not checked again. It tells
// observe, which may be nil, what there is to count; that is good only until
// observe returns.
func (s *Set) ReviewObserved(ctx context.Context, req admission.Request, observe func([]Observation)) admission.Response {
	v := newReview(ctx, s)
	v.observe = observe != nil
	r := newRequest(v, req)
	r.object.checked, r.oldObject.checked = true, true
	response := r.decide()
	if observe != nil && len(v.observations) > 0 {
		observe(v.observations)
	}
	return response
}

// Decide is Review with what led to the answer, and if it is to explain, with
// every policy and why it was evaluated or not.
func (s *Set) Decide(ctx context.Context, req admission.Request, explain bool) Decision {
	v := newReview(ctx, s)
	v.explain = explain
	response := newRequest(v, req).decide()
	return Decision{Response: response, Err: cmp.Or(v.err, v.tooLarge), Violations: v.violations, Evaluations: v.evaluations}
}

// decide evaluates every policy that is about the request.
func (r *request) decide() admission.Response {
	if exempt(r) {
		if r.explain {
			r.explainExempt()
		}
	} else {
		r.evaluateAll()
	}
	switch {
	case r.err != nil:
		return admission.Errored(500, r.err)
	case r.tooLarge != nil:
		// Not "could not tell", which a webhook that fails open takes for a yes.
		return admission.Errored(422, r.tooLarge)
	default:
		return r.response(r)
	}
}

// evaluateAll evaluates the policies in their order, each for the object and then
// for the pod template in it. It ends early if the request cannot be decided.
func (r *request) evaluateAll() {
	if r.Kind.Group == "" && r.Kind.Kind == "Pod" {
		r.checkElements(&r.object, r.refuse)
		r.checkElements(&r.oldObject, r.fail)
		if r.err != nil || r.tooLarge != nil {
			return
		}
	}
	numbers := r.set.index.candidates(r)
	template := r.templated()
	if r.err != nil || r.tooLarge != nil {
		return
	}
	var inTemplate []int
	if template != nil {
		inTemplate = r.set.index.candidates(template)
	}
	if r.explain {
		numbers = r.set.index.all
		if template != nil {
			inTemplate = r.set.index.all
		}
	}
	for r.err == nil && len(numbers)+len(inTemplate) > 0 {
		if len(inTemplate) == 0 || len(numbers) > 0 && numbers[0] <= inTemplate[0] {
			r.evaluate(r.set.policies[numbers[0]])
			numbers = numbers[1:]
			continue
		}
		if p := r.set.policies[inTemplate[0]]; p.checksTemplates && template.concerns(p) {
			template.evaluate(p)
		}
		inTemplate = inTemplate[1:]
	}
}

// smallest is the size of a pod whose elements are not worth counting.
const smallest = 32 << 10

// checkElements ends the review of a pod with more elements than are looked at. What
// cannot be read is for others to report.
func (r *request) checkElements(p *payload, end func(error)) {
	if len(p.raw) < smallest {
		return
	}
	if text, err := p.json(); err == nil {
		if err := workload.CheckElements(text); err != nil {
			end(fmt.Errorf("the pod cannot be checked: %w", err))
		}
	}
}

// evaluate adds what one policy says to the answer.
func (r *request) evaluate(p *compiledPolicy) {
	why, as, err := p.match.matches(r)
	switch {
	case r.err != nil:
		return
	case err == nil && why != Evaluated:
		r.explainNot(p, nil, why, "")
		return
	case len(p.bindings) == 0:
		r.explainNot(p, nil, NotInForce, "no binding puts it in force")
		return
	case err != nil:
		r.misconfigured(p, nil, err)
		return
	case p.broken != nil:
		r.misconfigured(p, nil, p.broken)
		return
	}
	if err := p.unservedParams(r.set.objects); err != nil {
		r.misconfigured(p, nil, err)
		return
	}
	for i := range p.bindings {
		if r.bind(p, &p.bindings[i], as); r.err != nil {
			return
		}
	}
}

// bind evaluates a policy as one binding puts it in force, with the object as the
// resource that the policy names.
func (r *request) bind(p *compiledPolicy, b *binding, as schema.GroupVersionResource) {
	if b.match != nil {
		why, _, err := b.match.matches(r)
		switch {
		case r.err != nil:
			return
		case err != nil:
			r.misconfigured(p, b, err)
			return
		case why != Evaluated:
			r.explainNot(p, b, why, "of the binding")
			return
		}
	}
	found, err := b.params.find(r.set.objects, r.Namespace)
	if err != nil {
		r.misconfigured(p, b, err)
		return
	}
	if len(found) == 0 {
		r.explainNot(p, b, NoParams, "")
		return
	}
	seen, err := r.as(p.match, as)
	switch {
	case r.err != nil:
		return
	case err != nil:
		r.misconfigured(p, b, err)
		return
	}
	seen.evaluateBound(p, b, found)
}

// evaluateBound evaluates a policy that a binding puts in force for each of the
// params.
func (r *request) evaluateBound(p *compiledPolicy, b *binding, found []*param) {
	if p.looksAtNamespace {
		if _, known := r.inNamespace(); !known {
			why := "namespaceObject is used"
			if !p.uses.Has(expression.UsesNamespace) {
				why = "its labels decide"
			}
			r.misconfigured(p, b, fmt.Errorf("namespace %q is not known, and %s", r.Namespace, why))
			return
		}
	}
	var started time.Time
	if r.observe && r.set.now != nil {
		started = r.set.now()
	}
	spent, outcome := r.spent, Done
	for _, param := range found {
		ev := r.evaluated(p, b, param)
		if r.limit(p); r.err != nil {
			return
		}
		if ev.failed {
			outcome = Failed
		}
		r.judge(p, b, param, ev)
		if r.limit(p); r.err != nil {
			return
		}
	}
	if r.observe {
		o := Observation{Kind: p.kind, Policy: p.name, Binding: b.name, Outcome: outcome, Cost: r.spent - spent}
		if r.set.now != nil {
			o.Elapsed = r.set.now().Sub(started)
		}
		r.observations = append(r.observations, o)
	}
}

// limit ends the review if its time or its cost is used up.
func (r *request) limit(p *compiledPolicy) {
	if err := context.Cause(r.context); err != nil {
		r.fail(fmt.Errorf("no decision in time, at %s: %w", p.title(""), err))
	}
	if r.spent > r.set.budget {
		r.fail(fmt.Errorf("the policies for this request cost more than %d, at %s", r.set.budget, p.title("")))
	}
}

// evaluated is what the policy comes to with a param. Without params it is the
// same for every binding. It is good until the next evaluation of the review.
func (r *request) evaluated(p *compiledPolicy, b *binding, param *param) *evaluation {
	shared := len(p.bindings) > 1 && !p.uses.Has(expression.UsesParams)
	if shared && !r.explain {
		if ev := r.kept[p]; ev != nil {
			return ev
		}
	}
	ev := &r.scratch
	if shared {
		ev = new(evaluation)
	}
	*ev = evaluation{rules: ev.rules[:0], notes: ev.notes[:0]}
	e := evaluator{request: r, context: r.context, policy: p, input: &r.input, out: ev}
	if r.explain {
		e.explained = &Evaluation{Kind: p.kind, Policy: p.name, Binding: b.name, Param: param.name(), Template: r.template, Why: Evaluated}
	}
	e.input.Reset(r, param.value(), p.variables)
	e.run()
	if shared {
		if r.kept == nil {
			r.kept = map[*compiledPolicy]*evaluation{}
		}
		r.kept[p] = ev
	}
	if e.explained != nil {
		r.evaluations = append(r.evaluations, e.finished())
	}
	return ev
}

// misconfigured denies a request that a policy is about but cannot be evaluated
// for, unless its failure policy is Ignore. As upstream, it does so whatever the
// binding's actions are.
func (r *request) misconfigured(p *compiledPolicy, b *binding, err error) {
	name := ""
	if b != nil {
		name = b.name
	}
	r.explainNot(p, b, Misconfigured, err.Error())
	outcome := p.failing()
	if outcome == Ignored {
		r.observeWhole(p, name, &Violation{Outcome: Ignored})
		return
	}
	what := "policy"
	if name != "" {
		what = "binding"
	}
	v := Violation{
		Kind: p.kind, Policy: p.name, Binding: name, Template: r.template, Outcome: outcome,
		Message: fmt.Sprintf("failed to configure %s: %v", what, err),
	}
	r.forgive(&v, p, func() bool { return !p.looksBeyond() && r.isHarmless() })
	r.observeWhole(p, name, &v)
	r.add(p, v, -1)
}

// judge does with what a policy comes to what the binding says.
func (r *request) judge(p *compiledPolicy, b *binding, param *param, ev *evaluation) {
	if !ev.matched {
		return
	}
	v := Violation{Kind: p.kind, Policy: p.name, Binding: b.name, Param: param.name(), Template: r.template, Actions: b.actions}
	if ev.failed {
		v.Rule, v.Message, v.Outcome = ev.part, ev.failure, Failed
		r.forgive(&v, p, func() bool { return !p.looksBeyond() && r.isHarmless() })
		r.observeRule(p, b, &v, ev.cost)
		r.add(p, v, 0)
		return
	}
	for i := range ev.rules {
		result := &ev.rules[i]
		v.Rule, v.Outcome, v.Exception = result.name, result.outcome, ""
		if result.outcome == Violated || result.outcome == Failed {
			v.Message, v.Reason = result.message, result.reason
			r.forgive(&v, p, func() bool { return r.existed(p, b, param, result) })
			if r.limit(p); r.err != nil {
				return
			}
			r.explainVerdict(i, &v)
			r.add(p, v, result.index)
		}
		r.observeRule(p, b, &v, result.cost)
	}
	for i := range ev.notes {
		note := &ev.notes[i]
		if note.err == "" {
			r.annotate(note.published, note.value)
			continue
		}
		v.Rule, v.Message, v.Reason, v.Outcome = note.name, note.err, "", Failed
		v.Actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		r.forgive(&v, p, func() bool { return false })
		r.observeRule(p, b, &v, 0)
		r.add(p, v, 0)
	}
}

// forgive lets a violation pass if there is an exception, or if it was there
// before.
func (r *request) forgive(v *Violation, p *compiledPolicy, existed func() bool) {
	rule := v.Rule
	if v.Outcome == Failed && !strings.Contains(rule, "[") && !strings.Contains(rule, ".") {
		rule = "" // all of the policy
	}
	var tried []TriedException
	v.Exception, tried = r.excepted(p, rule)
	r.tried = tried
	if v.Exception != "" {
		v.Outcome = Excepted
	} else if p.existing && existed() {
		v.Outcome = Existing
	}
}

func (v *review) observeRule(p *compiledPolicy, b *binding, of *Violation, cost int64) {
	if v.observe {
		v.observations = append(v.observations, Observation{
			Kind: p.kind, Policy: p.name, Binding: b.name, Rule: of.Rule, Outcome: of.Outcome, Exception: of.Exception, Cost: cost,
		})
	}
}

// observeWhole is about a policy or binding that could not be evaluated.
func (v *review) observeWhole(p *compiledPolicy, binding string, of *Violation) {
	if v.observe {
		v.observations = append(v.observations, Observation{
			Kind: p.kind, Policy: p.name, Binding: binding, Outcome: of.Outcome, Exception: of.Exception,
		})
	}
}
