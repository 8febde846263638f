package offline

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// resultsOf are the results of one object with every kind of remark.
func resultsOf() []report.Result {
	violation := func(rule string, effect checkEffect, template string) checkedViolation {
		return checkedViolation{Effect: effect, Line: 4, Violation: policy.Violation{
			Kind: "AdmissionPolicy", Policy: "p", Rule: rule, Template: template, Message: "is wrong", Exception: "ops/x", Baseline: "ops/b",
		}}
	}
	c := &checked{
		place: place{File: "a.yaml", Kind: "Pod", Namespace: "shop", Name: "a"}, Line: 1, Verdict: checkRefused,
		Error: "why", Warnings: []string{"look"}, Note: "guess", source: "a.yaml", title: "Pod/a",
		Violations: []checkedViolation{
			violation("podSecurity.x", effectDenied, ""), violation("podSecurity.x", effectDenied, ""),
			violation("podSecurity.x", effectDenied, "spec.template"), violation("", effectWarned, ""),
			violation("validations[0]", effectAudited, ""), violation("validations[1]", effectExcepted, ""), violation("validations[2]", effectExisting, ""), violation("validations[3]", effectBaselined, ""),
		},
	}
	return (&checkReport{objects: []*checked{c}}).results()
}

func TestCheckResults(t *testing.T) {
	t.Parallel()
	results := resultsOf()
	var got []string
	for i := range results {
		r := &results[i]
		line := string(r.Level) + " " + r.Rule + " " + r.Message
		if r.Suppressed != "" {
			line += " (" + r.Suppressed + ")"
		}
		got = append(got, line)
	}
	want := []string{
		"error cannot-decide Pod/a in namespace shop: cannot decide: why",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop: is wrong",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop: is wrong",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop, spec.template: is wrong",
		"warning AdmissionPolicy/p Pod/a in namespace shop: is wrong",
		"note AdmissionPolicy/p/validations[0] Pod/a in namespace shop: is wrong",
		"note AdmissionPolicy/p/validations[1] Pod/a in namespace shop: is wrong (PolicyException ops/x)",
		"note AdmissionPolicy/p/validations[2] Pod/a in namespace shop: is wrong (the object violated the rule before the update, which does not make it worse)",
		"note AdmissionPolicy/p/validations[3] Pod/a in namespace shop: is wrong (PolicyBaseline ops/b)",
		"warning warning Pod/a in namespace shop: look",
		"note assumption Pod/a in namespace shop: guess",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
