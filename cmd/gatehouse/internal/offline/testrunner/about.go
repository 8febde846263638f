package testrunner

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// The kinds of policies.
const (
	ownKind      = "AdmissionPolicy"
	upstreamKind = "ValidatingAdmissionPolicy"
	mutatingKind = admit.MutationKind
)

// About selects the policies that a test is about, by name or as kind/name. Nil selects all. It is immutable.
type About struct {
	names []string
}

// Policy reports whether a policy is selected.
func (a *About) Policy(kind, name string) bool {
	return a == nil || slices.Contains(a.names, name) || slices.Contains(a.names, kind+"/"+name)
}

// Select returns the configuration with the selected policies and their bindings alone.
func (a *About) Select(spec policy.Spec) policy.Spec {
	if a == nil {
		return spec
	}
	spec.Policies = filter(spec.Policies, func(p *policy.Policy) bool { return a.Policy(upstreamKind, p.Name) })
	spec.Bindings = filter(spec.Bindings, func(b *policy.Binding) bool { return a.Policy(upstreamKind, b.Spec.PolicyName) })
	spec.AdmissionPolicies = filter(spec.AdmissionPolicies, func(p *policy.AdmissionPolicy) bool { return a.Policy(ownKind, p.Name) })
	spec.AdmissionPolicyBindings = filter(spec.AdmissionPolicyBindings, func(b *policy.AdmissionPolicyBinding) bool {
		return a.Policy(ownKind, b.Spec.PolicyName)
	})
	return spec
}

// SelectMutating is Select for mutating policies.
func (a *About) SelectMutating(spec mutation.Spec) mutation.Spec {
	if a != nil {
		spec.Policies = filter(spec.Policies, func(p *mutation.Policy) bool { return a.Policy(mutatingKind, p.Name) })
		spec.Bindings = filter(spec.Bindings, func(b *mutation.Binding) bool { return a.Policy(mutatingKind, b.Spec.PolicyName) })
	}
	return spec
}

// filter returns a copy of a list with the elements for which is returns true.
func filter[T any](all []T, is func(*T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !is(&one) })
}
