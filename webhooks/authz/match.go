package authz

import (
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const all = "*"

// isAlwaysIncluded reports whether a request is in every scope: what clients need to find out what an API server has, and who
// they are. The URLs are those that Kubernetes' ClusterRoles system:discovery and system:public-info-viewer list.
func isAlwaysIncluded(r *authorizationv1.SubjectAccessReviewSpec) bool {
	if n := r.NonResourceAttributes; n != nil && r.ResourceAttributes == nil {
		return (n.Verb == "get" || n.Verb == "head") &&
			includesURL([]string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"}, n.Path)
	}
	a := r.ResourceAttributes
	if a == nil || r.NonResourceAttributes != nil || a.Verb != "create" || a.Subresource != "" || a.Namespace != "" || a.Name != "" {
		return false
	}
	switch a.Group {
	case "authentication.k8s.io":
		return a.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		return a.Resource == "selfsubjectaccessreviews" || a.Resource == "selfsubjectrulesreviews"
	default:
		return false
	}
}

// includes reports whether a rule, in one of the namespaces, or everywhere without any, includes a request. A request that names
// nothing, or both a resource and a URL, is in no rule. Selectors of a request are not looked at: what they select, the API
// server may have left out.
func includes(rule *v1alpha1.ScopeRule, namespaces []string, r *authorizationv1.SubjectAccessReviewSpec) bool {
	a, n := r.ResourceAttributes, r.NonResourceAttributes
	switch {
	case (a == nil) == (n == nil):
		return false
	case n != nil:
		return len(namespaces) == 0 && includesVerb(rule.Verbs, n.Verb, isMethod) && includesURL(rule.NonResourceURLs, n.Path)
	}
	within := func(list []string) bool { return len(list) == 0 || slices.Contains(list, a.Namespace) }
	return includesVerb(rule.Verbs, a.Verb, isOrdinaryVerb) &&
		(slices.Contains(rule.APIGroups, all) || slices.Contains(rule.APIGroups, a.Group)) &&
		slices.ContainsFunc(rule.Resources, func(resource string) bool { return includesResource(resource, a) }) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name)) &&
		within(rule.Namespaces) && within(namespaces)
}

// includesVerb reports whether verbs include one. "*" stands for the ordinary ones, and a request for "*" is one for others too.
func includesVerb(verbs []string, verb string, isOrdinary func(string) bool) bool {
	return verb != all && slices.Contains(verbs, verb) || isOrdinary(verb) && slices.Contains(verbs, all)
}

func isOrdinaryVerb(verb string) bool {
	return isRead(verb) || verb == "create" || verb == "update" || verb == "patch" || verb == "delete" || verb == "deletecollection"
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

func isMethod(verb string) bool {
	switch verb {
	case "get", "head", "options", "post", "put", "patch", "delete":
		return true
	default:
		return false
	}
}

// includesResource reports whether a resource of a rule includes that of a request.
func includesResource(resource string, a *authorizationv1.ResourceAttributes) bool {
	switch {
	case a.Resource == all || a.Resource == "":
		return false // all of them, or none
	case a.Subresource == "":
		return resource == a.Resource || resource == all && !mustBeNamed(a)
	case a.Subresource == "status" || a.Subresource == "scale":
		return resource == a.Resource+"/"+a.Subresource || resource == all+"/"+a.Subresource && !mustBeNamed(a)
	default:
		return resource == a.Resource+"/"+a.Subresource
	}
}

// mustBeNamed reports whether "*" does not stand for the resource of a request: secrets, and writes of what makes an identity or brings
// a revoked one back, gives it rights, or sends the requests or objects of others to a server of one's own, as the conversion webhook
// of a definition does. A token could leave its scope with one of these. The tokens of service accounts are a subresource.
func mustBeNamed(a *authorizationv1.ResourceAttributes) bool {
	switch a.Group {
	case "":
		return a.Resource == "secrets"
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io":
		return !isRead(a.Verb)
	case "certificates.k8s.io":
		return !isRead(a.Verb) && a.Resource == "certificatesigningrequests"
	case "apiextensions.k8s.io":
		return !isRead(a.Verb) && a.Resource == "customresourcedefinitions"
	case v1alpha1.GroupVersion.Group:
		return !isRead(a.Verb) && (a.Resource == "accesstokens" || a.Resource == "grants" || a.Resource == "tokenrevocations")
	case all:
		return true
	default:
		return false
	}
}

// includesURL reports whether URLs of a rule include a path. A path with "." or ".." or an empty element is only included as it is:
// what it leads to is not below its beginning.
func includesURL(urls []string, asked string) bool {
	clean := path.Clean(asked) == asked || path.Clean(asked)+"/" == asked
	return slices.ContainsFunc(urls, func(url string) bool {
		beginning, isPrefix := strings.CutSuffix(url, all)
		return asked == url && !isPrefix || isPrefix && clean && strings.HasPrefix(asked, beginning)
	})
}

// builtin returns Gatehouse's own scopes.
func builtin() map[string][]v1alpha1.ScopeRule { return ownScopes }

//nolint:gochecknoglobals // constant
var ownScopes = func() map[string][]v1alpha1.ScopeRule {
	list := strings.Fields
	view := []v1alpha1.ScopeRule{
		{Verbs: list("get list watch"), APIGroups: list("*"), Resources: list("* */status */scale")},
		{Verbs: list("get"), APIGroups: []string{""}, Resources: list("pods/log")},
	}
	const write = "create update patch delete deletecollection"
	edit := append(slices.Clone(view), []v1alpha1.ScopeRule{
		{Verbs: list(write), APIGroups: []string{""}, Resources: list("pods configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale serviceaccounts services")},
		{Verbs: list("get create"), APIGroups: []string{""}, Resources: list("pods/attach pods/exec pods/portforward")},
		{Verbs: list("create"), APIGroups: []string{""}, Resources: list("pods/eviction")},
		{Verbs: list(write), APIGroups: list("apps"), Resources: list("daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale")},
		{Verbs: list(write), APIGroups: list("autoscaling"), Resources: list("horizontalpodautoscalers")},
		{Verbs: list(write), APIGroups: list("batch"), Resources: list("cronjobs jobs")},
		{Verbs: list(write), APIGroups: list("policy"), Resources: list("poddisruptionbudgets")},
		{Verbs: list(write), APIGroups: list("networking.k8s.io"), Resources: list("ingresses networkpolicies")},
		{Verbs: list(write), APIGroups: list("coordination.k8s.io"), Resources: list("leases")},
		{Verbs: list(write), APIGroups: list("resource.k8s.io"), Resources: list("resourceclaims resourceclaimtemplates")},
	}...)
	return map[string][]v1alpha1.ScopeRule{v1alpha1.ScopeView: view, v1alpha1.ScopeEdit: edit}
}()
