package policy

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// judge returns the violation that a result of a policy is as a binding applies it:
// unless there is an exception, or the object violated the rule before the update, its
// actions count. It also returns the exceptions that were tried in vain, if they are to
// be explained.
func judge(t target, result *ruleResult) (Violation, []TriedException) {
	v := Violation{
		Kind: t.policy.kind, Policy: t.policy.name, Binding: t.bindingName(), Param: t.param.Name(), Template: t.request.template,
		Rule: result.name, Message: result.message, Reason: result.reason, Outcome: result.outcome, Contact: t.contact(),
	}
	if result.rule != nil {
		v.indexed, v.static = result.rule.indexed, result.rule.message
	}
	rule := result.name
	switch result.part {
	case partRule:
		v.Actions = t.binding.actions
	case partAnnotation:
		v.Actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	case partPolicy:
		v.Actions, rule = t.binding.actions, ""
	case partConfiguration:
		rule = ""
	}
	found := findException(t, result, rule)
	v.Exception, v.Unknown, v.containers = found.exception, found.unknown, found.containers
	switch {
	case v.Unknown != "":
	case v.Exception != "":
		v.Outcome = Excepted
	case t.policy.allowsExisting && isExisting(t, result):
		v.Outcome = Existing
	case t.policy.allowsExisting && existsWithout(t, result, &found):
		v.Outcome, v.Exception = Existing, titlesOf(found.together)
	default:
		found.tried = append(found.tried, applyBaselines(t, result, &v)...)
	}
	return v, found.tried
}

// isExisting reports whether the object violated the rule before the update, and the
// update does not make it worse: the rule can see no more in the object than it could
// see before.
func isExisting(t target, result *ruleResult) bool {
	switch result.part {
	case partRule:
		return existedBefore(t, result)
	case partPolicy, partConfiguration:
		return !t.policy.readsBeyondHarmless() && t.request.isHarmless()
	case partAnnotation:
	}
	return false
}

func existedBefore(t target, result *ruleResult) bool {
	r, p := t.request, t.policy
	v := r.decider
	if r.template == "" && r.Operation != admissionv1.Update || !slices.Contains(t.binding.actions, admissionregistrationv1.Deny) {
		return false // a warning or an audit annotation is repeated each time
	}
	if v.context.Err() != nil || !p.conditionsReadObjectOnly || !result.readsObjectOnly() {
		return false
	}
	if r.isHarmless() && !result.reads("finalizers") && !result.reads("ownerReferences") {
		return true
	}
	before := r.before()
	if before == nil {
		return false
	}
	object, err := r.object.json()
	if err != nil {
		return false // the review fails with it
	}
	old, err := before.object.json()
	if err != nil {
		v.fail(err)
		return false
	}
	// Cheap comparisons come first.
	if result.rule != nil && !result.rule.Reads().SameWithin(object, old, &v.compared) {
		return false
	}
	// A privilege is as dangerous as the program that has it.
	if path, isPod := r.podPath(); isPod && result.readsPrivileges(path) {
		if r.keepsPower == nil {
			r.keepsPower = new(podsecurity.KeepsPower(object.Get(path...), old.Get(path...), nil))
		}
		if !*r.keepsPower {
			return false
		}
	}
	// A policy that does not match the creation of such an object is about changes.
	if r.template == "" && !r.matchesCreation(p.match) {
		return false
	}
	for _, c := range [...]*matching.Constraints{p.match, t.binding.match} {
		if c != nil && before.matches(c).why != Evaluated {
			return false
		}
	}
	before.decider.uncounted = v.uncounted
	ev := evaluate(target{before, p, t.binding, t.param})
	v.spent, v.observed, v.uncounted = v.spent+before.decider.spent, v.observed+before.decider.observed, before.decider.uncounted
	before.decider.spent, before.decider.observed = 0, 0
	if err := before.decider.err; err != nil {
		v.fail(err)
		return false
	}
	if before.decider.undecided != nil {
		v.undecided = before.decider.undecided
		return true // unknown, which refuses nothing by itself
	}
	if !ev.matched || ev.failed {
		return false
	}
	i := slices.IndexFunc(ev.results, func(b ruleResult) bool {
		return b.part == partRule && b.name == result.name && b.outcome == result.outcome && (b.outcome != Failed || b.message == result.message)
	})
	return i >= 0 && (result.standard == nil || p.podSecurity.failedBefore(r, before, result.standard))
}
