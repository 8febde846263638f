package policy

import (
	"bytes"
	"iter"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// before is the request by which the object is judged as it was before the
// update: an update that changes nothing. A rule about the change itself, which
// compares object and oldObject, is kept by it. There is none, and it is nil, for
// anything but an update.
func (r *request) before() *request {
	if r.earlierRead {
		return r.earlier
	}
	r.earlierRead = true
	if r.template == "" && r.Operation == admissionv1.Update && r.oldObject.present() {
		old := r.AdmissionRequest
		old.Object = old.OldObject
		earlier := newRequest(r.aside(), admissionRequest(old))
		earlier.object.checked, earlier.oldObject.checked = r.oldObject.checked, r.oldObject.checked
		earlier.whole = true
		r.earlier = earlier
	}
	return r.earlier
}

// aside is a review whose answer nobody gets.
func (v *review) aside() *review {
	return &review{set: v.set, context: v.context, now: v.now, asks: v.asks}
}

// existed tells whether the object violated the rule before the update, and the
// update does not make it worse: the rule can see no more in the object than it
// could see before.
func (r *request) existed(p *compiledPolicy, b *binding, param *param, result *ruleResult) bool {
	if r.template == "" && r.Operation != admissionv1.Update || !slices.Contains(b.actions, admissionregistrationv1.Deny) {
		return false // what is only warned about or noted is so each time
	}
	if r.context.Err() != nil || !p.lasting || !result.lasting() {
		return false
	}
	if r.isHarmless() && !result.touches("finalizers") && !result.touches("ownerReferences") {
		return true
	}
	earlier := r.before()
	if earlier == nil {
		return false
	}
	object, err := r.object.json()
	if err != nil {
		return false // the review fails with it
	}
	old, err := earlier.object.json()
	if err != nil {
		r.fail(err)
		return false
	}
	// What is cheap to see comes first.
	if result.rule != nil && !result.rule.Reads().SameWithin(object, old, &r.compared) {
		return false
	}
	// A policy that is not about the creation of such an object is about changes.
	if r.template == "" && !p.match.createsSuch(r) {
		return false
	}
	for _, c := range [...]*constraints{p.match, b.match} {
		if c == nil {
			continue
		}
		if why, _, err := c.matches(earlier); err != nil || why != Evaluated {
			return false
		}
	}
	ev := earlier.evaluatedOnce(p, b, param)
	r.spent += earlier.spent
	earlier.spent = 0
	if earlier.err != nil {
		r.fail(earlier.err)
		return false
	}
	if !ev.matched || ev.failed {
		return false
	}
	for i := range ev.rules {
		before := &ev.rules[i]
		if before.name != result.name || before.outcome != result.outcome || before.outcome == Failed && before.message != result.message {
			continue
		}
		return result.standard == nil || p.podSecurity.stood(r, earlier, result.standard)
	}
	return false
}

// lasting tells whether what the rule says depends on the object alone, and not
// on who asks for what, or on the change. Of other rules, what was so before says
// nothing.
func (result *ruleResult) lasting() bool { return result.rule == nil || result.rule.lasting }

// touches tells whether the rule may look at a field of the metadata.
func (result *ruleResult) touches(field string) bool {
	return result.rule != nil && result.rule.Reads().Touches("metadata", field)
}

// looksBeyond tells whether a rule of the policy may look at what isHarmless lets
// change, at the change itself or at who asks. If such a policy cannot be evaluated,
// nobody knows what the rule would have said.
func (p *compiledPolicy) looksBeyond() bool {
	return slices.ContainsFunc(p.validations, func(rule ruleProgram) bool {
		return rule.Program != nil && (!isLasting(rule.Program) ||
			rule.Reads().Touches("metadata", "finalizers") || rule.Reads().Touches("metadata", "ownerReferences"))
	})
}

// isLasting is lasting for one expression.
func isLasting(p *expression.Program) bool {
	return !p.Uses().Has(expression.UsesOldObject | expression.UsesAsker | expression.UsesAuthorizer)
}

// evaluatedOnce is evaluated for an earlier request, which several rules of a
// policy ask about.
func (r *request) evaluatedOnce(p *compiledPolicy, b *binding, param *param) *evaluation {
	key := evaluatedKey{policy: p}
	if param != nil {
		key.param = param.object
	}
	if ev := r.once[key]; ev != nil {
		return ev
	}
	ev := *r.evaluated(p, b, param)
	ev.rules, ev.notes = slices.Clone(ev.rules), nil
	if r.once == nil {
		r.once = map[evaluatedKey]*evaluation{}
	}
	r.once[key] = &ev
	return &ev
}

// evaluatedKey is what an evaluation depends on besides the request.
type evaluatedKey struct {
	policy *compiledPolicy
	param  *unstructured.Unstructured
}

// isHarmless tells whether the request is an update that must get through for an
// object to go away: one that changes nothing but finalizers, and of an object
// that is being deleted, owners.
func (r *request) isHarmless() bool {
	if !r.harmlessRead {
		r.harmlessRead, r.harmless = true, r.changesNothingElse()
	}
	return r.harmless
}

func (r *request) changesNothingElse() bool {
	if r.Operation != admissionv1.Update || r.template != "" || r.SubResource != "" {
		return false
	}
	object, err := r.object.json()
	if err != nil || len(object) == 0 {
		return false
	}
	old, err := r.oldObject.json()
	if err != nil || len(old) == 0 {
		return false
	}
	deleting := old.Get("metadata", "deletionTimestamp").Kind() == rawjson.String
	return sameBut(object, old, func(name rawjson.Value) bool { return name.Is("metadata") }) &&
		sameBut(object.Get("metadata"), old.Get("metadata"), func(name rawjson.Value) bool {
			return name.Is("finalizers") || name.Is("managedFields") || name.Is("resourceVersion") || name.Is("generation") ||
				deleting && name.Is("ownerReferences")
		})
}

// sameBut tells whether two objects are written alike, in the same order, but for
// members that are left out. The API server writes both, and in one order.
func sameBut(a, b rawjson.Value, without func(name rawjson.Value) bool) bool {
	next, stop := iter.Pull2(b.Members())
	defer stop()
	pull := func() (name, member rawjson.Value, ok bool) {
		for {
			if name, member, ok = next(); !ok || !without(name) {
				return name, member, ok
			}
		}
	}
	for name, member := range a.Members() {
		if without(name) {
			continue
		}
		other, before, ok := pull()
		if !ok || !bytes.Equal(name, other) || !bytes.Equal(member, before) {
			return false
		}
	}
	_, _, more := pull()
	return !more
}
