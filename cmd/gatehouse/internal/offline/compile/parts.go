package compile

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// part is one of the policies that a source becomes: for what the source matches itself, or for the templates at a path.
type part struct {
	*texts

	// path is nil for the first.
	path []string
	// isPod is true if only pods match, or templates of them.
	isPod             bool
	matchesNamespaces bool
	// templates are the paths of all templates.
	templates [][]string
	kinds     []workload.Kind
}

const tooMany = "there are too many match conditions"

// label is the path in names.
func (p *part) label() string { return strings.ToLower(strings.Join(p.path, ".")) }

// excludeNamespaces excludes those that are never sent to Gatehouse.
func (c *compilation) excludeNamespaces(match *admissionregistrationv1.MatchResources) {
	if len(c.options.ExcludeNamespaces) > 0 {
		match.NamespaceSelector.MatchExpressions = append(match.NamespaceSelector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: c.options.ExcludeNamespaces,
		})
	}
}

// matchAs sets what a part matches, and its variables, or returns why it cannot.
func (c *compilation) matchAs(s *source, p *part, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) string {
	match := s.spec.MatchConstraints.DeepCopy()
	spec.MatchConstraints, spec.Variables = match, slices.Clone(p.variables)
	if s.Own != nil {
		c.excludeNamespaces(match)
		spec.MatchConditions = append(spec.MatchConditions, registration.NotBreakGlass())
	}
	if p.path == nil {
		if spec.MatchConditions = append(spec.MatchConditions, p.conditions...); len(spec.MatchConditions) > maxMatchConditions {
			return tooMany
		}
		return ""
	}
	if mayMatch(match.ExcludeResourceRules, "pods") {
		return "the policy excludes some pods"
	}
	spec.MatchConstraints = &admissionregistrationv1.MatchResources{NamespaceSelector: match.NamespaceSelector, MatchPolicy: new(admissionregistrationv1.Equivalent)}
	byGroup := map[string][]string{}
	for _, k := range p.kinds {
		var why string
		switch unchecked := c.custom[k.Group+"/"+k.Kind]; {
		case k.Resource == "":
			why = "PolicyConfiguration does not name its resource"
		case unchecked && *s.spec.FailurePolicy == admissionregistrationv1.Ignore:
			why = "the API server does not check that they are templates, and failurePolicy Ignore lets pass what is none"
		case unchecked && slices.ContainsFunc(s.rules, func(r rule) bool { return r.standard }):
			why = "the API server does not check that they are templates, as podSecurity must"
		}
		if why != "" {
			s.differ("templates of %s stay with Gatehouse: %s", k.Kind, why)
			continue
		}
		c.out.unchecked = c.out.unchecked || c.custom[k.Group+"/"+k.Kind]
		byGroup[k.Group] = append(byGroup[k.Group], k.Resource)
	}
	if len(byGroup) == 0 {
		return "their resources are not known"
	}
	for _, group := range sortedKeys(byGroup) {
		spec.MatchConstraints.ResourceRules = append(spec.MatchConstraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: slices.Sorted(slices.Values(byGroup[group])), Scope: new(admissionregistrationv1.AllScopes),
				},
			},
		})
	}
	add := func(name, text string) {
		spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: text})
	}
	var exists []string
	for i := range p.path {
		exists = append(exists, "type(object.?"+strings.Join(p.path[:i+1], ".?")+".orValue(null)) == map")
	}
	add("gatehouse-template", strings.Join(exists, " && "))
	alone := s.skipsSame && !slices.ContainsFunc(s.rules, func(r rule) bool { return !r.standard && !readsObjectOnly(r.program) })
	if alone {
		add("gatehouse-template-changed", `request.operation != "UPDATE" || `+p.optionalPath("object")+" != "+p.optionalPath("oldObject"))
	}
	if all := p.objectSelector(match.ObjectSelector); len(all) > 0 {
		add("gatehouse-template-labels", strings.Join(all, " && "))
	}
	for _, condition := range spec.MatchConditions {
		if problem := c.accepts(condition.Expression); problem != "" {
			return problem
		}
	}
	if spec.MatchConditions = append(spec.MatchConditions, p.conditions...); len(spec.MatchConditions) > maxMatchConditions {
		return tooMany
	}
	return ""
}

// readsObjectOnly reports whether a rule depends on the object alone.
func readsObjectOnly(program *expression.Program) bool {
	return program != nil && !program.Uses().Has(expression.UsesOldObject|expression.UsesUser|expression.UsesAuthorizer) && !program.Reads().IsNothing()
}

// createsPods reports whether what matches are pods that are created, of which no name is known.
func (c *compilation) createsPods(match *admissionregistrationv1.MatchResources) bool {
	unnamed := match.DeepCopy()
	unnamed.ResourceRules = slices.DeleteFunc(unnamed.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool { return len(r.ResourceNames) > 0 })
	return c.selectors.Compile(unnamed).MatchesPodCreation()
}

// binding adds a binding of a part, or returns why it stays with Gatehouse.
func (c *compilation) binding(s *source, p *part, b policy.AnyBinding, of string) string {
	spec, name := b.DeepCopy(), b.Name
	if spec.PolicyName = of; name == "" {
		name = s.Name
	}
	if p.path == nil {
		return c.bind(s, p, b.Name, name+s.suffix(), spec)
	}
	if m := spec.MatchResources; m != nil {
		switch {
		case !isEmptySelector(m.ObjectSelector), mayMatch(m.ExcludeResourceRules, "pods"):
			return "it selects pods by labels or excludes some"
		case len(m.ResourceRules) > 0 && !c.createsPods(m):
			return ""
		}
		m.ResourceRules, m.ExcludeResourceRules = nil, nil
	}
	return c.bind(s, p, b.Name, name+"."+p.label()+ownSuffix, spec)
}
