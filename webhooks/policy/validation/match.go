package validation

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkMatch reports what the API server refuses in match resources,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/apis/admissionregistration/validation/validation.go.
// Defaults are filled in.
func checkMatch(r Reporter, match *admissionregistrationv1.MatchResources, path *field.Path) {
	switch *match.MatchPolicy {
	case admissionregistrationv1.Exact, admissionregistrationv1.Equivalent:
	default:
		r.NotSupported(path.Child("matchPolicy"), string(*match.MatchPolicy),
			string(admissionregistrationv1.Equivalent), string(admissionregistrationv1.Exact))
	}
	strict := metav1validation.LabelSelectorValidationOptions{}
	r.FieldErrors(metav1validation.ValidateLabelSelector(match.NamespaceSelector, strict, path.Child("namespaceSelector")))
	r.FieldErrors(metav1validation.ValidateLabelSelector(match.ObjectSelector, strict, path.Child("objectSelector")))
	for i := range match.ResourceRules {
		checkRule(r, &match.ResourceRules[i], path.Child("resourceRules").Index(i))
	}
	for i := range match.ExcludeResourceRules {
		checkRule(r, &match.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))
	}
}

func checkRule(r Reporter, rule *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) {
	seen := make(map[string]bool, len(rule.ResourceNames))
	for i, name := range rule.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		for _, reason := range content.IsPathSegmentName(name) {
			r.Errorf(at, "", "%q is not a name: %s", name, reason)
		}
		if seen[name] {
			r.Duplicate(at, name)
		}
		seen[name] = true
	}
	operations := path.Child("operations")
	checkWildcard(r, rule.Operations, operations, "operations")
	for i, operation := range rule.Operations {
		if !IsOperation(operation) {
			r.NotSupported(operations.Index(i), string(operation), "CREATE", "UPDATE", "DELETE", "CONNECT", "*")
		}
	}
	checkWildcard(r, rule.APIGroups, path.Child("apiGroups"), "API groups")
	versions := path.Child("apiVersions")
	checkWildcard(r, rule.APIVersions, versions, "API versions")
	for i, version := range rule.APIVersions {
		if version == "" {
			r.Required(versions.Index(i), `name a version, such as "v1", or "*"`)
		}
		if strings.Contains(version, "/") {
			r.Errorf(versions.Index(i), "the group stands in apiGroups", "%q is not a version", version)
		}
	}
	checkResources(r, rule.Resources, path.Child("resources"))
	switch *rule.Scope {
	case admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope:
	default:
		r.NotSupported(path.Child("scope"), string(*rule.Scope), "*", "Namespaced", "Cluster")
	}
}

// IsOperation reports whether a resource rule may have the operation.
func IsOperation(operation admissionregistrationv1.OperationType) bool {
	switch operation {
	case admissionregistrationv1.OperationAll, admissionregistrationv1.Create, admissionregistrationv1.Update,
		admissionregistrationv1.Delete, admissionregistrationv1.Connect:
		return true
	default:
		return false
	}
}

// checkWildcard reports a list that is empty or that has "*" beside others.
func checkWildcard[S ~string](r Reporter, values []S, path *field.Path, what string) {
	if len(values) == 0 {
		r.Required(path, `name at least one, or "*" for all`)
	}
	if len(values) > 1 && slices.Contains(values, "*") {
		r.Errorf(path, "", `"*" stands for all %s, so it must stand alone`, what)
	}
}

// checkResources reports resources that are empty, or redundant in a way that
// the API server refuses.
func checkResources(r Reporter, resources []string, path *field.Path) {
	if len(resources) == 0 {
		r.Required(path, `name at least one, such as "pods"`)
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		r.Errorf(path, "", `"*/*" stands for all resources and subresources, so it must stand alone`)
	}
	plain := slices.ContainsFunc(resources, func(r string) bool { return r != "*" && r != "" && !strings.Contains(r, "/") })
	if plain && slices.Contains(resources, "*") {
		r.Errorf(path, "", `"*" stands for all resources, so no other resource may be named beside it`)
	}
	first := make(map[string]int, len(resources)) // indexes of those with a subresource
	for i, resource := range resources {
		at := path.Index(i)
		if resource == "" {
			r.Required(at, "")
			continue
		}
		if resource != strings.ToLower(resource) {
			r.Warnf(at, "resources are named in lower-case plural, as in the URL of a request: \"pods\", not \"Pod\"",
				"%q never matches", resource)
		}
		name, subresource, found := strings.Cut(resource, "/")
		if !found {
			continue
		}
		including := slices.Compact([]string{name + "/*", "*/" + subresource})
		including = slices.DeleteFunc(including, func(other string) bool { _, there := first[other]; return !there })
		slices.SortFunc(including, func(a, b string) int { return first[a] - first[b] })
		for _, other := range including {
			r.Errorf(at, "", "%q includes %q already", other, resource)
		}
		if _, twice := first[resource]; !twice {
			first[resource] = i
		}
	}
}
