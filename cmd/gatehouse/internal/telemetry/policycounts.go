package telemetry

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// PolicyCount has the counts of one AdmissionPolicy since the start, without dry runs.
type PolicyCount struct {
	// Evaluations is the number of evaluations of the policy, one for each binding.
	Evaluations int64
	// Refusals is the number of violated rules that refuse a request, and of those that
	// failed under failurePolicy Fail.
	Refusals int64
}

// PolicyCounts returns the counts of the active AdmissionPolicies that were evaluated, by
// name, from the metrics. Refuses reports whether a binding refuses violations; its name is
// empty for the policy's own actions.
func (t *Telemetry) PolicyCounts(refuses func(policyName, binding string) bool) map[string]PolicyCount {
	p := t.policies
	p.mu.RLock()
	defer p.mu.RUnlock()
	counts := make(map[string]PolicyCount)
	for labels, series := range p.known {
		if labels.kind != ownPolicy {
			continue
		}
		var read dto.Metric
		if err := series.evaluations.Write(&read); err != nil {
			continue // a counter can be written
		}
		n, count := int64(read.GetCounter().GetValue()), counts[labels.policy]
		switch labels.outcome {
		case policy.Violated, policy.Failed:
			if refuses(labels.policy, labels.binding) {
				count.Refusals += n
			}
		case policy.Done:
			count.Evaluations += n
		case policy.Passed, policy.Ignored, policy.Excepted, policy.Existing: // They refuse nothing.
		}
		counts[labels.policy] = count
	}
	return counts
}
