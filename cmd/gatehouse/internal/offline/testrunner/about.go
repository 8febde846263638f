package testrunner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
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

// LeftOut says which mutating policies of a configuration are not applied in which tests, because these list their policies; "" for none.
func LeftOut(mutating *mutation.Spec, all []*Case) string {
	var tests, policies []string
	seen := map[*About]bool{nil: true}
	for _, c := range all {
		if seen[c.About] {
			continue
		}
		seen[c.About] = true
		left := 0
		for i := range mutating.Policies {
			if name := mutating.Policies[i].Name; !c.About.Policy(mutatingKind, name) {
				left, policies = left+1, append(policies, name)
			}
		}
		if left > 0 {
			tests = append(tests, c.Test)
		}
	}
	if len(tests) == 0 {
		return ""
	}
	slices.Sort(policies)
	return fmt.Sprintf("tests that list their policies leave out the mutating ones that they do not list (%s): %s",
		strict.Printable(strings.Join(slices.Compact(policies), ", ")), strict.Printable(strings.Join(tests, ", ")))
}

// CheckPolicies reports policies that tests name and a configuration does not have: without them nothing would be tested.
func CheckPolicies(spec *policy.Spec, mutating *mutation.Spec, all []*Case) (found diagnostic.List) {
	var names, titles []string
	add := func(kind, name string) { names, titles = append(names, name), append(titles, kind+"/"+name) }
	for i := range spec.AdmissionPolicies {
		add(ownKind, spec.AdmissionPolicies[i].Name)
	}
	for i := range spec.Policies {
		add(upstreamKind, spec.Policies[i].Name)
	}
	for i := range mutating.Policies {
		add(mutatingKind, mutating.Policies[i].Name)
	}
	seen := map[*About]bool{nil: true}
	for _, c := range all {
		if seen[c.About] {
			continue
		}
		seen[c.About] = true
		for i, written := range c.About.names {
			if slices.Contains(names, written) || slices.Contains(titles, written) {
				continue
			}
			f := c.diagnostic(fmt.Sprintf("there is no policy %q", strict.Cut(written, mostShown)))
			f.Field, f.Hint = strict.Element("policies", i), diagnostic.DidYouMean(written[strings.LastIndexByte(written, '/')+1:], names...)
			found = append(found, f)
		}
	}
	return found
}

// filter returns a copy of a list with the elements for which is returns true.
func filter[T any](all []T, is func(*T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !is(&one) })
}
