package validation

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

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The limits that the API server puts on a policy,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/apis/admissionregistration/validation/validation.go.
const (
	maxMatchConditions  = 64
	maxAuditAnnotations = 20
	// maxValueExpression is in bytes.
	maxValueExpression = 5 * 1024
)

// CheckName reports a name that the API server refuses.
func CheckName(r Reporter, name string) {
	path := field.NewPath("metadata", "name")
	if name == "" {
		r.Required(path, "")
		return
	}
	for _, reason := range apimachineryvalidation.NameIsDNSSubdomain(name, false) {
		r.Errorf(path, "", "%q is not a name: %s", name, reason)
	}
}

// CheckPolicySpec reports what the API server refuses in the spec of a policy, but
// for what its expressions say, which compilation shows. Defaults are filled in.
// A policy that is complete without validations has other rules than those.
func CheckPolicySpec(r Reporter, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, complete bool) {
	path := field.NewPath("spec")
	switch *spec.FailurePolicy {
	case admissionregistrationv1.Fail, admissionregistrationv1.Ignore:
	default:
		r.NotSupported(path.Child("failurePolicy"), string(*spec.FailurePolicy), "Fail", "Ignore")
	}
	if spec.ParamKind != nil {
		checkParamKind(r, spec.ParamKind, path.Child("paramKind"))
	}
	constraints := path.Child("matchConstraints")
	switch {
	case spec.MatchConstraints == nil:
		r.Required(constraints, "add resourceRules, each with apiGroups, apiVersions, operations and resources")
	case len(spec.MatchConstraints.ResourceRules) == 0:
		r.Required(constraints.Child("resourceRules"), "add a rule with apiGroups, apiVersions, operations and resources")
	}
	if spec.MatchConstraints != nil {
		checkMatch(r, spec.MatchConstraints, constraints)
	}
	CheckMatchConditions(r, spec.MatchConditions, path.Child("matchConditions"))
	checkVariables(r, spec.Variables, path.Child("variables"))
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 && !complete {
		r.Required(path.Child("validations"), "a policy needs validations or auditAnnotations")
	}
	for i := range spec.Validations {
		checkValidation(r, &spec.Validations[i], path.Child("validations").Index(i))
	}
	checkAuditAnnotations(r, name, spec.AuditAnnotations, path.Child("auditAnnotations"))
}

func checkParamKind(r Reporter, kind *admissionregistrationv1.ParamKind, path *field.Path) {
	if kind.APIVersion == "" {
		r.Required(path.Child("apiVersion"), `for example "v1"`)
	} else if gv, err := schema.ParseGroupVersion(kind.APIVersion); err != nil || gv.Version == "" ||
		gv.Group != "" && len(validation.IsDNS1123Subdomain(gv.Group)) > 0 || len(validation.IsDNS1035Label(gv.Version)) > 0 {
		r.Errorf(path.Child("apiVersion"), `write it as in the objects: "v1" or "example.com/v1"`, "%q is not a group and version", kind.APIVersion)
	}
	if kind.Kind == "" {
		r.Required(path.Child("kind"), `for example "ConfigMap"`)
	} else if len(validation.IsDNS1035Label(strings.ToLower(kind.Kind))) > 0 {
		r.Errorf(path.Child("kind"), `write it as in the objects: "ConfigMap"`, "%q is not a kind", kind.Kind)
	}
}

// CheckMatchConditions reports what the API server refuses in match conditions.
func CheckMatchConditions(r Reporter, conditions []admissionregistrationv1.MatchCondition, path *field.Path) {
	if len(conditions) > maxMatchConditions {
		r.Errorf(path, "", "has %d items, allowed are %d", len(conditions), maxMatchConditions)
	}
	names := make(map[string]bool, len(conditions))
	for i, condition := range conditions {
		at := path.Index(i)
		checkExpression(r, condition.Expression, at.Child("expression"))
		if condition.Name == "" {
			r.Required(at.Child("name"), "")
			continue
		}
		for _, reason := range validation.IsQualifiedName(condition.Name) {
			r.Errorf(at.Child("name"), "", "%q is not a name: %s", condition.Name, reason)
		}
		if names[condition.Name] {
			r.Duplicate(at.Child("name"), condition.Name)
		}
		names[condition.Name] = true
	}
}

