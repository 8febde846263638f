package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether a rule allows what is asked. All members of the rule must
// agree; a rule about resources says nothing of other URLs, and the reverse.
func allows(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !named(rule.Verbs, rbacv1.VerbAll, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool { return isPath(url, a.GetPath()) })
	}
	return named(rule.APIGroups, rbacv1.APIGroupAll, a.GetAPIGroup()) &&
		slices.ContainsFunc(rule.Resources, func(resource string) bool { return isResource(resource, a.GetResource(), a.GetSubresource()) }) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// named reports whether a list has an element, or the one that stands for all.
func named(list []string, all, element string) bool {
	return slices.Contains(list, all) || slices.Contains(list, element)
}

// isResource reports whether a resource of a rule is the one that is asked for.
// "*" is every resource and subresource, "*/log" the subresource of every
// resource, and "pods/*" is nothing but a resource of that very name.
func isResource(rule, resource, subresource string) bool {
	if subresource == "" {
		return rule == rbacv1.ResourceAll || rule == resource
	}
	return rule == rbacv1.ResourceAll || rule == resource+"/"+subresource || rule == "*/"+subresource
}

// isPath reports whether a URL of a rule is the path that is asked for. Every "*"
// at the end stands for any rest.
func isPath(rule, path string) bool {
	if beginning := strings.TrimRight(rule, "*"); beginning != rule {
		return strings.HasPrefix(path, beginning)
	}
	return rule == path
}
