package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// IndexedRules returns a function that returns the rules that an exception names by their index, as they are in the policies of the
// spec: at most v1alpha1.MaxExceptedRules, in the order of the exception. Rules that do not exist are left out.
func IndexedRules(spec *Spec) func(*v1alpha1.PolicyException) []v1alpha1.ExceptedRule {
	validations := make(map[exceptedPolicy][]admissionregistrationv1.Validation, len(spec.Policies)+len(spec.AdmissionPolicies))
	for _, p := range spec.All() {
		validations[exceptedPolicy{p.Kind, p.Name}] = p.Spec.Validations
	}
	return func(x *v1alpha1.PolicyException) []v1alpha1.ExceptedRule {
		var out []v1alpha1.ExceptedRule
		for _, p := range x.Spec.Policies {
			for _, kind := range [...]string{policyKind, admissionKind} {
				key := exceptedPolicy{kind, p.Name}
				all := validations[key]
				if p.Kind != "" && p.Kind != kind {
					continue
				}
				for _, rule := range p.Rules {
					i, indexed := RuleIndex(rule)
					if !indexed || i >= len(all) {
						continue
					}
					one := v1alpha1.ExceptedRule{Policy: kind + "/" + p.Name, Rule: rule, Hash: hashExpression(all[i].Expression)}
					if !slices.Contains(out, one) {
						out = append(out, one)
					}
					if len(out) == v1alpha1.MaxExceptedRules {
						return out
					}
				}
			}
		}
		return out
	}
}

// RuleIndex returns the index in the name of a validation, and false if the name has none.
func RuleIndex(rule string) (int, bool) {
	digits, isValidation := strings.CutPrefix(rule, "validations[")
	digits, isClosed := strings.CutSuffix(digits, "]")
	i, err := strconv.ParseUint(digits, 10, 31)
	return int(i), isValidation && isClosed && err == nil && rule == v1alpha1.IndexedRule(int(i))
}

// hashExpression returns the hash of an expression in the status of an exception.
func hashExpression(expression string) string {
	const size = 8 // bytes: what is not the same by accident
	sum := sha256.Sum256([]byte(strings.TrimSpace(expression)))
	return hex.EncodeToString(sum[:size])
}

// RecordRules returns the rules for the status of an exception: those that were recorded before, and current ones that were not. A
// recorded rule stays as it was, so that its change shows.
func RecordRules(recorded, current []v1alpha1.ExceptedRule) []v1alpha1.ExceptedRule {
	out := slices.Clone(recorded)
	for _, rule := range current {
		if len(out) < v1alpha1.MaxExceptedRules && findRule(recorded, rule) < 0 {
			out = append(out, rule)
		}
	}
	return out
}

// ChangedRules returns the current rules whose expressions were recorded with another hash.
func ChangedRules(recorded, current []v1alpha1.ExceptedRule) []v1alpha1.ExceptedRule {
	var out []v1alpha1.ExceptedRule
	for _, rule := range current {
		if i := findRule(recorded, rule); i >= 0 && recorded[i].Hash != rule.Hash {
			out = append(out, rule)
		}
	}
	return out
}

// findRule returns the index of a rule in a list, -1 if it is not there.
func findRule(list []v1alpha1.ExceptedRule, rule v1alpha1.ExceptedRule) int {
	return slices.IndexFunc(list, func(other v1alpha1.ExceptedRule) bool { return other.Policy == rule.Policy && other.Rule == rule.Rule })
}
