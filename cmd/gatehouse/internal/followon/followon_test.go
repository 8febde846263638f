package followon_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/followon"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// TestWithout is what is said besides an error that was found in reading a document, and what is not.
func TestWithout(t *testing.T) {
	t.Parallel()
	const hint = `did you mean "validations"?`
	for _, tc := range []struct {
		name    string
		reading diagnostic.Finding
		finding diagnostic.Finding
		said    bool
	}{
		{"the same field", diagnostic.Finding{Field: "spec.reason"}, diagnostic.Finding{Field: "spec.reason"}, false},
		{"below it", diagnostic.Finding{Field: "spec.match"}, diagnostic.Finding{Field: "spec.match.namespaces"}, false},
		{"an element of it", diagnostic.Finding{Field: "spec.rules"}, diagnostic.Finding{Field: "spec.rules[0].name"}, false},
		{"what it is directly in", diagnostic.Finding{Field: "spec.match.namespace"}, diagnostic.Finding{Field: "spec.match"}, false},
		{"the list that it is an element of", diagnostic.Finding{Field: "spec.rules[0]"}, diagnostic.Finding{Field: "spec.rules"}, false},
		{"farther out", diagnostic.Finding{Field: "spec.match.namespace"}, diagnostic.Finding{Field: "spec"}, true},
		{"beside it", diagnostic.Finding{Field: "spec.match.namespace"}, diagnostic.Finding{Field: "spec.match.objects"}, true},
		{"a name that begins with its", diagnostic.Finding{Field: "spec.match"}, diagnostic.Finding{Field: "spec.matchConditions"}, true},
		{"the document", diagnostic.Finding{Field: "spec.match"}, diagnostic.Finding{}, false},
		{"another document", diagnostic.Finding{Field: "spec.match"}, diagnostic.Finding{Source: "other.yaml", Field: "spec.match"}, true},
		{"that nothing names another document", diagnostic.Finding{Field: "spec.match"}, diagnostic.Finding{Source: "other.yaml", Severity: diagnostic.Warning}, false},
		{"that nothing names it, where all could be read", diagnostic.Finding{Field: "spec.match", Severity: diagnostic.Warning}, diagnostic.Finding{Source: "other.yaml", Severity: diagnostic.Warning}, true},
		{"about what there was a warning of", diagnostic.Finding{Field: "spec.match", Severity: diagnostic.Warning}, diagnostic.Finding{Field: "spec.match"}, true},
		{"that the field is missing which was misspelt", diagnostic.Finding{Field: "spec.validation", Hint: hint}, diagnostic.Finding{Field: "spec.validations"}, false},
		{"the same at the top", diagnostic.Finding{Field: "validation", Hint: hint}, diagnostic.Finding{Field: "validations"}, false},
		{"an error of another document as a whole", diagnostic.Finding{Field: "spec.match"}, diagnostic.Finding{Source: "other.yaml"}, true},
		{"that a field elsewhere is missing", diagnostic.Finding{Field: "spec.match.validations", Hint: `did you mean "spec.validations"?`}, diagnostic.Finding{Field: "spec.validations"}, false},
		{"that another is missing", diagnostic.Finding{Field: "spec.validation", Hint: hint}, diagnostic.Finding{Field: "spec.matchConstraints"}, true},
		{"no rules, with a standard that cannot be read", diagnostic.Finding{Field: "spec.podSecurity"}, diagnostic.Finding{Field: "spec.validations"}, false},
		{"no rules, with annotations that cannot be read", diagnostic.Finding{Field: "spec.auditAnnotations"}, diagnostic.Finding{Field: "spec.validations"}, false},
		{"no rules, with a standard that is misspelt", diagnostic.Finding{Field: "spec.podSecurty", Hint: `did you mean "podSecurity"?`}, diagnostic.Finding{Field: "spec.validations"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.reading.Source = "policy.yaml"
			for _, f := range []*diagnostic.Finding{&tc.reading, &tc.finding} {
				if f.Severity == "" {
					f.Severity = diagnostic.Error
				}
				if f.Source == "" {
					f.Source = "policy.yaml"
				}
			}
			left := followon.Without(diagnostic.List{tc.reading}, diagnostic.List{tc.finding})
			if got := len(left) == 1; got != tc.said {
				t.Errorf("besides %+v, %+v is said: %t", tc.reading, tc.finding, got)
			}
		})
	}
}
