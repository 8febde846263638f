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
// k8s.io/apiserver/pkg/admission/plugin/policy/matching, with one difference
// that a webhook cannot avoid: upstream converts the object to a version that a
// policy names, and a webhook gets the one version that its registration names.
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

// form is the form of a request in which a rule is about it.
type form uint8

const (
	// noForm means that the rule is about something else.
	noForm form = iota
	// asRequested is the resource and version that the client named.
	asRequested
	// asSent is the resource and version that the API server sent.
	asSent
	// asOtherVersion is the same resource in a version that is neither.
	asOtherVersion
)

// matches tells whether the request is one that the constraints select: then it
// is Evaluated, and otherwise why not. An error means that they would select it
// if something were known, or sent, that is not. For a policy the object must be
// in a form that the rules name, for a binding it need not be.
func (c *constraints) matches(r *request, inForm bool) (Why, error) {
	var formErr error
	switch c.find(r, c.exclude) {
	case asRequested, asSent:
		return OtherRequest, nil
	case asOtherVersion:
		// Whether that version is one in which the API server would have found
		// the object is not known here, and what is excluded is let pass.
		formErr = fmt.Errorf("the object was sent as %s, and is excluded in another version: name the version that is sent", r.sent().GroupVersion())
	case noForm:
	}
	if len(c.rules) > 0 {
		found := c.find(r, c.rules)
		if found == noForm {
			return OtherRequest, nil
		}
		if inForm && formErr == nil {
			formErr = c.evaluable(r, found)
		}
	}
	selected, namespaceErr := r.selectsNamespace(c.namespaces)
	switch {
	case !selected && namespaceErr == nil:
		return NamespaceNotSelected, nil
	case !r.selectsObject(c.objects):
		return ObjectNotSelected, nil
	case formErr != nil:
		return Evaluated, formErr
	default:
		return Evaluated, namespaceErr
	}
}

// find is the first form in which one of the rules is about the request.
func (c *constraints) find(r *request, list []rule) form {
	if len(list) == 0 {
		return noForm
	}
	attributes := r.attributes()
	if anyAbout(list, attributes, r.Name) {
		return asRequested
	}
	if c.exact {
		return noForm
	}
	sent := r.sent()
	if sent != r.requested && anyAbout(list, &otherResource{attributes, sent}, r.Name) {
		return asSent
	}
	for i := range list {
		for _, version := range list[i].APIVersions {
			for _, resource := range [...]schema.GroupVersionResource{r.requested, sent} {
				// There is no other version to convert to, and "*" was tried
				// before.
				if version == "*" || resource.Version == "v1" && ServedInV1Alone(resource.Group) {
					continue
				}
				resource.Version = version
				if list[i].about(&otherResource{attributes, resource}, r.Name) {
					return asOtherVersion
				}
			}
		}
	}
	return noForm
}

// ServedInV1Alone tells whether every version of Kubernetes that has match
// conditions serves the group in v1 and in no other version, so that a rule that
// names another is about nothing.
func ServedInV1Alone(group string) bool {
	switch group {
	case "", "apps", "batch", "rbac.authorization.k8s.io":
		return true
	default:
		return false
	}
}

// evaluable is an error if the object that was sent is not in a form that the
// rules are about. Looking at it all the same could pass what the rules, written
// for another version, would refuse.
func (c *constraints) evaluable(r *request, found form) error {
	sent := r.sent()
	if found == asSent || found == asRequested && sent == r.requested {
		return nil
	}
	if found == asRequested && !c.exact && anyAbout(c.rules, &otherResource{r.attributes(), sent}, r.Name) {
		return nil
	}
	return fmt.Errorf("the object was sent as %s, a version that the policy does not name: "+
		"name the versions of policies in the webhook configuration, with matchPolicy Equivalent", sent.GroupVersion())
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
	return c.find(newRequest(r.review, admissionRequest(created)), c.rules) != noForm
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
