package policy

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// constraints are match resources, compiled. Their meaning is upstream's,
// k8s.io/apiserver/pkg/admission/plugin/policy/matching. A webhook gets the object
// in the one version that its registration names: request.as converts it.
type constraints struct {
	// exact is false for matchPolicy Equivalent.
	exact               bool
	rules, exclude      []rule
	namespaces, objects *selector
}

// rule is a resource rule and the names that it is limited to, if any.
type rule struct {
	admissionregistrationv1.RuleWithOperations
	names []string
}

// compileMatch compiles match resources that have been checked and defaulted.
func (s *selectors) compileMatch(match *admissionregistrationv1.MatchResources) *constraints {
	list := func(named []admissionregistrationv1.NamedRuleWithOperations) []rule {
		out := make([]rule, len(named))
		for i, n := range named {
			out[i] = rule{RuleWithOperations: n.RuleWithOperations, names: n.ResourceNames}
		}
		return out
	}
	return &constraints{
		exact:      *match.MatchPolicy == admissionregistrationv1.Exact,
		rules:      list(match.ResourceRules),
		exclude:    list(match.ExcludeResourceRules),
		namespaces: s.compile(match.NamespaceSelector),
		objects:    s.compile(match.ObjectSelector),
	}
}

// match is how rules match a request.
type match struct {
	// as is the resource and version in which one of the rules names the request.
	as schema.GroupVersionResource
	// certain is false if it is not known whether API servers serve that version.
	certain bool
}

// matches reports whether the constraints select the request: then it is
// Evaluated, and otherwise why not. It also returns the resource and version in
// which the rules name the request. An error means that they would select it if
// something were known that is not.
func (c *constraints) matches(r *request) (Why, schema.GroupVersionResource, error) {
	var excludeErr error
	if excluded, ok := c.find(r, c.exclude); ok {
		if excluded.certain {
			return OtherRequest, excluded.as, nil
		}
		// What is excluded is let pass.
		excludeErr = fmt.Errorf("the object is %s, and excluded as %s, of which it is not known whether the API server has it", r.requested.GroupVersion(), excluded.as.GroupVersion())
	}
	found := match{as: r.requested}
	if len(c.rules) > 0 {
		var ok bool
		if found, ok = c.find(r, c.rules); !ok {
			return OtherRequest, found.as, nil
		}
	}
	selected, namespaceErr := r.selectsNamespace(c.namespaces)
	switch {
	case !selected && namespaceErr == nil:
		return NamespaceNotSelected, found.as, nil
	case !r.selectsObject(c.objects):
		return ObjectNotSelected, found.as, nil
	case excludeErr != nil:
		return Evaluated, found.as, excludeErr
	default:
		return Evaluated, found.as, namespaceErr
	}
}

// find finds the resource and version in which one of the rules names the request:
// as in the API server the one that was requested, or else the first of those that
// are equivalent to it.
func (c *constraints) find(r *request, list []rule) (match, bool) {
	if len(list) == 0 {
		return match{}, false
	}
	attributes := r.attributes()
	if anyAbout(list, attributes, r.Name) {
		return match{r.requested, true}, true
	}
	if c.exact {
		return match{}, false
	}
	equivalents, known := r.equivalents()
	if known && len(equivalents) == 1 {
		return match{}, false // the most frequent case
	}
	for i := range list {
		for _, e := range equivalents {
			if e.GroupVersionResource != r.requested && list[i].about(&otherResource{attributes, e.GroupVersionResource}, r.Name) {
				return match{e.GroupVersionResource, e.Standard || e.GroupVersionResource == r.sent()}, true
			}
		}
	}
	if known {
		return match{}, false
	}
	// Any version that is named may be served.
	for i := range list {
		for _, version := range list[i].APIVersions {
			for _, resource := range [...]schema.GroupVersionResource{r.requested, r.sent()} {
				resource.Version = version
				if version != "*" && list[i].about(&otherResource{attributes, resource}, r.Name) {
					return match{resource, false}, true
				}
			}
		}
	}
	return match{}, false
}

// createsPods tells whether the rules are about the creation of pods.
func (c *constraints) createsPods() bool {
	for i := range c.rules {
		r := &c.rules[i]
		if (slices.Contains(r.APIGroups, "") || slices.Contains(r.APIGroups, "*")) &&
			(slices.Contains(r.APIVersions, "v1") || slices.Contains(r.APIVersions, "*")) &&
			(slices.Contains(r.Operations, admissionregistrationv1.Create) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)) &&
			(slices.Contains(r.Resources, "pods") || slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "pods/*") || slices.Contains(r.Resources, "*/*")) {
			return true
		}
	}
	return false
}

// createsSuch tells whether the rules are about the creation of the object that
// the request is about.
func (c *constraints) createsSuch(r *request) bool {
	created := r.AdmissionRequest
	created.Operation, created.SubResource, created.RequestSubResource = admissionv1.Create, "", ""
	_, ok := c.find(newRequest(r.review, admissionRequest(created)), c.rules)
	return ok
}

// anyAbout tells whether one of the rules is about a request of that name.
func anyAbout(list []rule, attributes admission.Attributes, name string) bool {
	for i := range list {
		if list[i].about(attributes, name) {
			return true
		}
	}
	return false
}

// about tells whether the rule is about a request of that name.
func (rule *rule) about(attributes admission.Attributes, name string) bool {
	matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}
	return matcher.Matches() && (len(rule.names) == 0 || slices.Contains(rule.names, name))
}

// otherResource is a request as if it were about another resource.
type otherResource struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (o *otherResource) GetResource() schema.GroupVersionResource { return o.resource }
