package lint

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	policyvalidation "github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// operation is an operation of a resource rule.
type operation = admissionregistrationv1.OperationType

// lintMatching lints the resource rules.
func (s *subject) lintMatching() {
	if s.spec.MatchConstraints == nil {
		return
	}
	at := field.NewPath("spec", "matchConstraints", "resourceRules")
	for i := range s.spec.MatchConstraints.ResourceRules {
		rule := &s.spec.MatchConstraints.ResourceRules[i]
		s.resources(rule, at.Index(i))
		s.ruleOperations(rule, at.Index(i))
		s.scope(rule, at.Index(i))
		for k, resource := range rule.Resources {
			if name, wildcard := strings.CutSuffix(resource, "/*"); wildcard && name != "*" && !slices.Contains(rule.Resources, name) &&
				!slices.Equal(rule.Operations, []operation{admissionregistrationv1.Connect}) {
				s.warn(Wildcard, at.Index(i).Child("resources").Index(k), "name the subresources that are meant, or "+quoted(name)+", too",
					"%s matches %s itself, too", quoted(resource), quoted(name))
			}
		}
	}
}

// resources reports resources that none of the rule's API groups has, if all groups are known: those of Kubernetes, and those of
// CustomResourceDefinitions.
func (s *subject) resources(rule *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
	if len(rule.APIGroups) == 0 {
		return // Compile reports it.
	}
	var versions, resources []string
	for _, group := range rule.APIGroups {
		known := s.linter.schemas.Versions(group)
		if len(known) == 0 {
			return // A wildcard, or a group that is not known.
		}
		versions = append(versions, known...)
		resources = append(resources, s.linter.schemas.Resources(group)...)
	}
	for i, version := range rule.APIVersions {
		if version != "*" && version != "" && !slices.Contains(versions, version) {
			s.warn(UnknownResource, at.Child("apiVersions").Index(i), diagnostic.DidYouMean(version, versions...),
				"API group %s has no version %s", diagnostic.QuotedList(rule.APIGroups), quoted(version))
		}
	}
	for i, resource := range rule.Resources {
		name, _, _ := strings.Cut(resource, "/")
		if name == "" || name == "*" || name != strings.ToLower(name) || slices.Contains(resources, name) {
			continue // Compile reports capitals.
		}
		hint := diagnostic.DidYouMean(name, resources...)
		if groups := s.linter.schemas.Groups(name); len(groups) > 0 {
			hint = "write a rule of its own for API group " + diagnostic.QuotedList(groups)
		}
		s.warn(UnknownResource, at.Child("resources").Index(i), hint, "API group %s has no resource %s, so this never matches",
			diagnostic.QuotedList(rule.APIGroups), quoted(name))
	}
}

// operationsOf returns the operations that a resource has, and why there are no others. It is nil if they are unknown.
func operationsOf(resource string) (operations []operation, why string) {
	name, subresource, _ := strings.Cut(resource, "/")
	switch subresource {
	case "":
		return createUpdateDelete(name)
	case "*":
		return nil, ""
	case "exec", "attach", "portforward", "proxy":
		return []operation{admissionregistrationv1.Connect}, "is only connected to"
	case "log":
		return []operation{}, "is only read"
	case "binding", "eviction", "token":
		return []operation{admissionregistrationv1.Create}, "is only created"
	case "status", "scale", "ephemeralcontainers", "resize", "approval", "finalize":
		return []operation{admissionregistrationv1.Update}, "is only updated"
	default:
		return nil, ""
	}
}

func createUpdateDelete(name string) (operations []operation, why string) {
	switch name {
	case "*":
		return nil, ""
	case "componentstatuses":
		return []operation{}, "is only read"
	case "bindings", "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
		"selfsubjectreviews", "tokenreviews":
		return []operation{admissionregistrationv1.Create}, "is only created"
	default:
		return []operation{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		}, "is not connected to but for subresources such as pods/exec"
	}
}

