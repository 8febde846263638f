package admission

import (
	"errors"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// partition separates the diagnostics about an object from those about others.
func partition(found diagnostic.List, object string) (own, others diagnostic.List) {
	for _, f := range found {
		if f.Object == object {
			own = append(own, f)
		} else {
			others = append(others, f)
		}
	}
	return own, others
}

func hasErrors(found diagnostic.List) bool { return found.Err() != nil }

func same(a, b diagnostic.Diagnostic) bool {
	return a.Severity == b.Severity && a.Object == b.Object && a.Field == b.Field && a.Message == b.Message
}

// diagnosticsOf returns the diagnostics of a compilation that failed, none of one that was
// stopped. Any other error is a bug: the panic ends the review, and not the program.
func diagnosticsOf(err error, stop func() error) diagnostic.List {
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return list
	}
	if stop != nil && stop() != nil {
		return nil //nolint:nilerr // the review fails with the end of its context
	}
	panic(fmt.Errorf("compiling: %w", err))
}

// shadowWarnings warns of an object that a document of the directory overrides. For access
// tokens and revocations only their status says so: anyone who reaches the port could
// find out which ids there are.
func shadowWarnings(current *config.Config, one *config.Resource) diagnostic.List {
	source, there := "", false
	each := func(kind, namespace, name, from string) {
		if kind == one.Kind && namespace == one.Namespace && name == one.Name && from != config.ClusterSource {
			source, there = from, true
		}
	}
	switch one.Kind {
	case sidecarProfile:
		for i := range current.Sidecar.Profiles {
			p := &current.Sidecar.Profiles[i]
			each(sidecarProfile, "", p.Name, p.Source)
		}
	case admissionPolicy:
		for i := range current.Policy.AdmissionPolicies {
			p := &current.Policy.AdmissionPolicies[i]
			each(admissionPolicy, "", p.Name, p.Source)
		}
	case admissionPolicyBinding:
		for i := range current.Policy.AdmissionPolicyBindings {
			b := &current.Policy.AdmissionPolicyBindings[i]
			each(admissionPolicyBinding, "", b.Name, b.Source)
		}
	case policyException:
		for i := range current.Policy.Exceptions {
			x := &current.Policy.Exceptions[i]
			each(policyException, x.Namespace, x.Name, x.Source)
		}
	}
	if !there {
		return nil
	}
	return diagnostic.List{{
		Severity: diagnostic.Warning, Source: config.ClusterSource, Object: one.Object(),
		Message: fmt.Sprintf("there is a document of this name in the directory too, in %q, and that one is in use", source),
		Hint:    "remove one of the two or give it another name",
	}}
}
