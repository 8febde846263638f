package compile

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// part is one of the policies that a source becomes: for what the source matches itself, or for the templates at a path.
type part struct {
	// path and template are nil for the first.
	path     []string
	template *forTemplate
	// isPod is true if only pods match, or templates of them.
	isPod             bool
	matchesNamespaces bool
	// templates are the paths of all templates.
	templates [][]string
	kinds     []workload.Kind
	// skipsSame is true if a template is not judged again that an update does not change.
	skipsSame bool
}

// matchAs sets what a part matches, and its variables, or returns why it cannot.
func (c *compilation) matchAs(s *source, p *part, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, rules []rule) string {
	match := s.spec.MatchConstraints
	if p.path == nil {
		spec.MatchConstraints = match
		spec.MatchConditions = slices.Clone(s.spec.MatchConditions)
		spec.Variables = slices.Clone(s.spec.Variables)
		return ""
	}
	if slices.ContainsFunc(match.ExcludeResourceRules, mayMatchPods) {
		return "the policy excludes some pods"
	}
	spec.MatchConstraints = &admissionregistrationv1.MatchResources{NamespaceSelector: match.NamespaceSelector, MatchPolicy: new(admissionregistrationv1.Equivalent)}
	byGroup := map[string][]string{}
	for _, k := range p.kinds {
		if k.Resource == "" {
			for i := range rules {
				rules[i].item.differ("templates of " + k.Kind + " stay with Gatehouse, because PolicyConfiguration does not name its resource")
			}
			continue
		}
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
					APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: slices.Sorted(slices.Values(byGroup[group])), Scope: new(admissionregistrationv1.NamespacedScope),
				},
			},
		})
	}
	add := func(name, text string) {
		spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: text})
	}
	add("gatehouse-template", p.optionalPath("object")+".hasValue()")
	alone := p.skipsSame && !slices.ContainsFunc(rules, func(r rule) bool {
		return r.program != nil && (r.program.Uses().Has(expression.UsesOldObject|expression.UsesUser|expression.UsesAuthorizer) || r.program.Reads().IsNothing())
	})
	if alone {
		add("gatehouse-template-changed", `request.operation != "UPDATE" || `+p.optionalPath("object")+" != "+p.optionalPath("oldObject"))
	}
	if all := p.objectSelector(match.ObjectSelector); len(all) > 0 {
		add("gatehouse-template-labels", strings.Join(all, " && "))
	}
	for _, condition := range s.spec.MatchConditions {
		text, problem := p.template.rewrite(condition.Expression)
		if problem != "" {
			return "match condition " + condition.Name + ": " + problem
		}
		add(condition.Name, text)
	}
	if len(spec.MatchConditions) > maxMatchConditions {
		return "there are too many match conditions"
	}
	for _, v := range s.spec.Variables {
		text, problem := p.template.rewrite(v.Expression)
		if problem != "" {
			p.template.untranslated[v.Name] = problem
			continue
		}
		spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: v.Name, Expression: text})
	}
	return ""
}

// bindings adds the bindings of a part.
func (c *compilation) bindings(s *source, p *part, name string, items []*Item) {
	for _, b := range s.bindings {
		spec, of := b.spec.DeepCopy(), b.name
		if p.path != nil {
			of = strings.TrimSuffix(of, ownSuffix) + "." + strings.ToLower(strings.Join(p.path, ".")) + ownSuffix
			if m := spec.MatchResources; m != nil {
				if !isEmptySelector(m.ObjectSelector) || slices.ContainsFunc(m.ExcludeResourceRules, mayMatchPods) {
					for _, item := range items {
						item.differ("pod templates stay with Gatehouse for binding " + b.name + ", which selects pods by labels or excludes some")
					}
					continue
				}
				if len(m.ResourceRules) > 0 && !c.selectors.Compile(m).MatchesPodCreation() {
					continue
				}
				m.ResourceRules, m.ExcludeResourceRules = nil, nil
			}
		}
		c.bind(s, p.path, b.source, of, name, *spec)
	}
}

// mayMatchPods reports whether a rule may be about pods.
func mayMatchPods(r admissionregistrationv1.NamedRuleWithOperations) bool {
	return containsAll(r.APIGroups, []string{""}) && slices.ContainsFunc(r.Resources, func(resource string) bool {
		whole, _, _ := strings.Cut(resource, "/")
		return whole == "pods" || whole == "*"
	})
}

// matchesOnlyPods reports whether all rules are about pods.
func matchesOnlyPods(match *admissionregistrationv1.MatchResources) bool {
	return !slices.ContainsFunc(match.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, func(group string) bool { return group != "" }) ||
			slices.ContainsFunc(r.Resources, func(resource string) bool { whole, _, _ := strings.Cut(resource, "/"); return whole != "pods" })
	})
}

// matchesNamespaces reports whether a rule may be about namespaces.
func matchesNamespaces(match *admissionregistrationv1.MatchResources) bool {
	return slices.ContainsFunc(match.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return containsAll(r.APIGroups, []string{""}) && slices.ContainsFunc(r.Resources, func(resource string) bool {
			whole, _, _ := strings.Cut(resource, "/")
			return whole == "namespaces" || whole == "*"
		})
	})
}
