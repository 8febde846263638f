package compile

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Source returns a violation of a compiled document as one of its source: with the policy, binding, rule and template that Gatehouse names, and
// without them in the message. A violation of something else is returned as it is.
func (o *Output) Source(v policy.Violation) policy.Violation {
	policyName, bindingName := v.Policy, v.Binding
	for i := range o.Documents {
		switch d := &o.Documents[i]; {
		case d.Policy != nil && d.Policy.Name == policyName:
			v.Kind, v.Policy, _ = strings.Cut(d.From, "/")
			v.Template = d.Template
			if d.Template != "" {
				v.Message = strings.TrimPrefix(v.Message, d.Template+": ")
			}
			for at, rule := range d.Rules {
				if v.Rule == v1alpha1.IndexedRule(at) {
					v.Rule, v.Message = rule, strings.TrimPrefix(v.Message, rule+": ")
					break
				}
			}
		case d.MutatingPolicy != nil && v.Kind == mutatingKind && d.MutatingPolicy.Name == policyName:
			if v.Kind, v.Policy, _ = strings.Cut(d.From, "/"); v.Kind == admit.InjectionKind {
				v.Rule, v.Binding = admit.InjectionRule, ""
			}
		case d.Binding != nil && d.Binding.Name == bindingName:
			v.Binding = d.Source
		}
	}
	return v
}

// Of returns what the report says of the rule of a violation of a source, or of all rules of its policy for a violation of no rule.
func (o *Output) Of(v *policy.Violation) (items []*Item) {
	var all []*Item
	for _, item := range o.Items {
		if item.Kind != v.Kind || item.Name != v.Policy {
			continue
		}
		all = append(all, item)
		if v.HasRule(item.Rule) || strings.HasPrefix(v.Rule, item.Rule+".") {
			items = append(items, item)
		}
	}
	if len(items) == 0 {
		return all
	}
	return items
}

// Stays reports whether the rule of a violation of a source stays with Gatehouse.
func (o *Output) Stays(v *policy.Violation) bool {
	items := o.Of(v)
	return len(items) > 0 && !slices.ContainsFunc(items, func(i *Item) bool { return i.Status != Stays })
}
