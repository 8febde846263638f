package offline

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// isMatched reports whether there is something to explain about an object without a pod.
func (e *explained) isMatched() bool {
	return e.Error != "" || len(e.Invalid) > 0 || e.from.note != "" || slices.ContainsFunc(e.Policies, func(p policy.Evaluation) bool { return decision.IsMatch(p.Why) })
}

// printPolicies writes the policies.
func (e *explained) printPolicies(line func(string, ...any), all bool) {
	if e.from.undecodable && e.hasPolicies {
		line("  no policy is evaluated, because the API server cannot decode the object")
		return
	}
	if e.from.SkippedPolicies && e.hasPolicies {
		line("  no policy is evaluated, because injection rejects the pod")
		return
	}
	decision.PrintPolicies(line, e.Policies, all)
}
