package status

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// recordedRules returns the rules in a status that is about this version of the object. A rule stays as it was when the spec of the
// exception was last changed.
func (f *fields) recordedRules(o *outcome) []v1alpha1.ExceptedRule {
	if f.ObservedGeneration != o.Generation {
		return nil
	}
	return f.Rules
}

// rules returns the rules for the status of an object. An outdated definition may not have the field, and then the API server
// refuses the whole status.
func (v *view) rules(o *outcome, f *fields) []v1alpha1.ExceptedRule {
	if v.outdated[o.Kind] != "" {
		return f.recordedRules(o)
	}
	return policy.RecordRules(f.recordedRules(o), o.Rules)
}

// changedRules returns a remark about each rule that an exception names by its index and that has changed since.
func changedRules(o *outcome, f *fields) []string {
	var remarks []string
	for _, rule := range policy.ChangedRules(f.recordedRules(o), o.Rules) {
		remarks = append(remarks, fmt.Sprintf("rule %q of %s has changed since the exception was last changed "+
			"(hint: check that the exception means this rule; then change the exception, or give the rule a name and use it)", rule.Rule, rule.Policy))
	}
	return remarks
}
