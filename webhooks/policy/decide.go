package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Input is a request on which policies decide.
type Input struct {
	Request admission.Request
	// Checked says that the objects of the request are known to be JSON without space around
	// them, as webhooks/review decodes them. They are not checked again then.
	Checked bool
	// Index is that of the AdmissionReview that the objects are part of, nil for none.
	Index *rawjson.Index
	// Violations requests Decision.Violations.
	Violations bool
	// Explain requests Decision.Violations and Decision.Evaluations.
	Explain bool
	// Entries requests Violation.Entry, and with it Decision.Violations.
	Entries bool
	// Observe gets what there is to count, and may be nil. The slice is valid during the call
	// only.
	Observe func([]Observation)
}

// Decide decides on one request.
//
// The answer names every violation of every policy, ordered by the names of
// policy, binding and param and by the index of the rule. Its code is 500 ("cannot
// decide") if the request cannot be read, if the context ends while policies are
// evaluated, or if they exceed the budget of the request. It keeps nothing of the request.
func (s *Set) Decide(ctx context.Context, in Input) Decision {
	v := newDecider(ctx, s)
	defer v.free()
	v.explain, v.entries, v.observe, v.index = in.Explain, in.Entries, in.Observe != nil, in.Index
	r := newRequest(v, in.Request)
	r.object.checked, r.oldObject.checked = in.Checked, in.Checked
	d := Decision{response: v.decide(r)}
	d.Err, d.Undecided, d.Evaluations = cmp.Or(v.err, v.rejection), v.undecided, v.evaluations
	if in.Violations || in.Explain || in.Entries {
		d.Violations, v.answer.violations = v.answer.violations, nil
	}
	if len(v.observations) > 0 {
		in.Observe(v.observations)
	}
	return d
}

// decider is the state of one call of Decide. Its steps are match (match.go),
// evaluate (evaluate.go), judge (judge.go) and answer (answer.go).
type decider struct {
	set     *Set
	context context.Context //nolint:containedctx // it belongs to one call, like everything here
	answer  answer
	// index is that of the AdmissionReview, nil for none.
	index *rawjson.Index
	// err is why the request cannot be decided.
	err error
	// undecided is why a rule is neither satisfied nor violated: its result depends on a
	// value that is not known. It is nil outside of recordings.
	undecided error
	// unanswered is why an answer of the authorizer is not known that the policy that is being
	// evaluated has asked for. It is nil outside of recordings.
	unanswered error
	// rejection is why the object is rejected without evaluating a policy: otherwise
	// its author could avoid evaluation by padding it. A kubelet does not even notice
	// volumes that no container mounts.
	rejection error
	// spent is the cost of all evaluations so far whose cost is counted, and uncounted is the bound of that of all others.
	spent     int64
	uncounted float64
	// observed is spent for those who observe, see counting.
	observed int64
	// objects are the values of the objects that were read.
	objects []ref.Val
	// matched is how many names and images of exceptions were compared with containers.
	matched int
	// compared is how much may still be compared with the object before the update.
	compared int
	// hashed is how much was read for the entries of baselines, in bytes.
	hashed int
	// explain, entries and observe say what is recorded besides the answer.
	explain, entries, observe bool
	evaluations               []Evaluation
	observations              []Observation
	// request is the one of the review, see newRequest.
	request request
	// input and scratch are reused by each evaluation that is not shared.
	input   expression.Input
	scratch evaluation
	// noParams are those of a binding without: the policy is evaluated once.
	noParams [1]*matching.Param
	// caching is the authorizer, with what it has answered in this review.
	caching authorizer.UnconditionalAuthorizer
	// now is the time when the clock was first read for an expression or exception.
	now time.Time
	// ended is when the evaluation before ended for those who observe, or the first one began.
	ended time.Time
}

// deciders keeps the memory of decisions for later ones: it is most of what a review with many policies takes.
var deciders = sync.Pool{New: func() any { return new(decider) }} //nolint:gochecknoglobals // a pool is shared by its nature

func newDecider(ctx context.Context, set *Set) *decider {
	v, _ := deciders.Get().(*decider)
	v.set, v.context, v.compared = set, ctx, expression.MostCompared
	return v
}

// mostKept is how many elements of a list are kept with the memory of a review.
const mostKept = 256

