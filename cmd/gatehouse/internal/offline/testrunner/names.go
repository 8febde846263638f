package testrunner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Known are the policies and profiles of a configuration: what tests may name.
type Known struct {
	policies []knownPolicy
	profiles []string
}

// knownPolicy is a policy with the names that answers have for its rules.
type knownPolicy struct {
	kind, name string
	rules      []string
	// shown are the rules for people, who need not read of each of the checks of
	// podSecurity.
	shown []string
}

// NewKnown reads the names of what is configured.
func NewKnown(spec *policy.Spec, profiles []sidecar.Profile) *Known {
	k := &Known{}
	for i := range spec.AdmissionPolicies {
		p := &spec.AdmissionPolicies[i]
		k.add(ownKind, p.Name, len(p.Spec.Validations), len(p.Spec.AuditAnnotations), p.Spec.PodSecurity != nil)
	}
	for i := range spec.Policies {
		p := &spec.Policies[i]
		k.add(upstreamKind, p.Name, len(p.Spec.Validations), len(p.Spec.AuditAnnotations), false)
	}
	for i := range profiles {
		k.profiles = append(k.profiles, profiles[i].Name)
	}
	return k
}

func (k *Known) add(kind, name string, validations, annotations int, standard bool) {
	p := knownPolicy{kind: kind, name: name}
	for i := range validations {
		p.shown = append(p.shown, strict.Element("validations", i))
	}
	if standard {
		p.shown = append(p.shown, podSecurity)
		for _, check := range podsecurity.Checks() {
			p.rules = append(p.rules, podSecurity+"."+check)
		}
	}
	for i := range annotations {
		p.shown = append(p.shown, strict.Element("auditAnnotations", i))
	}
	p.shown = append(p.shown, "matchConditions")
	p.rules = append(p.rules, p.shown...)
	k.policies = append(k.policies, p)
}

// Check finds what cases name and nothing is called: a test about a policy that
// there is not tries nothing, and a violation of one never comes.
func (k *Known) Check(all []*Case) diagnostic.List {
	var found diagnostic.List
	seen := map[*About]bool{}
	for _, c := range all {
		if c.About != nil && !seen[c.About] {
			seen[c.About] = true
			found = append(found, k.about(c)...)
		}
		for i := range c.Expect.Violations {
			if f, wrong := k.violation(c, &c.Expect.Violations[i]); wrong {
				f.Field = strict.Element(c.Field+".expect.violations", i) + "." + f.Field
				found = append(found, f)
			}
		}
	}
	return found
}

// about checks the policies that the test of a case names.
func (k *Known) about(c *Case) diagnostic.List {
	var found diagnostic.List
	given := map[string]bool{}
	for i, written := range c.About.names {
		f := c.finding("")
		f.Field = strict.Element("policies", i)
		meant := slices.DeleteFunc(slices.Clone(k.policies), func(p knownPolicy) bool {
			return p.name != written && p.kind+"/"+p.name != written
		})
		title := ""
		for _, p := range meant {
			title = p.kind + "/" + p.name
		}
		switch {
		case len(meant) == 0:
			f.Message, f.Hint = fmt.Sprintf("there is no policy %q", strict.Cut(written, mostShown)), diagnostic.DidYouMean(written, k.namesLike(written)...)
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

// namesLike are the names of the policies that a name can be meant for: where it
// has a kind, those with theirs, and at best of the policies that are called so.
func (k *Known) namesLike(written string) []string {
	_, name, kinds := strings.Cut(written, "/")
	var all, same []string
	for _, p := range k.policies {
		switch {
		case !kinds:
			all = append(all, p.name)
		case p.name == name:
			same = append(same, p.kind+"/"+p.name)
		default:
			all = append(all, p.kind+"/"+p.name)
		}
	}
	if len(same) > 0 {
		return same
	}
	return all
}

// violation checks the policy and the rule of an expected violation.
func (k *Known) violation(c *Case, v *v1alpha1.TestViolation) (diagnostic.Diagnostic, bool) {
	f := c.finding("")
	name := ""
	if v.Policy != nil {
		name = *v.Policy
	}
	var rules, shown, names []string
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
			rules, shown = append(rules, p.rules...), append(shown, p.shown...)
		}
	}
	// What injection refuses has the profile for a policy, or none.
	if c.Inject {
		names = append(names, k.profiles...)
		if v.Policy == nil || name == "" || slices.Contains(k.profiles, name) {
			here = true
			rules, shown = append(rules, admit.InjectionRule), append(shown, admit.InjectionRule)
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
	f.Hint = hintOfRule(*v.Rule, rules, shown)
	return f, true
}

// mostRules bounds the rules in a hint.
const mostRules = 10

// hintOfRule shows the rule that was meant, or those that there are: of the
// number of a rule the nearest is no better than another.
func hintOfRule(rule string, rules, shown []string) string {
	if list, _, indexed := strings.Cut(rule, "["); !indexed || !slices.Contains([]string{"validations", "auditAnnotations"}, list) {
		if hint := diagnostic.DidYouMean(rule, rules...); hint != "" {
			return hint
		}
	}
	shown = slices.Compact(slices.Sorted(slices.Values(shown)))
	more := ""
	if len(shown) > mostRules {
		shown, more = shown[:mostRules], ", and more"
	}
	if len(shown) == 0 {
		return ""
	}
	return "there are " + strings.Join(shown, ", ") + more
}