func checkVariables(r Reporter, variables []admissionregistrationv1.Variable, path *field.Path) {
	names := make(map[string]bool, len(variables))
	for i, variable := range variables {
		at := path.Index(i)
		switch {
		case strings.TrimSpace(variable.Name) == "":
			r.Required(at.Child("name"), "")
		case !isIdentifier(variable.Name):
			r.Errorf(at.Child("name"), "use letters, digits and underscores, and no word that CEL reserves", "%q is not a CEL identifier", variable.Name)
		case names[variable.Name]:
			// The API server takes such a policy, so it must not be an error here.
			r.Warnf(at.Child("name"), "rename one of them", "%q occurs twice: the last one holds", variable.Name)
		}
		names[variable.Name] = true
		checkExpression(r, variable.Expression, at.Child("expression"))
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

// reasons returns the reasons that a validation can give.
func reasons() []metav1.StatusReason {
	return []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge}
}

func checkValidation(r Reporter, rule *admissionregistrationv1.Validation, path *field.Path) {
	checkExpression(r, rule.Expression, path.Child("expression"))
	if rule.MessageExpression != "" && strings.TrimSpace(rule.MessageExpression) == "" {
		r.Errorf(path.Child("messageExpression"), "leave it out to have none", "is blank")
	}
	switch message := strings.TrimSpace(rule.Message); {
	case rule.Message != "" && message == "":
		r.Errorf(path.Child("message"), "leave it out to have none", "is blank")
	case strings.ContainsAny(message, "\n\r"):
		r.Errorf(path.Child("message"), "write it on one line (in YAML, >- folds lines)", "%q has line breaks", message)
	}
	if rule.Reason != nil {
		if !slices.Contains(reasons(), *rule.Reason) {
			r.NotSupported(path.Child("reason"), string(*rule.Reason), string(metav1.StatusReasonForbidden), string(metav1.StatusReasonInvalid),
				string(metav1.StatusReasonRequestEntityTooLarge))
		}
	}
}

// IsRuleName reports whether a rule can have this name.
func IsRuleName(name string) bool { return len(validation.IsDNS1035Label(name)) == 0 }

// CheckRuleNames reports names of rules that are invalid or not unique.
func CheckRuleNames(r Reporter, rules []v1alpha1.Validation, path *field.Path) {
	first := make(map[string]int, len(rules))
	for i := range rules {
		name, at := rules[i].Name, path.Index(i).Child("name")
		if name == "" {
			continue
		}
		if !IsRuleName(name) {
			r.Errorf(at, `as in "memory-limit"`,
				"%q is not allowed; allowed are at most 63 lower-case letters, digits and \"-\", a letter first and no \"-\" last", truncate.Runes(name, maxShownName))
		}
		if other, twice := first[name]; twice {
			r.Errorf(at, "exceptions name rules by it: rename one of the two", "%q is the name of validations[%d] too", truncate.Runes(name, maxShownName), other)
			continue
		}
		first[name] = i
	}
}

// maxShownName is how many characters of an invalid name a message has.
const maxShownName = 80

func checkAuditAnnotations(r Reporter, policy string, annotations []admissionregistrationv1.AuditAnnotation, path *field.Path) {
	if len(annotations) > maxAuditAnnotations {
		r.Errorf(path, "", "has %d items, allowed are %d", len(annotations), maxAuditAnnotations)
	}
	keys := make(map[string]bool, len(annotations))
	for i, annotation := range annotations {
		at := path.Index(i)
		if annotation.Key == "" {
			r.Required(at.Child("key"), "")
		} else {
			for _, reason := range validation.IsQualifiedName(policy + "/" + annotation.Key) {
				r.Errorf(at.Child("key"), "", "%q behind the policy's name is not a key: %s", annotation.Key, reason)
			}
			if keys[annotation.Key] {
				r.Duplicate(at.Child("key"), annotation.Key)
			}
			keys[annotation.Key] = true
		}
		checkExpression(r, annotation.ValueExpression, at.Child("valueExpression"))
		if size := len(strings.TrimSpace(annotation.ValueExpression)); size > maxValueExpression {
			r.Errorf(at.Child("valueExpression"), "", "has %d bytes, allowed are %d", size, maxValueExpression)
		}
	}
}

func checkExpression(r Reporter, expression string, path *field.Path) {
	if strings.TrimSpace(expression) == "" {
		r.Required(path, "write a CEL expression")
	}
}

// CheckActions reports what the API server refuses in validation actions.
func CheckActions(r Reporter, actions []admissionregistrationv1.ValidationAction, path *field.Path) {
	if len(actions) == 0 {
		r.Required(path, `say what a violation leads to, for example ["Deny"]`)
	}
	seen := make(map[admissionregistrationv1.ValidationAction]bool)
	for i, action := range actions {
		switch action {
		case admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit:
		default:
			r.NotSupported(path.Index(i), string(action), "Deny", "Warn", "Audit")
		}
		if seen[action] {
			r.Duplicate(path.Index(i), string(action))
		}
		seen[action] = true
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		r.Errorf(path, `a denial shows the message already: drop "Warn"`, `"Deny" and "Warn" exclude each other`)
	}
}
