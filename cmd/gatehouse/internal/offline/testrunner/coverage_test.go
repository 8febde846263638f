package testrunner

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

func TestCoverage(t *testing.T) {
	t.Parallel()
	rules := func(n int) admissionregistrationv1.ValidatingAdmissionPolicySpec {
		return admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: make([]admissionregistrationv1.Validation, n)}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	spec := policy.Spec{
		Policies: []policy.Policy{
			{ValidatingAdmissionPolicy: admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("z"), Spec: rules(2)}},
			{ValidatingAdmissionPolicy: admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("a"), Spec: rules(11)}},
		},
		AdmissionPolicies: []policy.AdmissionPolicy{{AdmissionPolicy: v1alpha1.AdmissionPolicy{ObjectMeta: named("a"), Spec: v1alpha1.AdmissionPolicySpec{
			Validations: make([]v1alpha1.Validation, 1), PodSecurity: &v1alpha1.PodSecurity{Level: "restricted"},
		}}}},
	}
	// evaluated is a policy of which rules came to this.
	evaluated := func(kind, name string, rules ...policy.Rule) policy.Evaluation {
		return policy.Evaluation{Kind: kind, Policy: name, Why: policy.Evaluated, Rules: rules}
	}
	const upstream, own = "ValidatingAdmissionPolicy", "AdmissionPolicy"
	one := func(evaluations ...policy.Evaluation) Result {
		return Result{Case: &Case{}, Got: Outcome{Evaluations: evaluations}}
	}
	c := NewCoverage(&spec, []Result{
		// Kept twice and violated once in one case are one of each.
		one(
			evaluated(upstream, "z", policy.Rule{Name: "validations[0]", Outcome: policy.Passed}, policy.Rule{Name: "validations[1]", Outcome: policy.Failed}),
			evaluated(upstream, "z", policy.Rule{Name: "validations[0]", Outcome: policy.Passed}, policy.Rule{Name: "validations[1]", Outcome: policy.Ignored}),
			evaluated(upstream, "z", policy.Rule{Name: "validations[0]", Outcome: policy.Violated}),
		),
		// What is let pass was seen.
		one(evaluated(upstream, "a", policy.Rule{Name: "validations[10]", Outcome: policy.Excepted})),
		one(evaluated(upstream, "a", policy.Rule{Name: "validations[10]", Outcome: policy.Existing})),
		// A policy of the same name and another kind is another one.
		one(evaluated(own, "a", policy.Rule{Name: "validations[0]", Outcome: policy.Passed})),
		// The checks of a level are one rule, which one of them violates.
		one(evaluated(own, "a", policy.Rule{Name: "podSecurity.hostPorts", Outcome: policy.Violated}, policy.Rule{Name: "podSecurity.seccompProfile", Outcome: policy.Passed})),
		one(evaluated(own, "a", policy.Rule{Name: "podSecurity.hostPorts", Outcome: policy.Passed})),
		one(evaluated(own, "a", policy.Rule{Name: "podSecurity", Outcome: policy.Passed})),
		// What is no rule of a policy is not counted, and neither is an unknown policy.
		one(evaluated(own, "a", policy.Rule{Name: "matchConditions", Outcome: policy.Failed}), evaluated(own, "b", policy.Rule{Name: "validations[0]"})),
		one(policy.Evaluation{Kind: upstream, Policy: "z", Why: policy.OtherRequest}),
	})
	var got strings.Builder
	for _, r := range c {
		if r.Passed+r.Violated > 0 {
			fmt.Fprintf(&got, "%s/%s %s %d %d\n", r.Kind, r.Policy, r.Rule, r.Passed, r.Violated)
		}
	}
	const want = `AdmissionPolicy/a podSecurity 2 1
AdmissionPolicy/a validations[0] 1 0
ValidatingAdmissionPolicy/a validations[10] 0 2
ValidatingAdmissionPolicy/z validations[0] 1 1
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if len(c) != 15 || c.Covered() != 2 {
		t.Errorf("%d of %d rules are covered", c.Covered(), len(c))
	}
	for percent, want := range map[int]bool{0: true, 13: true, 14: false, 100: false} {
		if got := c.Reaches(percent); got != want {
			t.Errorf("2 of 15 reach %d %%: %v", percent, got)
		}
	}
	if !Coverage(nil).Reaches(100) {
		t.Error("of no rules not all are covered")
	}
}

// TestCoverageIsOfWhatTestsAreAbout has a test about one policy, and one that says
// nothing of the kind.
func TestCoverageIsOfWhatTestsAreAbout(t *testing.T) {
	t.Parallel()
	var spec policy.Spec
	for _, name := range []string{"c", "a", "b"} {
		var own policy.AdmissionPolicy
		own.Name, own.Spec.Validations = name, make([]v1alpha1.Validation, 1)
		spec.AdmissionPolicies = append(spec.AdmissionPolicies, own)
	}
	var upstream policy.Policy
	upstream.Name, upstream.Spec.Validations = "a", make([]admissionregistrationv1.Validation, 1)
	spec.Policies = []policy.Policy{upstream}
	about := func(names ...string) Result { return Result{Case: &Case{About: &About{names: names}}} }
	for name, c := range map[string]struct {
		results           []Result
		covered, untested string
	}{
		"one policy":      {[]Result{about("b")}, "AdmissionPolicy b", "AdmissionPolicy a, AdmissionPolicy c, ValidatingAdmissionPolicy a"},
		"by its kind":     {[]Result{about("ValidatingAdmissionPolicy/a")}, "ValidatingAdmissionPolicy a", "AdmissionPolicy a, AdmissionPolicy b, AdmissionPolicy c"},
		"several tests":   {[]Result{about("b"), about("b", "c")}, "AdmissionPolicy b, AdmissionPolicy c", "AdmissionPolicy a, ValidatingAdmissionPolicy a"},
		"no policy":       {[]Result{about()}, "", "AdmissionPolicy a, AdmissionPolicy b, AdmissionPolicy c, ValidatingAdmissionPolicy a"},
		"one test of all": {[]Result{about("b"), {Case: &Case{}}}, "AdmissionPolicy a, AdmissionPolicy b, AdmissionPolicy c, ValidatingAdmissionPolicy a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var covered []string
			for _, r := range NewCoverage(&spec, c.results) {
				covered = append(covered, r.Kind+" "+r.Policy)
			}
			if got := strings.Join(covered, ", "); got != c.covered {
				t.Errorf("counted are %q, want %q", got, c.covered)
			}
			if got := strings.Join(Untested(&spec, c.results), ", "); got != c.untested {
				t.Errorf("not counted are %q, want %q", got, c.untested)
			}
		})
	}
}