// reviewedRules returns the rules without resources that have none of their operations.
func reviewedRules(rules []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	out := make([]admissionregistrationv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		out[i] = rules[i]
		out[i].Resources = slices.DeleteFunc(slices.Clone(rules[i].Resources), func(resource string) bool {
			operations, _ := operationsOf(resource)
			return operations != nil && !slices.Contains(rules[i].Operations, admissionregistrationv1.OperationAll) &&
				!slices.ContainsFunc(operations, func(o operation) bool { return slices.Contains(rules[i].Operations, o) })
		})
	}
	return out
}

// ruleOperations reports resources that have none of the rule's operations, and
// operations that none of the rule's resources has.
func (s *subject) ruleOperations(rule *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
	if len(rule.Operations) == 0 || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) {
		s.neverReviewed(rule, at)
		return
	}
	if slices.ContainsFunc(rule.Operations, func(o operation) bool { return !policyvalidation.IsOperation(o) }) {
		s.neverReviewed(rule, at)
		return // Compile reports it, and what was meant is not known.
	}
	useful := map[operation]bool{}
	idle := false
	for i, resource := range rule.Resources {
		operations, why := operationsOf(resource)
		if operations == nil {
			return // Any operation may be meant.
		}
		some := false
		for _, operation := range operations {
			if slices.Contains(rule.Operations, operation) {
				some, useful[operation] = true, true
			}
		}
		if !some {
			idle = true
			hint := ""
			if len(operations) > 0 {
				hint = "write a rule of its own with operations: [" + operationList(operations) + "]"
			}
			s.warn(Operation, at.Child("resources").Index(i), hint, "%s %s, so this never matches %s", quoted(resource), why, operationList(rule.Operations))
		}
	}
	s.neverReviewed(rule, at)
	if idle {
		return
	}
	for i, operation := range rule.Operations {
		if !useful[operation] {
			s.warn(Operation, at.Child("operations").Index(i), "drop it", "%s has no operation %s", diagnostic.QuotedList(rule.Resources), operation)
		}
	}
}

// scope reports resources of Kubernetes that are not of the rule's scope.
func (s *subject) scope(rule *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
	if s.linter.in.Policy.Objects == nil || rule.Scope == nil || *rule.Scope == admissionregistrationv1.AllScopes {
		return
	}
	for i, resource := range rule.Resources {
		one := *rule
		name, _, _ := strings.Cut(resource, "/")
		one.Resources = []string{name}
		kinds, all := s.linter.schemas.Match([]admissionregistrationv1.NamedRuleWithOperations{one})
		other := all && len(kinds) > 0
		for _, kind := range kinds {
			namespaced, err := s.linter.in.Policy.Objects.Namespaced(kind.GroupVersionKind)
			known := err == nil && (!strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io"))
			other = other && known && namespaced != (*rule.Scope == admissionregistrationv1.NamespacedScope)
		}
		if other {
			s.warn(Scope, at.Child("resources").Index(i), "drop scope, or the resource", "%s is not of scope %s, so this never matches", quoted(resource), *rule.Scope)
		}
	}
}

// neverReviewed reports resources that the API server never sends to policies or webhooks.
func (s *subject) neverReviewed(rule *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
	for i, resource := range rule.Resources {
		name, _, _ := strings.Cut(resource, "/")
		group, exempt := unreviewedGroup(name)
		switch {
		case !exempt || len(rule.APIGroups) != 1 || rule.APIGroups[0] != group:
		case strings.HasSuffix(name, "webhookconfigurations"):
			s.warn(Operation, at.Child("resources").Index(i), "apply the policy to the cluster, as a ValidatingAdmissionPolicy",
				"the API server asks no webhook about %s, so in a cluster Gatehouse never judges them", quoted(name))
		default:
			s.warn(Operation, at.Child("resources").Index(i), "drop it", "the API server asks no policy about %s, so this never matches", quoted(name))
		}
	}
}

// unreviewedGroup returns the group of a resource that the API server never sends to policies, or to webhooks,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/kubeapiserver/admission/exclusion/resources.go.
func unreviewedGroup(name string) (group string, exempt bool) {
	switch name {
	case "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations":
		return "admissionregistration.k8s.io", true
	case "tokenreviews", "selfsubjectreviews":
		return "authentication.k8s.io", true
	case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
		return "authorization.k8s.io", true
	default:
		return "", false
	}
}

func operationList(list []operation) string {
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = string(o)
	}
	return strings.Join(out, ", ")
}
