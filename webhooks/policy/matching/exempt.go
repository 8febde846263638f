package matching

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// IsExempt reports whether no policy is ever evaluated for requests of a resource. Upstream
// exempts admission policies and their bindings, so that a policy cannot lock
// out its own repair, and reviews, without which users could not log in. Our own
// kinds are such policies too. Webhook configurations are not exempt: API servers
// ask no webhook about them, but a ValidatingAdmissionPolicy upstream judges them,
// and so does an offline check. Upstream's are in
// k8s.io/apiserver/pkg/admission/plugin/policy/generic/plugin.go and in
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/kubeapiserver/admission/exclusion/resources.go.
func IsExempt(resource schema.GroupResource) bool {
	switch resource.Group {
	case admissionregistrationv1.GroupName:
		switch resource.Resource {
		case "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
			return true
		}
	case v1alpha1.GroupVersion.Group:
		return true
	case "authentication.k8s.io":
		return resource.Resource == "tokenreviews" || resource.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		switch resource.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	}
	return false
}
