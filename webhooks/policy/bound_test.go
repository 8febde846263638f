package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestObservedCost has what observers are told of a policy whose cost is counted once in 64 times.
func TestObservedCost(t *testing.T) {
	t.Parallel()
	set := compile(t, denyAll("p", `validations: [{expression: "object.metadata.name != 'x'"}]`, ""))
	req := review(t, configMap)
	cost := set.Decide(context.Background(), policy.Input{Request: req, Explain: true}).Evaluations[0].Cost
	told, counted := int64(0), 0
	for n := range int64(129) {
		set.Decide(context.Background(), policy.Input{Request: req, Checked: true, Observe: func(list []policy.Observation) {
			if whole := list[len(list)-1]; whole.Cost > 0 {
				told += whole.Cost
				counted++
			}
		}}).Response()
		if told > (n+1)*cost || told < (n-63)*cost {
			t.Errorf("after %d reviews, the cost is %d; each costs %d", n+1, told, cost)
		}
	}
	if counted != 3 || told != 129*cost {
		t.Errorf("counted %d times, %d together; each costs %d", counted, told, cost)
	}
}

// TestUncountedShare has a budget of which policies that do not count may use but a part: with more of them, the rest
// counts, and exceeds it.
func TestUncountedShare(t *testing.T) {
	t.Parallel()
	var policies []string
	for i := range 40 {
		policies = append(policies, denyAll(fmt.Sprintf("p%d", i), `validations: [{expression: "object.data.all(k, object.data[k] == object.data[k])"}]`, ""))
	}
	req := review(t, configMap)
	cost := compile(t, policies[0]).Decide(context.Background(), policy.Input{Request: req, Explain: true}).Evaluations[0].Cost
	for budget, want := range map[int64]string{100_000_000: "allowed", 50 * cost: "allowed", 20 * cost: "cannot decide", 1: "cannot decide"} {
		set := compile(t, documents(append(policies, fmt.Sprintf(`{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, requestCostBudget: %d}`, budget))...))
		if got := verdict(set.Decide(context.Background(), policy.Input{Request: req}).Response()); got != want {
			t.Errorf("with %d, of which each costs %d: %s, want %s", budget, cost, got, want)
		}
	}
}

// TestUncountedExceptions has exceptions whose conditions cost less than they may, and more.
func TestUncountedExceptions(t *testing.T) {
	t.Parallel()
	expensive := "!object.data.s.contains('" + strings.Repeat("b", 400) + "')"
	set := compile(t, documents(
		denyAll("p", `validations: [{expression: "object.metadata.name != 'c'"}]`, ""),
		exceptionOf("gatehouse-system", `policies: [{name: p}], match: {matchConditions: [{name: a, expression: "`+expensive+`"}]}`)))
	for size, want := range map[int]string{10: "allowed", 1_000: "allowed", 240_000: "allowed", 260_000: "denied"} {
		req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {s: `+strings.Repeat("a", size)+`}}`)
		if got := verdict(decide(t, set, req)); got != want {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	}
}
