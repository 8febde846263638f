package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// constraints are match resources, compiled. Their meaning is upstream's,
// k8s.io/apiserver/pkg/admission/plugin/policy/matching. A webhook gets the object
// in the one version that its registration names: request.inVersion converts it.
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

// compileMatch compiles match resources that have been checked and defaulted. Equal ones are compiled
// once, so that a request is matched once by policies that follow each other.
func (s *selectors) compileMatch(match *admissionregistrationv1.MatchResources) *constraints {
	text, err := json.Marshal(match)
	if err != nil {
		return s.compileConstraints(match)
	}
	if s.constraints[string(text)] == nil {
		s.constraints[string(text)] = s.compileConstraints(match)
	}
	return s.constraints[string(text)]
}

func (s *selectors) compileConstraints(match *admissionregistrationv1.MatchResources) *constraints {
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

// match is how a request matches a policy, or a binding of it.
type match struct {
	// why is Evaluated if it matches, and Misconfigured if it would match, or could be
	// evaluated, if something were known that is not: err says what. Detail is for people.
	why    Why
	detail string
	err    error
	// resource is the resource and version in which the rules name the request.
	resource schema.GroupVersionResource
	// request is the one that the policy is evaluated for, with the object in the version
	// that it names, and params are those that it is evaluated with.
	request *request
	params  []*param
}

func misconfigured(r *request, err error) match {
	return match{why: Misconfigured, detail: err.Error(), err: err, request: r}
}

// matchPolicy returns how the request matches a policy, whatever its bindings match.
func matchPolicy(r *request, p *compiledPolicy) match {
	if r.matchedBy != p.match {
		r.matchedBy, r.matched = p.match, p.match.match(r)
	}
	m := r.matched
	switch {
	case m.why != Evaluated && m.why != Misconfigured:
		return m
	case len(p.bindings) == 0:
		return match{why: NotInForce, detail: "no binding puts it in force"}
	case m.why == Misconfigured:
		return m
	case p.broken != nil:
		return misconfigured(r, p.broken)
	}
	if err := p.checkParamKind(r.review.set.objects); err != nil {
		return misconfigured(r, err)
	}
	return m
}

// matchBinding returns how the request matches a binding of a policy that it matches as
// the resource.
func matchBinding(r *request, p *compiledPolicy, b *binding, resource schema.GroupVersionResource) match {
	if b.match != nil {
		m := b.match.match(r)
		if m.why != Evaluated && m.why != Misconfigured {
			m.detail = "of the binding"
		}
		if m.why != Evaluated {
			return m
		}
	}
	params := r.review.noParams[:]
	if b.params.ref != nil {
		var err error
		if params, err = b.params.find(r.review.set.objects, r.Namespace); err != nil {
			return misconfigured(r, err)
		}
		if len(params) == 0 {
			return match{why: NoParams, request: r}
		}
	}
	converted, err := r.inVersion(p.match, resource)
	if err != nil {
		return misconfigured(r, err)
	}
	if p.needsNamespace {
		if _, known := converted.namespaceObject(); !known {
			why := "namespaceObject is used"
			if !p.uses.Has(expression.UsesNamespace) {
				why = "its labels decide"
			}
			return misconfigured(converted, r.unknownNamespace(why))
		}
	}
	return match{why: Evaluated, request: converted, params: params}
}

// match returns how the constraints match the request.
func (c *constraints) match(r *request) match {
	var excludeErr error
	if excluded, ok := c.find(r, c.exclude); ok {
		if excluded.certain {
			return match{why: OtherRequest, request: r}
		}
		// Requests that are excluded are allowed.
		excludeErr = fmt.Errorf("the object is %s, and excluded as %s, of which it is not known whether the API server has it", r.requested.GroupVersion(), excluded.as.GroupVersion())
	}
	found := ruleMatch{as: r.requested}
	if len(c.rules) > 0 {
		var ok bool
		if found, ok = c.find(r, c.rules); !ok {
			return match{why: OtherRequest, request: r}
		}
	}
	selected, namespaceErr := r.selectsNamespace(c.namespaces)
	if !selected && namespaceErr == nil {
		return match{why: NamespaceNotSelected, request: r}
	}
	switch {
	case !r.selectsObject(c.objects):
		return match{why: ObjectNotSelected, request: r}
	case excludeErr != nil:
		return misconfigured(r, excludeErr)
	case namespaceErr != nil:
		return misconfigured(r, namespaceErr)
	default:
		return match{why: Evaluated, request: r, resource: found.as}
	}
}

// ruleMatch is how rules match a request.
type ruleMatch struct {
	// as is the resource and version in which one of the rules names the request.
	as schema.GroupVersionResource
	// certain is false if it is not known whether API servers serve that version.
	certain bool
}

// find finds the resource and version in which one of the rules names the request:
// as in the API server the one that was requested, or else the first of those that
// are equivalent to it.
func (c *constraints) find(r *request, list []rule) (ruleMatch, bool) {
	if len(list) == 0 {
		return ruleMatch{}, false
	}
	attributes := r.attributes()
	if anyMatches(list, attributes, r.Name) {
		return ruleMatch{r.requested, true}, true
	}
	if c.exact {
		return ruleMatch{}, false
	}
	equivalents, known := r.equivalents()
	if known && len(equivalents) == 1 {
		return ruleMatch{}, false // the most frequent case
	}
	for i := range list {
		for _, e := range equivalents {
			if e.GroupVersionResource != r.requested && list[i].matches(&otherResource{attributes, e.GroupVersionResource}, r.Name) {
				return ruleMatch{e.GroupVersionResource, e.Standard || e.GroupVersionResource == r.sentResource()}, true
			}
		}
	}
	if known {
		return ruleMatch{}, false
	}
	// Any version that is named may be served.
	for i := range list {
		for _, version := range list[i].APIVersions {
			for _, resource := range [...]schema.GroupVersionResource{r.requested, r.sentResource()} {
				resource.Version = version
				if version != "*" && list[i].matches(&otherResource{attributes, resource}, r.Name) {
					return ruleMatch{resource, false}, true
				}
			}
		}
	}
	return ruleMatch{}, false
}

// matchesPodCreation reports whether the rules match the creation of pods.
func (c *constraints) matchesPodCreation() bool {
	pod := admission.NewAttributesRecord(nil, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "any", "", corev1.SchemeGroupVersion.WithResource("pods"), "",
		admission.Create, nil, false, nil)
	return slices.ContainsFunc(c.rules, func(r rule) bool {
		r.names = nil
		return r.matches(pod, "")
	})
}

// matchesCreation reports whether the rules match the creation of the object of the
// request.
func (c *constraints) matchesCreation(r *request) bool {
	created := r.AdmissionRequest
	created.Operation, created.SubResource, created.RequestSubResource = admissionv1.Create, "", ""
	_, ok := c.find(newRequest(r.review, admissionRequest(created)), c.rules)
	return ok
}

// anyMatches reports whether one of the rules matches a request of that name.
func anyMatches(list []rule, attributes admission.Attributes, name string) bool {
	for i := range list {
		if list[i].matches(attributes, name) {
			return true
		}
	}
	return false
}

// matches reports whether the rule matches a request of that name.
func (rule *rule) matches(attributes admission.Attributes, name string) bool {
	matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}
	return matcher.Matches() && (len(rule.names) == 0 || slices.Contains(rule.names, name))
}

// otherResource is a request as if it were about another resource.
type otherResource struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (o *otherResource) GetResource() schema.GroupVersionResource { return o.resource }
