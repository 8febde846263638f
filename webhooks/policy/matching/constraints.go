package matching

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// Constraints are match resources, compiled.
type Constraints struct {
	// exact is false for matchPolicy Equivalent.
	exact               bool
	Rules, exclude      []Rule
	Namespaces, Objects *Selector
}

// Rule is a resource rule and the names that it is limited to, if any.
type Rule struct {
	admissionregistrationv1.RuleWithOperations
	names []string
}

// Compile compiles match resources that have been checked and defaulted. Equal ones are compiled
// once, so that a request is matched once by policies that follow each other.
func (s *Selectors) Compile(match *admissionregistrationv1.MatchResources) *Constraints {
	text, err := json.Marshal(match)
	if err != nil {
		return s.compileConstraints(match)
	}
	if s.constraints[string(text)] == nil {
		s.constraints[string(text)] = s.compileConstraints(match)
	}
	return s.constraints[string(text)]
}

func (s *Selectors) compileConstraints(match *admissionregistrationv1.MatchResources) *Constraints {
	list := func(named []admissionregistrationv1.NamedRuleWithOperations) []Rule {
		out := make([]Rule, len(named))
		for i, n := range named {
			out[i] = Rule{RuleWithOperations: n.RuleWithOperations, names: n.ResourceNames}
		}
		return out
	}
	return &Constraints{
		exact:      *match.MatchPolicy == admissionregistrationv1.Exact,
		Rules:      list(match.ResourceRules),
		exclude:    list(match.ExcludeResourceRules),
		Namespaces: s.compile(match.NamespaceSelector),
		Objects:    s.compile(match.ObjectSelector),
	}
}

// Outcome is how constraints match a request.
type Outcome uint8

const (
	// Matches is a request that they match.
	Matches Outcome = iota
	// OtherRequest is one that the rules do not name.
	OtherRequest
	// OtherNamespace is a request whose namespace is not selected.
	OtherNamespace
	// OtherObject is a request of which neither object is selected.
	OtherObject
	// Unknown is one of which it is not known whether they match it.
	Unknown
)

// Match is how constraints match a request.
type Match struct {
	Outcome Outcome
	// Err says why the outcome is Unknown.
	Err error
	// Resource is the resource and version in which the rules name a request that they match.
	Resource schema.GroupVersionResource
}

// Match returns how the constraints match the request.
func (c *Constraints) Match(r *Request) Match {
	var excludeErr error
	if excluded, ok := c.find(r, c.exclude); ok {
		if excluded.certain {
			return Match{Outcome: OtherRequest}
		}
		// Requests that are excluded are allowed.
		excludeErr = fmt.Errorf("the object is %s, and excluded as %s, of which it is not known whether the API server has it", r.Requested.GroupVersion(), excluded.as.GroupVersion())
	}
	found := ruleMatch{as: r.Requested}
	if len(c.Rules) > 0 {
		var ok bool
		if found, ok = c.find(r, c.Rules); !ok {
			return Match{Outcome: OtherRequest}
		}
	}
	selected, namespaceErr := r.selectsNamespace(c.Namespaces)
	if !selected && namespaceErr == nil {
		return Match{Outcome: OtherNamespace}
	}
	switch {
	case !r.selectsObject(c.Objects):
		return Match{Outcome: OtherObject}
	case excludeErr != nil:
		return Match{Outcome: Unknown, Err: excludeErr}
	case namespaceErr != nil:
		return Match{Outcome: Unknown, Err: namespaceErr}
	default:
		return Match{Resource: found.as}
	}
}

// NamesRequest reports whether the rules name the request, whatever the selectors select.
func (c *Constraints) NamesRequest(r *Request) bool {
	_, ok := c.find(r, c.Rules)
	return ok
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
func (c *Constraints) find(r *Request, list []Rule) (ruleMatch, bool) {
	if len(list) == 0 {
		return ruleMatch{}, false
	}
	attributes := r.Attributes()
	if anyMatches(list, attributes, r.Name) {
		return ruleMatch{r.Requested, true}, true
	}
	if c.exact {
		return ruleMatch{}, false
	}
	equivalents, known := r.Equivalents()
	if known && len(equivalents) == 1 {
		return ruleMatch{}, false // the most frequent case
	}
	for i := range list {
		for _, e := range equivalents {
			if e.GroupVersionResource != r.Requested && list[i].matches(&otherResource{attributes, e.GroupVersionResource}, r.Name) {
				return ruleMatch{e.GroupVersionResource, e.Standard || e.GroupVersionResource == r.SentResource()}, true
			}
		}
	}
	if known {
		return ruleMatch{}, false
	}
	// Any version that is named may be served.
	for i := range list {
		for _, version := range list[i].APIVersions {
			for _, resource := range [...]schema.GroupVersionResource{r.Requested, r.SentResource()} {
				resource.Version = version
				if version != "*" && list[i].matches(&otherResource{attributes, resource}, r.Name) {
					return ruleMatch{resource, false}, true
				}
			}
		}
	}
	return ruleMatch{}, false
}

// MatchesPodCreation reports whether the rules match the creation of pods.
func (c *Constraints) MatchesPodCreation() bool {
	pod := admission.NewAttributesRecord(nil, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "any", "", corev1.SchemeGroupVersion.WithResource("pods"), "",
		admission.Create, nil, false, nil)
	return slices.ContainsFunc(c.Rules, func(r Rule) bool {
		r.names = nil
		return r.matches(pod, "")
	})
}

// anyMatches reports whether one of the rules matches a request of that name.
func anyMatches(list []Rule, attributes admission.Attributes, name string) bool {
	for i := range list {
		if list[i].matches(attributes, name) {
			return true
		}
	}
	return false
}

// matches reports whether the rule matches a request of that name.
func (rule *Rule) matches(attributes admission.Attributes, name string) bool {
	matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}
	return matcher.Matches() && (len(rule.names) == 0 || slices.Contains(rule.names, name))
}

// otherResource is a request as if it were about another resource.
type otherResource struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (o *otherResource) GetResource() schema.GroupVersionResource { return o.resource }
