package lint

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	policyvalidation "github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// lintIndexedRules reports rules that an exception names by their index: the index means another rule once a rule is inserted
// before it.
func (l *linter) lintIndexedRules(d document, x *v1alpha1.PolicyException) {
	current := l.indexedRules(x)
	var changed []v1alpha1.ExceptedRule
	// A status of another generation is older than the exception.
	if x.Generation > 0 && x.Status.ObservedGeneration == x.Generation {
		changed = policy.ChangedRules(x.Status.Rules, current)
	}
	for i, p := range x.Spec.Policies {
		for k, rule := range p.Rules {
			at := field.NewPath("spec", "policies").Index(i).Child("rules").Index(k)
			is := func(r v1alpha1.ExceptedRule) bool {
				return r.Rule == rule && (p.Kind != admissionKind && r.Policy == policyKind+"/"+p.Name || p.Kind != policyKind && r.Policy == admissionKind+"/"+p.Name)
			}
			if n := slices.IndexFunc(changed, is); n >= 0 {
				d.warn(RuleChanged, at, "check that the exception means this rule; then change the exception, or give the rule a name and use it",
					"rule %s of %s has changed since the exception was last changed", quoted(rule), changed[n].Policy)
			}
			if p.Kind != policyKind {
				l.lintIndexedRule(d, p.Name, rule, at)
			}
		}
	}
}

// lintIndexedRule reports a rule by its index if rules of its AdmissionPolicy have names.
func (l *linter) lintIndexedRule(d document, policyName, rule string, at *field.Path) {
	n, indexed := policy.RuleIndex(rule)
	i := slices.IndexFunc(l.in.Policy.AdmissionPolicies, func(p policy.AdmissionPolicy) bool { return p.Name == policyName })
	if !indexed || i < 0 {
		return
	}
	spec := &l.in.Policy.AdmissionPolicies[i].Spec
	if n >= len(spec.Validations) || !slices.ContainsFunc(spec.Validations, func(v v1alpha1.Validation) bool { return v.Name != "" }) {
		return // Compile reports a rule that does not exist.
	}
	hint := "give the rule a name and use it"
	name := spec.Validations[n].Name
	twice := slices.ContainsFunc(spec.Validations[:n], func(v v1alpha1.Validation) bool { return v.Name == name }) ||
		slices.ContainsFunc(spec.Validations[n+1:], func(v v1alpha1.Validation) bool { return v.Name == name })
	if policyvalidation.IsRuleName(name) && !twice { // Compile reports other names.
		hint = "write " + quoted(spec.RuleName(n))
	}
	d.warn(RuleIndex, at, hint, "%s is an index: it means another rule once a rule is inserted before it", quoted(rule))
}
