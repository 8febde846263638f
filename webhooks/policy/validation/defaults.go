package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultPolicySpec returns the spec as the API server stores it when it is given this
// one, https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/apis/admissionregistration/v1/defaults.go.
// The argument is left as it is.
func DefaultPolicySpec(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) *admissionregistrationv1.ValidatingAdmissionPolicySpec {
	out := spec.DeepCopy()
	if out.FailurePolicy == nil {
		out.FailurePolicy = new(admissionregistrationv1.Fail)
	}
	defaultMatch(out.MatchConstraints)
	return out
}

// DefaultBindingSpec is DefaultPolicySpec for a binding.
func DefaultBindingSpec(spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
	out := spec.DeepCopy()
	defaultMatch(out.MatchResources)
	return out
}

func defaultMatch(match *admissionregistrationv1.MatchResources) {
	if match == nil {
		return
	}
	if match.MatchPolicy == nil {
		match.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = &metav1.LabelSelector{}
	}
	if match.ObjectSelector == nil {
		match.ObjectSelector = &metav1.LabelSelector{}
	}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				rules[i].Scope = new(admissionregistrationv1.AllScopes)
			}
		}
	}
}
