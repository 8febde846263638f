package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// soon is how long before its expiry an exception is reported.
const soon = 14 * 24 * time.Hour

// lintException lints one exception.
func (l *linter) lintException(d document, spec *v1alpha1.PolicyExceptionSpec) {
	path := field.NewPath("spec")
	if at := spec.ExpiresAt; at != nil {
		left := at.Sub(l.in.Now)
		switch when := at.UTC().Format(time.RFC3339); {
		case left <= 0:
			d.warn(Expired, path.Child("expiresAt"), "remove the exception", "the exception expired at %s and does nothing", when)
		case left <= soon:
			d.warn(Expires, path.Child("expiresAt"), "do what it waits for, or give it more time", "the exception expires at %s, in %s", when, days(left))
		}
	}
	namespaceNames(d, spec.Match.Namespaces, path.Child("match", "namespaces"))
	contradiction(d, spec.Match.ObjectSelector, path.Child("match", "objectSelector"))
	if at := path.Child("match", "namespaceSelector"); !contradiction(d, spec.Match.NamespaceSelector, at) {
		l.namespaceSelector(d, spec.Match.NamespaceSelector, at)
	}
	l.lintExceptionConditions(d, spec)
}

// namespaceNames reports names that no namespace can have, and that never match.
func namespaceNames(d document, names []string, at *field.Path) {
	for i, name := range names {
		if len(apivalidation.ValidateNamespaceName(name, false)) == 0 {
			continue
		}
		hint := "write the whole name"
		if lower := strings.ToLower(name); len(apivalidation.ValidateNamespaceName(lower, false)) == 0 {
			hint = fmt.Sprintf("did you mean %q?", lower)
		} else if strings.Contains(name, "*") {
			hint = `"*" stands for nothing here: select several namespaces with namespaceSelector`
		}
		d.warn(NamespaceName, at.Index(i), hint, "no namespace can be named %s, so this never matches", quoted(name))
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
	s.lintLiterals()
}

// rulesOf returns the resource rules of the named policies. All reports whether all of these are known.
func (l *linter) rulesOf(named []v1alpha1.ExceptedPolicy) (rules []admissionregistrationv1.NamedRuleWithOperations, all bool) {
	all = true
	for _, name := range named {
		found := false
		add := func(kind, policy string, match *admissionregistrationv1.MatchResources) {
			if policy != name.Name || name.Kind != "" && name.Kind != kind {
				return
			}
			found = true
			if match != nil {
				rules = append(rules, match.ResourceRules...)
			}
		}
		for i := range l.in.Policy.Policies {
			add(policyKind, l.in.Policy.Policies[i].Name, l.in.Policy.Policies[i].Spec.MatchConstraints)
		}
		for i := range l.in.Policy.AdmissionPolicies {
			add(admissionKind, l.in.Policy.AdmissionPolicies[i].Name, l.in.Policy.AdmissionPolicies[i].Spec.MatchConstraints)
		}
		all = all && found
	}
	return rules, all
}

// days returns a time in whole days, and in hours on the last day.
func days(left time.Duration) string {
	if left < 24*time.Hour {
		return diagnostic.Count(int(left/time.Hour), "hour")
	}
	return diagnostic.Count(int(left/(24*time.Hour)), "day")
}
