package telemetry_test

import (
	"log/slog"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestPolicyCounts wants each AdmissionPolicy counted over its bindings and rules,
// ValidatingAdmissionPolicies left out, and one that is gone forgotten.
func TestPolicyCounts(t *testing.T) {
	t.Parallel()
	observe, _ := newTelemetry(slog.LevelInfo)
	want := func(when string, want map[string]telemetry.PolicyCount) {
		t.Helper()
		refuses := func(name, binding string) bool { return name != "kept" && binding != "warns" }
		if got := observe.PolicyCounts(refuses); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	want("before anything was evaluated", map[string]telemetry.PolicyCount{})

	for range 3 {
		observe.Policies(evaluated(own, "limits", "all", 2, policy.Passed))
	}
	observe.Policies(evaluated(own, "limits", "some", 2, policy.Violated))
	observe.Policies(evaluated(own, "limits", "warns", 1, policy.Violated))
	observe.Policies(evaluated(own, "limits", "some", 1, policy.Failed))
	observe.Policies(evaluated(own, "limits", "some", 1, policy.Ignored))
	observe.Policies(evaluated(own, "limits", "some", 1, policy.Excepted))
	observe.Policies(evaluated(own, "limits", "some", 1, policy.Existing))
	observe.Policies(evaluated(own, "kept", "", 1, policy.Violated))
	observe.Policies(evaluated(upstream, "limits", "all", 1, policy.Violated))
	// One that could not be evaluated at all.
	observe.Policies([]policy.Observation{{Kind: own, Policy: "broken", Outcome: policy.Failed}})
	want("evaluated", map[string]telemetry.PolicyCount{
		"limits": {Evaluations: 9, Refusals: 3}, "kept": {Evaluations: 1}, "broken": {Refusals: 1},
	})

	observe.PoliciesLoaded(&policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{
		{AdmissionPolicy: v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}},
	}})
	want("after others were removed", map[string]telemetry.PolicyCount{"kept": {Evaluations: 1}})
}
