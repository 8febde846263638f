package policy

import (
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits that the API server puts on a policy,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/apis/admissionregistration/validation/validation.go.
const (
	maxMatchConditions  = 64
	maxAuditAnnotations = 20
	// maxValueExpression is in bytes.
	maxValueExpression = 5 * 1024
)

// checkName reports a name that the API server refuses.
func checkName(d document, name string) {
	path := field.NewPath("metadata", "name")
	if name == "" {
		d.required(path, "")
		return
	}
	for _, reason := range apimachineryvalidation.NameIsDNSSubdomain(name, false) {
		d.errorf(path, "", "%q is not a name: %s", name, reason)
	}
}

// checkSpec reports what the API server refuses in the spec of a policy, but
// for what its expressions say, which compilation shows. Defaults are filled in.
// A policy that is complete without validations has other rules than those.
func checkSpec(d document, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, complete bool) {
	path := field.NewPath("spec")
	switch *spec.FailurePolicy {
	case admissionregistrationv1.Fail, admissionregistrationv1.Ignore:
	default:
		d.oneOf(path.Child("failurePolicy"), string(*spec.FailurePolicy), "Fail", "Ignore")
	}
	if spec.ParamKind != nil {
		checkParamKind(d, spec.ParamKind, path.Child("paramKind"))
	}
	constraints := path.Child("matchConstraints")
	switch {
	case spec.MatchConstraints == nil:
		d.required(constraints, "say in resourceRules which requests the policy is about")
	case len(spec.MatchConstraints.ResourceRules) == 0:
		d.required(constraints.Child("resourceRules"), "say which requests the policy is about")
	}
	if spec.MatchConstraints != nil {
		checkMatch(d, spec.MatchConstraints, constraints)
	}
	checkMatchConditions(d, spec.MatchConditions, path.Child("matchConditions"))
	checkVariables(d, spec.Variables, path.Child("variables"))
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 && !complete {
		d.required(path.Child("validations"), "a policy needs validations or auditAnnotations")
	}
	for i := range spec.Validations {
		checkValidation(d, &spec.Validations[i], path.Child("validations").Index(i))
	}
	checkAuditAnnotations(d, name, spec.AuditAnnotations, path.Child("auditAnnotations"))
}

func checkParamKind(d document, kind *admissionregistrationv1.ParamKind, path *field.Path) {
	if kind.APIVersion == "" {
		d.required(path.Child("apiVersion"), `for example "v1"`)
	} else if gv, err := schema.ParseGroupVersion(kind.APIVersion); err != nil || gv.Version == "" ||
		gv.Group != "" && len(validation.IsDNS1123Subdomain(gv.Group)) > 0 || len(validation.IsDNS1035Label(gv.Version)) > 0 {
		d.errorf(path.Child("apiVersion"), `write it as in the objects: "v1" or "example.com/v1"`, "%q is not a group and version", kind.APIVersion)
	}
	if kind.Kind == "" {
		d.required(path.Child("kind"), `for example "ConfigMap"`)
	} else if len(validation.IsDNS1035Label(strings.ToLower(kind.Kind))) > 0 {
		d.errorf(path.Child("kind"), `write it as in the objects: "ConfigMap"`, "%q is not a kind", kind.Kind)
	}
}

func checkMatchConditions(d document, conditions []admissionregistrationv1.MatchCondition, path *field.Path) {
	if len(conditions) > maxMatchConditions {
		d.errorf(path, "", "has %d items, allowed are %d", len(conditions), maxMatchConditions)
	}
	names := make(map[string]bool, len(conditions))
	for i, condition := range conditions {
		at := path.Index(i)
		checkExpression(d, condition.Expression, at.Child("expression"))
		if condition.Name == "" {
			d.required(at.Child("name"), "")
			continue
		}
		for _, reason := range validation.IsQualifiedName(condition.Name) {
			d.errorf(at.Child("name"), "", "%q is not a name: %s", condition.Name, reason)
		}
		if names[condition.Name] {
			d.duplicate(at.Child("name"), condition.Name)
		}
		names[condition.Name] = true
	}
}

func checkVariables(d document, variables []admissionregistrationv1.Variable, path *field.Path) {
	names := make(map[string]bool, len(variables))
	for i, variable := range variables {
		at := path.Index(i)
		switch {
		case strings.TrimSpace(variable.Name) == "":
			d.required(at.Child("name"), "")
		case !isIdentifier(variable.Name):
			d.errorf(at.Child("name"), "use letters, digits and underscores, and no word that CEL reserves", "%q is not a CEL identifier", variable.Name)
		case names[variable.Name]:
			// The API server takes such a policy, so it must not be an error here.
			d.warnf(at.Child("name"), "rename one of them", "%q occurs twice: the last one holds", variable.Name)
		}
		names[variable.Name] = true
		checkExpression(d, variable.Expression, at.Child("expression"))
	}
}

// isIdentifier follows IDENT of the CEL grammar,
// https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax.
func isIdentifier(name string) bool {
	reserved := []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
	}
	return regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`).MatchString(name) && !slices.Contains(reserved, name)
}

func checkValidation(d document, rule *admissionregistrationv1.Validation, path *field.Path) {
	checkExpression(d, rule.Expression, path.Child("expression"))
	if rule.MessageExpression != "" && strings.TrimSpace(rule.MessageExpression) == "" {
		d.errorf(path.Child("messageExpression"), "leave it out to have none", "is blank")
	}
	switch message := strings.TrimSpace(rule.Message); {
	case rule.Message != "" && message == "":
		d.errorf(path.Child("message"), "leave it out to have none", "is blank")
	case strings.ContainsAny(message, "\n\r"):
		d.errorf(path.Child("message"), "write it on one line (in YAML, >- folds lines)", "%q has line breaks", message)
	}
	if rule.Reason != nil {
		if _, known := statusCode(*rule.Reason); !known {
			d.oneOf(path.Child("reason"), string(*rule.Reason), string(metav1.StatusReasonForbidden), string(metav1.StatusReasonInvalid),
				string(metav1.StatusReasonRequestEntityTooLarge))
		}
	}
}

func checkAuditAnnotations(d document, policy string, annotations []admissionregistrationv1.AuditAnnotation, path *field.Path) {
	if len(annotations) > maxAuditAnnotations {
		d.errorf(path, "", "has %d items, allowed are %d", len(annotations), maxAuditAnnotations)
	}
	keys := make(map[string]bool, len(annotations))
	for i, annotation := range annotations {
		at := path.Index(i)
		if annotation.Key == "" {
			d.required(at.Child("key"), "")
		} else {
			for _, reason := range validation.IsQualifiedName(policy + "/" + annotation.Key) {
				d.errorf(at.Child("key"), "", "%q behind the policy's name is not a key: %s", annotation.Key, reason)
			}
			if keys[annotation.Key] {
				d.duplicate(at.Child("key"), annotation.Key)
			}
			keys[annotation.Key] = true
		}
		checkExpression(d, annotation.ValueExpression, at.Child("valueExpression"))
		if size := len(strings.TrimSpace(annotation.ValueExpression)); size > maxValueExpression {
			d.errorf(at.Child("valueExpression"), "", "has %d bytes, allowed are %d", size, maxValueExpression)
		}
	}
}

func checkExpression(d document, expression string, path *field.Path) {
	if strings.TrimSpace(expression) == "" {
		d.required(path, "write a CEL expression")
	}
}

// checkActions reports what the API server refuses in validation actions.
func checkActions(d document, actions []admissionregistrationv1.ValidationAction, path *field.Path) {
	if len(actions) == 0 {
		d.required(path, `say what a violation leads to, for example ["Deny"]`)
	}
	seen := make(map[admissionregistrationv1.ValidationAction]bool)
	for i, action := range actions {
		switch action {
		case admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit:
		default:
			d.oneOf(path.Index(i), string(action), "Deny", "Warn", "Audit")
		}
		if seen[action] {
			d.duplicate(path.Index(i), string(action))
		}
		seen[action] = true
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		d.errorf(path, `a denial shows the message already: drop "Warn"`, `"Deny" and "Warn" exclude each other`)
	}
}