// free gives back the memory of a review that nothing refers to any more, but for the response. It keeps nothing of the
// request.
func (v *decider) free() {
	for _, object := range v.objects {
		celvalue.Release(object)
	}
	*v = decider{
		objects:      emptied(v.objects),
		answer:       answer{violations: emptied(v.answer.violations), denied: emptied(v.answer.denied)},
		scratch:      evaluation{results: emptied(v.scratch.results)},
		observations: emptied(v.observations),
	}
	deciders.Put(v)
}

// emptied returns the memory of a list for another, and nil if it is large.
func emptied[T any](list []T) []T {
	if cap(list) > mostKept {
		return nil
	}
	clear(list[:cap(list)])
	return list[:0]
}

// detached returns a review of the same call whose answer is dropped.
func (v *decider) detached() *decider {
	return &decider{set: v.set, index: v.index, context: v.context, now: v.now, caching: v.caching}
}

// fail ends the review without a decision. The first error is kept.
func (v *decider) fail(err error) {
	if v.err == nil {
		v.err = err
	}
}

// reject ends the review with a rejection of the object.
func (v *decider) reject(err error) {
	if v.rejection == nil {
		v.rejection = err
	}
}

func (v *decider) hasEnded() bool { return v.err != nil || v.rejection != nil }

// time returns the time of the review, and false if there is no clock.
func (v *decider) time() (time.Time, bool) {
	if v.now.IsZero() && v.set.now != nil {
		v.now = v.set.now()
	}
	return v.now, !v.now.IsZero()
}

// target is what is evaluated and judged: a policy, as one of its bindings applies
// it, for a request and a param. Binding and param may be nil.
type target struct {
	request *request
	policy  *compiledPolicy
	binding *binding
	param   *matching.Param
}

// bindingName returns the name of the binding, and "" without one.
func (t *target) bindingName() string {
	if t.binding == nil {
		return ""
	}
	return t.binding.name
}

// contact returns whom to ask about a denial.
func (t *target) contact() string {
	if t.binding == nil {
		return t.policy.contact
	}
	return cmp.Or(t.binding.contact, t.policy.contact)
}

// decide evaluates every policy that matches the request and returns the answer.
func (v *decider) decide(r *request) admission.Response {
	if isExempt(r) {
		v.explainExempt(r)
	} else {
		v.decidePolicies(r)
	}
	switch {
	case v.err != nil:
		return admission.Errored(500, v.err)
	case v.rejection != nil:
		// Not "cannot decide", which a webhook that fails open treats as allowed.
		return admission.Errored(422, v.rejection)
	}
	response := v.answer.response(r)
	if v.undecided != nil && response.Allowed {
		v.err = v.undecided
		return admission.Errored(500, v.err)
	}
	return response
}

// decidePolicies decides by the policies in their order, each for the object and then
// for the pod template in it. It ends early if the request cannot be decided.
func (v *decider) decidePolicies(r *request) {
	if r.Kind.Group == "" && r.Kind.Kind == "Pod" {
		v.checkElements(&r.object, v.reject)
		v.checkElements(&r.oldObject, v.fail)
		if v.hasEnded() {
			return
		}
	}
	forObject := v.set.index.candidates(r)
	template := templateRequest(r)
	if v.hasEnded() {
		return
	}
	var forTemplate []int
	if template != nil {
		forTemplate = v.set.index.candidates(template)
	}
	if v.explain {
		forObject = v.set.index.all
		if template != nil {
			forTemplate = v.set.index.all
		}
	}
	for v.err == nil && len(forObject)+len(forTemplate) > 0 {
		if len(forTemplate) == 0 || len(forObject) > 0 && forObject[0] <= forTemplate[0] {
			v.decidePolicy(r, v.set.policies[forObject[0]])
			forObject = forObject[1:]
			continue
		}
		if p := v.set.policies[forTemplate[0]]; p.checksTemplates && template.needsDecision(p) {
			v.decidePolicy(template, p)
		}
		forTemplate = forTemplate[1:]
	}
}

// minCounted is the size of the smallest pod whose elements are counted.
const minCounted = 32 << 10

// checkElements ends the review of a pod with too many elements. What is no JSON is reported by
// whatever reads it.
func (v *decider) checkElements(p *payload, end func(error)) {
	if len(p.raw) < minCounted {
		return
	}
	pod, err := p.json()
	if err != nil {
		return
	}
	c := pod.Cursor()
	if node, ok := v.index.Find(pod, "request"); ok {
		c = v.index.Cursor(node)
	}
	if err := workload.CheckElements(c); err != nil {
		end(fmt.Errorf("the pod cannot be checked: %w", err))
	}
}

