package config_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// TestWithoutConsequences is what is said besides an error that was found in reading a document, and what is not.
func TestWithoutConsequences(t *testing.T) {
	t.Parallel()
	const hint = `did you mean "validations"?`
	for _, tc := range []struct {
		name    string
		reading diagnostic.Diagnostic
		finding diagnostic.Diagnostic
		said    bool
	}{
		{"the same field", diagnostic.Diagnostic{Field: "spec.reason"}, diagnostic.Diagnostic{Field: "spec.reason"}, false},
		{"below it", diagnostic.Diagnostic{Field: "spec.match"}, diagnostic.Diagnostic{Field: "spec.match.namespaces"}, false},
		{"an element of it", diagnostic.Diagnostic{Field: "spec.rules"}, diagnostic.Diagnostic{Field: "spec.rules[0].name"}, false},
		{"what it is directly in", diagnostic.Diagnostic{Field: "spec.match.namespace"}, diagnostic.Diagnostic{Field: "spec.match"}, false},
		{"the list that it is an element of", diagnostic.Diagnostic{Field: "spec.rules[0]"}, diagnostic.Diagnostic{Field: "spec.rules"}, false},
		{"farther out", diagnostic.Diagnostic{Field: "spec.match.namespace"}, diagnostic.Diagnostic{Field: "spec"}, true},
		{"beside it", diagnostic.Diagnostic{Field: "spec.match.namespace"}, diagnostic.Diagnostic{Field: "spec.match.objects"}, true},
		{"a name that begins with its", diagnostic.Diagnostic{Field: "spec.match"}, diagnostic.Diagnostic{Field: "spec.matchConditions"}, true},
		{"the document", diagnostic.Diagnostic{Field: "spec.match"}, diagnostic.Diagnostic{}, false},
		{"another document", diagnostic.Diagnostic{Field: "spec.match"}, diagnostic.Diagnostic{Source: "other.yaml", Field: "spec.match"}, true},
		{"that nothing names another document", diagnostic.Diagnostic{Field: "spec.match"}, diagnostic.Diagnostic{Source: "other.yaml", Severity: diagnostic.Warning}, false},
		{"that nothing names it, where all could be read", diagnostic.Diagnostic{Field: "spec.match", Severity: diagnostic.Warning}, diagnostic.Diagnostic{Source: "other.yaml", Severity: diagnostic.Warning}, true},
		{"about what there was a warning of", diagnostic.Diagnostic{Field: "spec.match", Severity: diagnostic.Warning}, diagnostic.Diagnostic{Field: "spec.match"}, true},
		{"that the field is missing which was misspelt", diagnostic.Diagnostic{Field: "spec.validation", Hint: hint}, diagnostic.Diagnostic{Field: "spec.validations"}, false},
		{"the same at the top", diagnostic.Diagnostic{Field: "validation", Hint: hint}, diagnostic.Diagnostic{Field: "validations"}, false},
		{"an error of another document as a whole", diagnostic.Diagnostic{Field: "spec.match"}, diagnostic.Diagnostic{Source: "other.yaml"}, true},
		{"that a field elsewhere is missing", diagnostic.Diagnostic{Field: "spec.match.validations", Hint: `did you mean "spec.validations"?`}, diagnostic.Diagnostic{Field: "spec.validations"}, false},
		{"that another is missing", diagnostic.Diagnostic{Field: "spec.validation", Hint: hint}, diagnostic.Diagnostic{Field: "spec.matchConstraints"}, true},
		{"no rules, with a standard that cannot be read", diagnostic.Diagnostic{Field: "spec.podSecurity"}, diagnostic.Diagnostic{Field: "spec.validations"}, false},
		{"no rules, with annotations that cannot be read", diagnostic.Diagnostic{Field: "spec.auditAnnotations"}, diagnostic.Diagnostic{Field: "spec.validations"}, false},
		{"no rules, with a standard that is misspelt", diagnostic.Diagnostic{Field: "spec.podSecurty", Hint: `did you mean "podSecurity"?`}, diagnostic.Diagnostic{Field: "spec.validations"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.reading.Source = "policy.yaml"
			for _, f := range []*diagnostic.Diagnostic{&tc.reading, &tc.finding} {
				if f.Severity == "" {
					f.Severity = diagnostic.Error
				}
				if f.Source == "" {
					f.Source = "policy.yaml"
				}
			}
			left := config.WithoutConsequences(diagnostic.List{tc.reading}, diagnostic.List{tc.finding})
			if got := len(left) == 1; got != tc.said {
				t.Errorf("besides %+v, %+v is said: %t", tc.reading, tc.finding, got)
			}
		})
	}
}
