package lint

import (
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// lintException lints one exception.
func (l *linter) lintException(d document, spec *v1alpha1.PolicyExceptionSpec) {
	if at := spec.ExpiresAt; at != nil && !at.After(l.in.Now) {
		d.warn(Expired, field.NewPath("spec", "expiresAt"), "remove the exception", "the exception expired at %s and does nothing", at.UTC().Format(time.RFC3339))
	}
	for i, p := range spec.Policies {
		if p.Kind == "" &&
			slices.ContainsFunc(l.in.Policy.Policies, func(of policy.Policy) bool { return of.Name == p.Name }) &&
			slices.ContainsFunc(l.in.Policy.AdmissionPolicies, func(of policy.AdmissionPolicy) bool { return of.Name == p.Name }) {
			d.warn(TwoPolicies, field.NewPath("spec", "policies").Index(i), "set kind",
				"%q is a %s and an %s: the exception is from both", p.Name, policyKind, admissionKind)
		}
	}
	if of := spec.Match.Containers; of != nil && len(of.Images) == 0 {
		d.warn(ContainerNames, field.NewPath("spec", "match", "containers"), "add images", "exempts containers by their names alone, which the author of a pod chooses")
	}
	l.lintExceptionConditions(d, spec)
}

// soon is the time before the end of a baseline at which its violations should be mended.
const soon = 14 * 24 * time.Hour

// lintBaseline lints one baseline.
func (l *linter) lintBaseline(d document, b *policy.Baseline) {
	at, left, path := b.Spec.ExpiresAt.UTC(), b.Entries(), field.NewPath("spec", "expiresAt")
	switch {
	case !at.After(l.in.Now):
		d.warn(Expired, path, "remove the baseline", "the baseline expired at %s and does nothing", at.Format(time.RFC3339))
	case left > 0 && at.Before(l.in.Now.Add(soon)):
		d.warn(ExpiresSoon, path, "gatehouse audit --baseline FILE reports what is left to mend", "the baseline expires at %s with %s left in it",
			at.Format(time.RFC3339), diagnostic.Count(left, "violation"))
	}
}

// lintExceptionConditions lints the match conditions of an exception with the kinds of its policies.
func (l *linter) lintExceptionConditions(d document, spec *v1alpha1.PolicyExceptionSpec) {
	if len(spec.Match.MatchConditions) == 0 {
		return
	}
	rules, all := l.rulesOf(spec.Policies)
	s := &subject{
		document: d, linter: l,
		spec: &admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConditions: slices.Clone(spec.Match.MatchConditions)},
	}
	s.kinds, s.allKinds = s.linter.schemas.Match(reviewedRules(rules))
	s.allKinds = s.allKinds && all
	s.parseConditions(field.NewPath("spec", "match", "matchConditions"))
	s.compile()
	s.checkKinds()
	s.lintTypes()
}

// rulesOf returns the resource rules of the named policies. All reports whether all of these are known.
func (l *linter) rulesOf(named []v1alpha1.ExceptedPolicy) (rules []admissionregistrationv1.NamedRuleWithOperations, all bool) {
	all = true
	for _, name := range named {
		found := false
		for _, p := range l.policies {
			if p.Name != name.Name || name.Kind != "" && name.Kind != p.Kind {
				continue
			}
			found = true
			if match := p.Spec.MatchConstraints; match != nil {
				rules = append(rules, match.ResourceRules...)
			}
		}
		all = all && found
	}
	return rules, all
}
