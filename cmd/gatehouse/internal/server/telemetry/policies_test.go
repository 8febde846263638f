package telemetry_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const (
	upstream = "ValidatingAdmissionPolicy"
	own      = "AdmissionPolicy"
)

// evaluated is what is observed of one policy of as many rules for one binding.
func evaluated(kind, name, binding string, rules int, outcome policy.Outcome) []policy.Observation {
	var observations []policy.Observation
	for i := range rules {
		observations = append(observations, policy.Observation{
			Kind: kind, Policy: name, Binding: binding, Rule: fmt.Sprintf("validations[%d]", i), Outcome: outcome, Cost: 7,
		})
		if outcome == policy.Excepted {
			observations[i].Exception = "shop/legacy"
		}
		if outcome == policy.Baselined {
			observations[i].Baseline = "shop/legacy"
		}
	}
	return append(observations, policy.Observation{
		Kind: kind, Policy: name, Binding: binding, Outcome: policy.Done, Cost: int64(10 * rules), Elapsed: 20 * time.Microsecond,
	})
}

// the metrics of policies
func policyMetrics() []string {
	return []string{
		"gatehouse_policy_evaluations_total", "gatehouse_policy_duration_seconds",
		"gatehouse_policy_cost_total", "gatehouse_policy_exceptions_used_total", "gatehouse_policy_baselines_used_total",
	}
}

// TestPolicies wants every rule counted by outcome, and time, cost and use of
// exceptions added up by policy; what could not be evaluated has taken no time.
func TestPolicies(t *testing.T) {
	t.Parallel()
	observe, _ := newTelemetry(slog.LevelInfo)
	for range 2 {
		observe.Policies(append(evaluated(upstream, "limits", "all", 2, policy.Passed), evaluated(own, "limits", "", 1, policy.Excepted)...))
	}
	observe.Policies([]policy.Observation{
		{Kind: upstream, Policy: "limits", Binding: "all", Rule: "validations[1]", Outcome: policy.Violated, Cost: 7},
		{Kind: upstream, Policy: "limits", Binding: "all", Outcome: policy.Done, Cost: 3, Elapsed: 2 * time.Second},
		{Kind: upstream, Policy: "limits", Binding: "some", Outcome: policy.Failed},
		{Kind: own, Policy: "limits", Outcome: policy.Excepted, Exception: "gatehouse-system/all"},
		{Kind: own, Policy: "limits", Rule: "validations[0]", Outcome: policy.Baselined, Baseline: "gatehouse-system/baseline"},
	})
	shows(t, observe, `gatehouse_policy_baselines_used_total{baseline="gatehouse-system/baseline",kind="AdmissionPolicy",policy="limits"} 1
gatehouse_policy_cost_total{kind="AdmissionPolicy",policy="limits"} 20
gatehouse_policy_cost_total{kind="ValidatingAdmissionPolicy",policy="limits"} 43
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="1e-05"} 0
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="0.0001"} 2
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="0.001"} 2
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="0.01"} 2
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="0.1"} 2
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="1"} 2
gatehouse_policy_duration_seconds_bucket{kind="AdmissionPolicy",policy="limits",le="+Inf"} 2
gatehouse_policy_duration_seconds_sum{kind="AdmissionPolicy",policy="limits"} 4e-05
gatehouse_policy_duration_seconds_count{kind="AdmissionPolicy",policy="limits"} 2
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="1e-05"} 0
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="0.0001"} 2
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="0.001"} 2
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="0.01"} 2
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="0.1"} 2
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="1"} 2
gatehouse_policy_duration_seconds_bucket{kind="ValidatingAdmissionPolicy",policy="limits",le="+Inf"} 3
gatehouse_policy_duration_seconds_sum{kind="ValidatingAdmissionPolicy",policy="limits"} 2.00004
gatehouse_policy_duration_seconds_count{kind="ValidatingAdmissionPolicy",policy="limits"} 3
gatehouse_policy_evaluations_total{binding="",kind="AdmissionPolicy",outcome="Baselined",policy="limits",rule="validations[0]"} 1
gatehouse_policy_evaluations_total{binding="",kind="AdmissionPolicy",outcome="Excepted",policy="limits",rule=""} 1
gatehouse_policy_evaluations_total{binding="",kind="AdmissionPolicy",outcome="Excepted",policy="limits",rule="validations[0]"} 2
gatehouse_policy_evaluations_total{binding="",kind="AdmissionPolicy",outcome="Evaluated",policy="limits",rule=""} 2
gatehouse_policy_evaluations_total{binding="all",kind="ValidatingAdmissionPolicy",outcome="Evaluated",policy="limits",rule=""} 3
gatehouse_policy_evaluations_total{binding="all",kind="ValidatingAdmissionPolicy",outcome="Passed",policy="limits",rule="validations[0]"} 2
gatehouse_policy_evaluations_total{binding="all",kind="ValidatingAdmissionPolicy",outcome="Passed",policy="limits",rule="validations[1]"} 2
gatehouse_policy_evaluations_total{binding="all",kind="ValidatingAdmissionPolicy",outcome="Violated",policy="limits",rule="validations[1]"} 1
gatehouse_policy_evaluations_total{binding="some",kind="ValidatingAdmissionPolicy",outcome="Failed",policy="limits",rule=""} 1
gatehouse_policy_exceptions_used_total{exception="gatehouse-system/all",kind="AdmissionPolicy",policy="limits"} 1
gatehouse_policy_exceptions_used_total{exception="shop/legacy",kind="AdmissionPolicy",policy="limits"} 2
`, policyMetrics()...)
	if problems, err := testutil.GatherAndLint(observe.Registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

// TestPoliciesThatAreGone wants the series of what a new configuration does not
// have to end, and no others.
func TestPoliciesThatAreGone(t *testing.T) {
	t.Parallel()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	bindingSpec := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "limits"}
	both := policy.Spec{
		Policies: []policy.Policy{{ValidatingAdmissionPolicy: admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("limits")}}},
		Bindings: []policy.Binding{
			{ValidatingAdmissionPolicyBinding: admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("all"), Spec: bindingSpec}},
		},
		AdmissionPolicies: []policy.AdmissionPolicy{{AdmissionPolicy: v1alpha1.AdmissionPolicy{ObjectMeta: named("limits")}}},
		AdmissionPolicyBindings: []policy.AdmissionPolicyBinding{
			{AdmissionPolicyBinding: v1alpha1.AdmissionPolicyBinding{ObjectMeta: named("own"), Spec: bindingSpec}},
		},
		Exceptions: []policy.Exception{{PolicyException: v1alpha1.PolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "legacy"}}}},
		Baselines:  []policy.Baseline{{PolicyBaseline: v1alpha1.PolicyBaseline{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "legacy"}}}},
	}
	without := func(change func(*policy.Spec)) *policy.Spec {
		spec := both
		change(&spec)
		return &spec
	}
	for _, tc := range []struct {
		name string
		spec *policy.Spec
		// of evaluations, duration, cost, exceptions used, baselines used
		want [5]int
	}{
		{"unchanged", &both, [5]int{7, 2, 2, 2, 1}},
		{"a binding", without(func(s *policy.Spec) { s.Bindings = nil }), [5]int{5, 2, 2, 2, 1}},
		{"a binding of the other kind", without(func(s *policy.Spec) { s.AdmissionPolicyBindings = nil }), [5]int{5, 2, 2, 2, 1}},
		{"a binding to another policy", without(func(s *policy.Spec) {
			other := s.Bindings[0]
			other.Spec.PolicyName = "other"
			s.Bindings = []policy.Binding{other}
		}), [5]int{5, 2, 2, 2, 1}},
		{"a policy", without(func(s *policy.Spec) { s.Policies = nil }), [5]int{5, 1, 1, 1, 1}},
		{"a policy of the other kind", without(func(s *policy.Spec) { s.AdmissionPolicies = nil }), [5]int{2, 1, 1, 1, 0}},
		{"an exception", without(func(s *policy.Spec) { s.Exceptions = nil }), [5]int{7, 2, 2, 0, 1}},
		{"a baseline", without(func(s *policy.Spec) { s.Baselines = nil }), [5]int{7, 2, 2, 2, 0}},
		{"an exception, but not one of that name elsewhere", without(func(s *policy.Spec) {
			s.Exceptions = []policy.Exception{{PolicyException: v1alpha1.PolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "legacy"}}}}
		}), [5]int{7, 2, 2, 0, 1}},
		{"everything", new(policy.Spec), [5]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			observe, _ := newTelemetry(slog.LevelInfo)
			all := evaluated(upstream, "limits", "all", 1, policy.Excepted)
			all = append(all, evaluated(own, "limits", "own", 1, policy.Excepted)...)
			all = append(all, evaluated(own, "limits", "", 1, policy.Violated)...)
			all = append(all, evaluated(own, "limits", "", 1, policy.Baselined)...)
			observe.Policies(all)
			observe.PoliciesLoaded(tc.spec, &mutation.Spec{})
			count := func() (got [5]int) {
				for i, name := range policyMetrics() {
					n, err := testutil.GatherAndCount(observe.Registry, name)
					if err != nil {
						t.Fatal(err)
					}
					got[i] = n
				}
				return got
			}
			if got := count(); got != tc.want {
				t.Errorf("%d time series, want %d", got, tc.want)
			}
			// What comes back begins at zero, in a series that is exported.
			observe.Policies(all)
			if got, want := count(), [5]int{7, 2, 2, 2, 1}; got != want {
				t.Errorf("%d time series when they are back, want %d", got, want)
			}
		})
	}
}

