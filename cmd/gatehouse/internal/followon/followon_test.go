package followon_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/followon"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
)

// TestWithout is what is said besides an error that was found in reading a document, and what is not.
func TestWithout(t *testing.T) {
	t.Parallel()
	const hint = `did you mean "validations"?`
	for _, tc := range []struct {
		name    string
		reading finding.Finding
		finding finding.Finding
		said    bool
	}{
		{"the same field", finding.Finding{Field: "spec.reason"}, finding.Finding{Field: "spec.reason"}, false},
		{"below it", finding.Finding{Field: "spec.match"}, finding.Finding{Field: "spec.match.namespaces"}, false},
		{"an element of it", finding.Finding{Field: "spec.rules"}, finding.Finding{Field: "spec.rules[0].name"}, false},
		{"what it is directly in", finding.Finding{Field: "spec.match.namespace"}, finding.Finding{Field: "spec.match"}, false},
		{"the list that it is an element of", finding.Finding{Field: "spec.rules[0]"}, finding.Finding{Field: "spec.rules"}, false},
		{"farther out", finding.Finding{Field: "spec.match.namespace"}, finding.Finding{Field: "spec"}, true},
		{"beside it", finding.Finding{Field: "spec.match.namespace"}, finding.Finding{Field: "spec.match.objects"}, true},
		{"a name that begins with its", finding.Finding{Field: "spec.match"}, finding.Finding{Field: "spec.matchConditions"}, true},
		{"the document", finding.Finding{Field: "spec.match"}, finding.Finding{}, false},
		{"another document", finding.Finding{Field: "spec.match"}, finding.Finding{Source: "other.yaml", Field: "spec.match"}, true},
		{"that nothing names another document", finding.Finding{Field: "spec.match"}, finding.Finding{Source: "other.yaml", Severity: finding.Warning}, false},
		{"that nothing names it, where all could be read", finding.Finding{Field: "spec.match", Severity: finding.Warning}, finding.Finding{Source: "other.yaml", Severity: finding.Warning}, true},
		{"about what there was a warning of", finding.Finding{Field: "spec.match", Severity: finding.Warning}, finding.Finding{Field: "spec.match"}, true},
		{"that the field is missing which was misspelt", finding.Finding{Field: "spec.validation", Hint: hint}, finding.Finding{Field: "spec.validations"}, false},
		{"the same at the top", finding.Finding{Field: "validation", Hint: hint}, finding.Finding{Field: "validations"}, false},
		{"an error of another document as a whole", finding.Finding{Field: "spec.match"}, finding.Finding{Source: "other.yaml"}, true},
		{"that a field elsewhere is missing", finding.Finding{Field: "spec.match.validations", Hint: `did you mean "spec.validations"?`}, finding.Finding{Field: "spec.validations"}, false},
		{"that another is missing", finding.Finding{Field: "spec.validation", Hint: hint}, finding.Finding{Field: "spec.matchConstraints"}, true},
		{"no rules, with a standard that cannot be read", finding.Finding{Field: "spec.podSecurity"}, finding.Finding{Field: "spec.validations"}, false},
		{"no rules, with annotations that cannot be read", finding.Finding{Field: "spec.auditAnnotations"}, finding.Finding{Field: "spec.validations"}, false},
		{"no rules, with a standard that is misspelt", finding.Finding{Field: "spec.podSecurty", Hint: `did you mean "podSecurity"?`}, finding.Finding{Field: "spec.validations"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.reading.Source = "policy.yaml"
			for _, f := range []*finding.Finding{&tc.reading, &tc.finding} {
				if f.Severity == "" {
					f.Severity = finding.Error
				}
				if f.Source == "" {
					f.Source = "policy.yaml"
				}
			}
			left := followon.Without(finding.List{tc.reading}, finding.List{tc.finding})
			if got := len(left) == 1; got != tc.said {
				t.Errorf("besides %+v, %+v is said: %t", tc.reading, tc.finding, got)
			}
		})
	}
}
