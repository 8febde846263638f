package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkBindingSpec reports what the API server refuses in the spec of a binding
// of policies of a kind. Defaults are filled in.
func checkBindingSpec(d document, of string, spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
	path := field.NewPath("spec")
	if spec.PolicyName == "" {
		d.required(path.Child("policyName"), "name the "+of+" that is bound")
	} else {
		for _, reason := range apimachineryvalidation.NameIsDNSSubdomain(spec.PolicyName, false) {
			d.errorf(path.Child("policyName"), "", "%q is not a name: %s", spec.PolicyName, reason)
		}
	}
	if spec.ParamRef != nil {
		checkParamRef(d, spec.ParamRef, path.Child("paramRef"))
	}
	if spec.MatchResources != nil {
		checkMatch(d, spec.MatchResources, path.Child("matchResources"))
	}
	checkActions(d, spec.ValidationActions, path.Child("validationActions"))
}

func checkParamRef(d document, ref *admissionregistrationv1.ParamRef, path *field.Path) {
	switch {
	case ref.Name != "" && ref.Selector != nil:
		d.errorf(path, "drop one of them", "name and selector exclude each other")
	case ref.Name == "" && ref.Selector == nil:
		d.errorf(path, "an empty selector selects every param", "one of name and selector is required")
	}
	if ref.Name != "" {
		for _, reason := range content.IsPathSegmentName(ref.Name) {
			d.errorf(path.Child("name"), "", "%q is not a name: %s", ref.Name, reason)
		}
	}
	if ref.Selector != nil {
		d.upstream(metav1validation.ValidateLabelSelector(ref.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector")))
	}
	action := path.Child("parameterNotFoundAction")
	switch {
	case ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == "":
		d.required(action, `"Deny" refuses requests while there is no param, "Allow" skips the binding`)
	case *ref.ParameterNotFoundAction != admissionregistrationv1.AllowAction && *ref.ParameterNotFoundAction != admissionregistrationv1.DenyAction:
		d.oneOf(action, string(*ref.ParameterNotFoundAction), "Allow", "Deny")
	}
}