// TestPoliciesInParallel observes while configurations change. The race detector
// looks on; no observation of a policy that stays is lost.
func TestPoliciesInParallel(t *testing.T) {
	t.Parallel()
	observe, _ := newTelemetry(slog.LevelInfo)
	stays := &policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{{AdmissionPolicy: v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}}}}
	const callers, reviews = 4, 200
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for i := range reviews {
				observe.Policies(evaluated(own, "stays", "", 1, policy.Passed))
				observe.Policies(evaluated(own, fmt.Sprintf("goes-%d", i%10), "", 1, policy.Passed))
				if i%20 == 0 {
					observe.PoliciesLoaded(stays, &mutation.Spec{})
				}
			}
		})
	}
	running.Wait()
	observe.PoliciesLoaded(stays, &mutation.Spec{})
	shows(t, observe, fmt.Sprintf("gatehouse_policy_cost_total{kind=\"AdmissionPolicy\",policy=\"stays\"} %d\n", 10*callers*reviews), "gatehouse_policy_cost_total")
}

// warm has seen what is observed of ten policies of one rule.
func warm() (*telemetry.Telemetry, []policy.Observation) {
	observe, _ := newTelemetry(slog.LevelInfo)
	var all []policy.Observation
	for i := range 10 {
		name := fmt.Sprintf("policy-%d.example.com", i)
		all = append(all, evaluated(upstream, name, name, 1, policy.Excepted)...)
	}
	observe.Policies(all)
	return observe, all
}

// TestPoliciesAllocateNothing holds what every review pays.
func TestPoliciesAllocateNothing(t *testing.T) {
	observe, all := warm()
	if n := testing.AllocsPerRun(100, func() { observe.Policies(all) }); n != 0 {
		t.Errorf("%v allocations a review", n)
	}
}
