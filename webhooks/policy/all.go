package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Any is a policy of either kind, with its bindings.
type Any struct {
	Kind, Name string
	Spec       *admissionregistrationv1.ValidatingAdmissionPolicySpec
	// Own is nil for a ValidatingAdmissionPolicy.
	Own         *v1alpha1.AdmissionPolicySpec
	Annotations map[string]string
	// ChecksTemplates reports whether the policy checks the pod templates of workloads, and AllowsExisting whether updates may leave what
	// was wrong before.
	ChecksTemplates, AllowsExisting bool
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
		all = append(all, Any{
			Kind: policyKind, Name: p.Name, Spec: &p.Spec, Annotations: p.Annotations, Bindings: bound[p.Name],
			ChecksTemplates: p.Annotations[v1alpha1.WorkloadTemplatesAnnotation] == string(v1alpha1.CheckTemplates),
			AllowsExisting:  p.Annotations[v1alpha1.ExistingViolationsAnnotation] == string(v1alpha1.AllowExisting),
		})
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
			own := &admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name, ValidationActions: p.Spec.ValidationActions}
			bindings = append(bindings, AnyBinding{"", own})
		}
		all = append(all, Any{
			Kind: admissionKind, Name: p.Name, Spec: p.Spec.Upstream(), Own: &p.Spec, Annotations: p.Annotations, Bindings: bindings,
			ChecksTemplates: p.Spec.WorkloadTemplates != v1alpha1.IgnoreTemplates, AllowsExisting: p.Spec.ExistingViolations != v1alpha1.DenyExisting,
		})
	}
	return all
}
