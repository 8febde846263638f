package policy

import (
	"bytes"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// before returns the request by which the object is judged as it was before the
// update: an update that changes nothing. A rule about the change itself, which compares
// object and oldObject, passes for it. It is nil for anything but an update.
func (r *request) before() *request {
	if r.earlierRead {
		return r.earlier
	}
	r.earlierRead = true
	if r.template == "" && r.Operation == admissionv1.Update && r.oldObject.present() {
		old := r.AdmissionRequest
		old.Object = old.OldObject
		earlier := newRequest(r.decider.detached(), admissionRequest(old))
		earlier.object.checked, earlier.oldObject.checked = r.oldObject.checked, r.oldObject.checked
		earlier.isBefore = true
		r.earlier = earlier
	}
	return r.earlier
}

// readsObjectOnly reports whether the result depends on the object alone, and not on
// who makes the request, or on the change. For other rules, the result before the update
// says nothing.
func (result *ruleResult) readsObjectOnly() bool {
	return result.rule == nil || result.rule.readsObjectOnly
}

// reads reports whether the rule may read a field of the metadata.
func (result *ruleResult) reads(field string) bool {
	return result.rule != nil && result.rule.Reads().Touches("metadata", field)
}

// readsPrivileges is ReadsPrivileges for the rule.
func (result *ruleResult) readsPrivileges(path []string) bool {
	return result.rule != nil && ReadsPrivileges(result.rule.Reads(), path...)
}

// ReadsPrivileges reports whether a rule may read what a pod is allowed on its node, of the
// pod at the path of the object.
func ReadsPrivileges(reads *expression.Reads, path ...string) bool {
	return slices.ContainsFunc([][]string{
		{"hostIPC"},
		{"hostNetwork"},
		{"hostPID"},
		{"hostUsers"},
		{"securityContext"},
		{"volumes", expression.EachElement, "hostPath"},
		{"containers", expression.EachElement, "securityContext"},
		{"initContainers", expression.EachElement, "securityContext"},
		{"ephemeralContainers", expression.EachElement, "securityContext"},
	}, func(field []string) bool { return reads.Touches(slices.Concat(path, []string{"spec"}, field)...) })
}

// podPath returns the path of the pod, or of the pod template, in the object. It is false for
// other kinds.
func (r *request) podPath() ([]string, bool) {
	if r.Kind.Group == "" && r.Kind.Kind == "Pod" {
		return nil, true
	}
	return r.decider.set.workloads.Template(r.Kind.Group, r.Kind.Kind)
}

// readsBeyondHarmless reports whether a rule of the policy may read what isHarmless lets
// change, the change itself or the user. If such a policy cannot be evaluated, it is not
// known what the rule would have decided.
func (p *compiledPolicy) readsBeyondHarmless() bool {
	return slices.ContainsFunc(p.validations, func(rule ruleProgram) bool {
		return rule.Program != nil && (!readsObjectOnly(rule.Program) ||
			rule.Reads().Touches("metadata", "finalizers") || rule.Reads().Touches("metadata", "ownerReferences"))
	})
}

// readsObjectOnly reports whether an expression depends on the object alone.
func readsObjectOnly(p *expression.Program) bool {
	return !p.Uses().Has(expression.UsesOldObject | expression.UsesUser | expression.UsesAuthorizer)
}

// isHarmless reports whether the request is an update that must get through for an
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

// sameBut reports whether two objects are written alike, in the same order, but for
// members that are left out. The API server writes both, and in one order.
func sameBut(a, b rawjson.Value, without func(name rawjson.Value) bool) bool {
	rest := func(object rawjson.Value) (out []byte) {
		for name, member := range object.Members() {
			if !without(name) {
				out = append(append(out, name...), member...)
			}
		}
		return out
	}
	return bytes.Equal(rest(a), rest(b))
}
