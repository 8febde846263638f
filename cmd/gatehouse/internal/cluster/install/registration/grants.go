package registration

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// GrantPolicy returns the API server's own policy of who may grant, and its binding, as they are installed, with all
// fields that have a default.
func GrantPolicy() (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	printed, err := render(PartGuard, "grants", new(Options).facts())
	if err != nil {
		return nil, nil, err
	}
	text, binding, _ := strings.Cut(printed.text, "\n---\n")
	p, b := new(admissionregistrationv1.ValidatingAdmissionPolicy), new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		return nil, nil, fmt.Errorf("the policy of Grants: %w", err)
	}
	if err := yaml.UnmarshalStrict([]byte(binding), b); err != nil {
		return nil, nil, fmt.Errorf("the binding of the policy of Grants: %w", err)
	}
	return p, b, nil
}
