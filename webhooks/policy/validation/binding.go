package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckBindingSpec reports what the API server refuses in the spec of a binding
// of policies of a kind. Defaults are filled in.
func CheckBindingSpec(r Reporter, of string, spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
	path := field.NewPath("spec")
	if spec.PolicyName == "" {
		r.Required(path.Child("policyName"), "name the "+of+" that is bound")
	} else {
		for _, reason := range apimachineryvalidation.NameIsDNSSubdomain(spec.PolicyName, false) {
			r.Errorf(path.Child("policyName"), "", "%q is not a name: %s", spec.PolicyName, reason)
		}
	}
	if spec.ParamRef != nil {
		checkParamRef(r, spec.ParamRef, path.Child("paramRef"))
	}
	if spec.MatchResources != nil {
		checkMatch(r, spec.MatchResources, path.Child("matchResources"))
	}
	CheckActions(r, spec.ValidationActions, path.Child("validationActions"))
}

func checkParamRef(r Reporter, ref *admissionregistrationv1.ParamRef, path *field.Path) {
	switch {
	case ref.Name != "" && ref.Selector != nil:
		r.Errorf(path, "drop one of them", "name and selector exclude each other")
	case ref.Name == "" && ref.Selector == nil:
		r.Errorf(path, "an empty selector selects every param", "one of name and selector is required")
	}
	if ref.Name != "" {
		for _, reason := range content.IsPathSegmentName(ref.Name) {
			r.Errorf(path.Child("name"), "", "%q is not a name: %s", ref.Name, reason)
		}
	}
	if ref.Selector != nil {
		r.FieldErrors(metav1validation.ValidateLabelSelector(ref.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector")))
	}
	action := path.Child("parameterNotFoundAction")
	switch {
	case ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == "":
		r.Required(action, `"Deny" refuses requests while there is no param, "Allow" skips the binding`)
	case *ref.ParameterNotFoundAction != admissionregistrationv1.AllowAction && *ref.ParameterNotFoundAction != admissionregistrationv1.DenyAction:
		r.NotSupported(action, string(*ref.ParameterNotFoundAction), "Allow", "Deny")
	}
}

// Taken are the names of documents of a kind, with where the first one of each is.
type Taken map[string]string

// Check reports a name that is invalid, or that an earlier document has.
func (t Taken) Check(r Reporter, name string) {
	CheckName(r, name)
	if name == "" {
		return
	}
	if first, taken := t[name]; taken {
		hint := ""
		if first != "" {
			hint = "the first is in " + first
		}
		r.Errorf(field.NewPath("metadata", "name"), hint, "%q is taken by another document", name)
		return
	}
	t[name] = r.Source
}

// CheckParamRef warns about params that only one of policy and binding knows.
func CheckParamRef(r Reporter, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) {
	path := field.NewPath("spec", "paramRef")
	switch {
	case kind != nil && ref == nil:
		r.Warnf(path, "name the params, or drop paramKind from the policy", "the policy has paramKind, so params is null for this binding")
	case kind == nil && ref != nil:
		r.Warnf(path, "set spec.paramKind in the policy", "the policy has no paramKind, so this does nothing")
	}
}
