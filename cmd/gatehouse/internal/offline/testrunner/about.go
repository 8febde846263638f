package testrunner

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// The kinds of policies.
const (
	ownKind      = "AdmissionPolicy"
	upstreamKind = "ValidatingAdmissionPolicy"
)

// About are the policies that a test is about, as it names them: by name, or as
// kind/name. Nil stands for all. It never changes.
type About struct {
	names []string
}

// Policy reports whether the test is about a policy.
func (a *About) Policy(kind, name string) bool {
	return a == nil || slices.Contains(a.names, name) || slices.Contains(a.names, kind+"/"+name)
}

// Of are, of a configuration, the policies that the test is about, and their
// bindings. What else there is stays, and nothing of spec is changed: an
// exception from other policies does nothing.
func (a *About) Of(spec policy.Spec) policy.Spec {
	if a == nil {
		return spec
	}
	spec.Policies = kept(spec.Policies, func(p *policy.Policy) bool { return a.Policy(upstreamKind, p.Name) })
	spec.Bindings = kept(spec.Bindings, func(b *policy.Binding) bool { return a.Policy(upstreamKind, b.Spec.PolicyName) })
	spec.AdmissionPolicies = kept(spec.AdmissionPolicies, func(p *policy.AdmissionPolicy) bool { return a.Policy(ownKind, p.Name) })
	spec.AdmissionPolicyBindings = kept(spec.AdmissionPolicyBindings, func(b *policy.AdmissionPolicyBinding) bool {
		return a.Policy(ownKind, b.Spec.PolicyName)
	})
	return spec
}

// kept are the elements of a list that a test is about, in another list.
func kept[T any](all []T, is func(*T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !is(&one) })
}
