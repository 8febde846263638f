package testrunner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// podSecurity is the name of that rule in answers.
const podSecurity = "podSecurity"

// Names are the policies and profiles of a configuration that tests may name.
type Names struct {
	policies []policyNames
	profiles []string
}

// policyNames is a policy with the names of its rules in answers.
type policyNames struct {
	kind, name string
	rules      []string
}

// add adds a policy with the names of its rules.
func (k *Names) add(kind, name string, validations []string, auditAnnotations int) *policyNames {
	p := policyNames{kind, name, append([]string{"matchConditions"}, validations...)}
	for i := range auditAnnotations {
		p.rules = append(p.rules, strict.Element("auditAnnotations", i))
	}
	k.policies = append(k.policies, p)
	return &k.policies[len(k.policies)-1]
}

// NewNames returns the names in a configuration.
func NewNames(spec *policy.Spec, mutating *mutation.Spec, profiles []sidecar.Profile) *Names {
	k := &Names{}
	for i := range spec.AdmissionPolicies {
		p := &spec.AdmissionPolicies[i]
		var rules []string
		for n := range p.Spec.Validations {
			rules = append(rules, p.Spec.RuleName(n), v1alpha1.IndexedRule(n))
		}
		names := k.add(ownKind, p.Name, rules, len(p.Spec.AuditAnnotations))
		if p.Spec.PodSecurity != nil {
			names.rules = append(names.rules, podSecurity)
			for _, check := range podsecurity.Checks() {
				names.rules = append(names.rules, podSecurity+"."+check)
			}
		}
	}
	for i := range mutating.Policies {
		k.add(mutatingKind, mutating.Policies[i].Name, nil, 0)
	}
	for i := range spec.Policies {
		p := &spec.Policies[i]
		var rules []string
		for n := range p.Spec.Validations {
			rules = append(rules, v1alpha1.IndexedRule(n))
		}
		k.add(upstreamKind, p.Name, rules, len(p.Spec.AuditAnnotations))
	}
	for i := range profiles {
		k.profiles = append(k.profiles, profiles[i].Name)
	}
	return k
}

// Check reports names in cases that nothing in the configuration has.
func (k *Names) Check(all []*Case) diagnostic.List {
	var found diagnostic.List
	seen := map[*About]bool{}
	for _, c := range all {
		if c.About != nil && !seen[c.About] {
			seen[c.About] = true
			found = append(found, k.checkAbout(c)...)
		}
		for field, all := range map[string][]v1alpha1.TestViolation{"violations": c.Expect.Violations, "audited": c.Expect.Audited} {
			for i := range all {
				if f, wrong := k.checkViolation(c, &all[i]); wrong {
					f.Field = strict.Element(c.Field+".expect."+field, i) + "." + f.Field
					found = append(found, f)
				}
			}
		}
	}
	return found
}

// checkAbout reports unknown and repeated policies of a case's test.
func (k *Names) checkAbout(c *Case) diagnostic.List {
	var found diagnostic.List
	given := map[string]bool{}
	for i, written := range c.About.names {
		f := c.diagnostic("")
		f.Field = strict.Element("policies", i)
		meant := slices.DeleteFunc(slices.Clone(k.policies), func(p policyNames) bool {
			return p.name != written && p.kind+"/"+p.name != written
		})
		title := ""
		for _, p := range meant {
			title = p.kind + "/" + p.name
		}
		switch {
		case len(meant) == 0:
			f.Message, f.Hint = fmt.Sprintf("there is no policy %q", strict.Cut(written, mostShown)), k.nearest(written)
		case len(meant) > 1:
			f.Message = fmt.Sprintf("%q is the name of two policies", strict.Cut(written, mostShown))
			f.Hint = fmt.Sprintf("write %s/%s or %s/%s", meant[0].kind, written, meant[1].kind, written)
		case given[title]:
			f.Message = fmt.Sprintf("%q is given twice", strict.Cut(written, mostShown))
		default:
			given[title] = true
			continue
		}
		found = append(found, f)
	}
	return found
}

// nearest returns a hint with the policy that a name, with a kind or without, may have been meant for.
func (k *Names) nearest(written string) string {
	var names []string
	for _, p := range k.policies {
		names = append(names, p.name)
	}
	return diagnostic.DidYouMean(written[strings.LastIndexByte(written, '/')+1:], names...)
}

// checkViolation checks the policy and the rule of an expected violation.
func (k *Names) checkViolation(c *Case, v *v1alpha1.TestViolation) (diagnostic.Diagnostic, bool) {
	f := c.diagnostic("")
	name := ""
	if v.Policy != nil {
		name = *v.Policy
	}
	var rules, names []string
	here, elsewhere := false, false
	for _, p := range k.policies {
		is := c.About.Policy(p.kind, p.name)
		elsewhere = elsewhere || !is && p.name == name
		if !is {
			continue
		}
		names = append(names, p.name)
		if v.Policy == nil || p.name == name {
			here = true
			rules = append(rules, p.rules...)
		}
	}
	// The policy of a refusal by injection is the profile, or none.
	if c.Inject {
		names = append(names, k.profiles...)
		if v.Policy == nil || name == "" || slices.Contains(k.profiles, name) {
			here = true
			rules = append(rules, admit.InjectionRule)
		}
	}
	f.Field = "policy"
	switch {
	case name != "" && !here && elsewhere:
		f.Message = fmt.Sprintf("%q is no policy that this test is about, so it is not evaluated", strict.Cut(name, mostShown))
		f.Hint = "name it in policies, too"
		return f, true
	case name != "" && !here:
		f.Message, f.Hint = fmt.Sprintf("there is no policy %q", strict.Cut(name, mostShown)), diagnostic.DidYouMean(name, names...)
		return f, true
	case v.Rule == nil || *v.Rule == "" || slices.Contains(rules, *v.Rule):
		return f, false
	}
	f.Field = "rule"
	if name == "" {
		f.Message = fmt.Sprintf("no policy has a rule %q", strict.Cut(*v.Rule, mostShown))
	} else {
		f.Message = fmt.Sprintf("policy %q has no rule %q", strict.Cut(name, mostShown), strict.Cut(*v.Rule, mostShown))
	}
	f.Hint = ruleHint(*v.Rule, rules)
	return f, true
}

// ruleHint returns the rule that was meant, or the rules that there are but for the checks of podSecurity. The nearest number of a rule is
// no better than another.
func ruleHint(rule string, rules []string) string {
	if _, indexed := policy.RuleIndex(rule); !indexed && !strings.HasPrefix(rule, "auditAnnotations[") {
		if hint := diagnostic.DidYouMean(rule, rules...); hint != "" {
			return hint
		}
	}
	const most = 10
	known := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(rules))), func(r string) bool { return strings.HasPrefix(r, podSecurity+".") })
	if len(known) > most {
		return "there are " + strings.Join(known[:most], ", ") + ", and more"
	}
	return "there are " + strings.Join(known, ", ")
}
