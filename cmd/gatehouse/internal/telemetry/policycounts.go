package telemetry

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// PolicyCount is what was counted of one AdmissionPolicy since the start, dry runs
// left out.
type PolicyCount struct {
	// Evaluations is how often the policy was evaluated, once for each binding.
	Evaluations int64
	// Refusals is how often one of its rules was not kept where that refuses a request,
	// or could not be evaluated there under failurePolicy Fail.
	Refusals int64
}

// PolicyCounts are the counts of the AdmissionPolicies in use that were evaluated, by
// name. They are read from the metrics: nothing is counted for them. Refuses tells
// whether a violation leads to a refusal by that binding, whose name is empty for the
// policy's own actions.
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