// decidePolicy matches, evaluates and judges a policy for each of its bindings and
// params, and adds the violations to the answer.
func (v *decider) decidePolicy(r *request, p *compiledPolicy) {
	t := target{request: r, policy: p}
	matched := matchPolicy(r, p)
	if v.err != nil {
		return
	}
	if matched.why != Evaluated {
		v.skip(t, matched)
		return
	}
	for i := range p.bindings {
		t.request, t.binding = r, &p.bindings[i]
		bound := matchBinding(r, p, t.binding, matched.resource)
		if v.err != nil {
			return
		}
		t.request = bound.request
		if bound.why != Evaluated {
			v.skip(t, bound)
			continue
		}
		if v.decideBinding(t, bound.params); v.err != nil {
			return
		}
	}
}

// skip records why a policy or binding is not evaluated. One that matches but cannot
// be evaluated denies the request unless its failure policy is Ignore: as upstream,
// whatever the binding's actions are.
func (v *decider) skip(t target, m match) {
	v.explainSkipped(t, m)
	if m.why != Misconfigured {
		return
	}
	if errors.Is(m.err, ErrUnanswered) {
		v.noteUndecided(title(t.policy.kind, t.policy.name, t.bindingName()), m.err)
		return
	}
	what := "policy"
	if t.bindingName() != "" {
		what = "binding"
	}
	v.apply(t, 0, &ruleResult{
		part: partConfiguration, index: -1, outcome: t.policy.failureOutcome(),
		message: fmt.Sprintf("failed to configure %s: %v", what, m.err),
	})
}

// decideBinding evaluates and judges a policy, as a binding applies it, for each of
// the params.
func (v *decider) decideBinding(t target, params []*matching.Param) {
	if v.observe && v.ended.IsZero() && v.set.now != nil {
		v.ended = v.set.now()
	}
	observed, outcome := v.observed, Done
	for _, t.param = range params {
		ev := evaluate(t)
		if v.checkLimits(t.policy); v.err != nil {
			return
		}
		if ev.failed {
			outcome = Failed
		}
		ev.modes.addTo(&v.answer)
		ev.modes = nil // bindings may share the evaluation
		for i := range ev.results {
			if v.apply(t, i, &ev.results[i]); v.err != nil {
				return
			}
		}
		for _, a := range ev.annotations {
			v.answer.annotate(a.published, a.value)
		}
	}
	if v.observe {
		o := Observation{Kind: t.policy.kind, Policy: t.policy.name, Binding: t.binding.name, Outcome: outcome, Cost: v.observed - observed}
		if v.set.now != nil {
			started := v.ended
			v.ended = v.set.now()
			o.Elapsed = v.ended.Sub(started)
		}
		v.observations = append(v.observations, o)
	}
}

// apply judges a result, the i-th of an evaluation, and adds the violation that it may
// be to the answer.
func (v *decider) apply(t target, i int, result *ruleResult) {
	if result.isViolation() {
		violation, tried := judge(t, result)
		if v.checkLimits(t.policy); v.err != nil {
			return
		}
		v.explainVerdict(i, &violation, tried)
		v.observeRule(t, &violation, result.cost)
		v.answer.add(&violation, result.index)
		return
	}
	v.observeRule(t, &Violation{Rule: result.name, Outcome: result.outcome}, result.cost)
}

// checkLimits ends the review if its time or its cost is used up.
func (v *decider) checkLimits(p *compiledPolicy) {
	if err := context.Cause(v.context); err != nil {
		v.fail(fmt.Errorf("no decision in time, at %s: %w", title(p.kind, p.name, ""), err))
	}
	if v.spent > v.set.budget {
		v.fail(fmt.Errorf("the policies for this request cost more than %d, at %s", v.set.budget, title(p.kind, p.name, "")))
	}
}

func (v *decider) observeRule(t target, of *Violation, cost int64) {
	if v.observe {
		v.observations = append(v.observations, Observation{
			Kind: t.policy.kind, Policy: t.policy.name, Binding: t.bindingName(),
			Rule: of.Rule, Outcome: of.Outcome, Exception: of.Exception, Baseline: of.Baseline, Cost: cost,
		})
	}
}
