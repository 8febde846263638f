package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Any is a policy of either kind, with its bindings.
type Any struct {
	Kind, Name string
	Spec       *admissionregistrationv1.ValidatingAdmissionPolicySpec
	// ChecksTemplates reports whether the policy checks the pod templates of workloads.
	ChecksTemplates bool
	// Bindings are those of the policy. It decides nothing without any. Actions of its own are a binding without a name, which selects
	// everything.
	Bindings []AnyBinding
}

// AnyBinding is a binding of either kind.
type AnyBinding struct {
	Name string
	*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

// All returns the policies, which may have errors: the ValidatingAdmissionPolicies first. It shares memory with the spec.
func (s *Spec) All() []Any {
	all := make([]Any, 0, len(s.Policies)+len(s.AdmissionPolicies))
	bound := map[string][]AnyBinding{}
	for i := range s.Bindings {
		b := &s.Bindings[i]
		bound[b.Spec.PolicyName] = append(bound[b.Spec.PolicyName], AnyBinding{b.Name, &b.Spec})
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		checks := p.Annotations[v1alpha1.WorkloadTemplatesAnnotation] == string(v1alpha1.CheckTemplates)
		all = append(all, Any{policyKind, p.Name, &p.Spec, checks, bound[p.Name]})
	}
	clear(bound)
	for i := range s.AdmissionPolicyBindings {
		b := &s.AdmissionPolicyBindings[i]
		bound[b.Spec.PolicyName] = append(bound[b.Spec.PolicyName], AnyBinding{b.Name, &b.Spec})
	}
	for i := range s.AdmissionPolicies {
		p := &s.AdmissionPolicies[i]
		bindings := bound[p.Name]
		if len(p.Spec.ValidationActions) > 0 {
			bindings = append(bindings, AnyBinding{"", &admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name}})
		}
		all = append(all, Any{admissionKind, p.Name, p.Spec.Upstream(), p.Spec.WorkloadTemplates != v1alpha1.IgnoreTemplates, bindings})
	}
	return all
}
