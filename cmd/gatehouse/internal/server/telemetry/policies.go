package telemetry

import (
	"iter"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// policies counts and measures what policies do. Every label comes from the
// configuration or from this program, never from a request, so that the number
// of time series is bounded by the documents of policies, bindings, exceptions and baselines.
type policies struct {
	evaluations *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	cost        *prometheus.CounterVec
	// uses are the violations that exceptions and baselines allowed, by the outcome that these have.
	uses map[policy.Outcome]*prometheus.CounterVec

	// mu guards the maps, which save making label sets. A review takes it for reading, once.
	mu    sync.RWMutex
	known map[policyLabels]*policySeries
	used  map[useLabels]prometheus.Counter
}

// policyLabels identifies a time series of a policy.
type policyLabels struct {
	kind, policy, binding, rule string
	outcome                     policy.Outcome
}

// useLabels identifies the time series of an exception or a baseline, by the outcome that it leads to and its name.
type useLabels struct {
	outcome          policy.Outcome
	kind, policy, by string
}

// policySeries holds the metrics of an observation.
type policySeries struct {
	evaluations prometheus.Counter
	// duration and cost are nil for a single rule: its policy has them.
	duration prometheus.Observer
	cost     prometheus.Counter
}

func newPolicies(f factory) *policies {
	return &policies{
		evaluations: f.counters("gatehouse_policy_evaluations_total",
			"Policy evaluations by rule and outcome: Passed, Violated, Excepted (violated, and an exception exempts the object), Baselined (violated, and a baseline has the violation), Existing (violated before the update, which makes it no worse), or Failed and Ignored (it cannot be evaluated, and failurePolicy decides). An empty rule counts evaluations of the policy for the binding, with the outcome Evaluated whatever its rules decide. Dry runs are not counted.", "kind", "policy", "binding", "rule", "outcome"),
		// 10 µs to 1 s
		duration: f.histograms("gatehouse_policy_duration_seconds",
			"Duration of one evaluation of a policy with all of its rules.", prometheus.ExponentialBuckets(1e-5, 10, 6), "kind", "policy"),
		cost: f.counters("gatehouse_policy_cost_total", "CEL cost of policy evaluations. That of a policy that cannot reach a cost limit is measured at its first evaluation and every 64th, and counts 64 times.", "kind", "policy"),
		uses: map[policy.Outcome]*prometheus.CounterVec{
			policy.Excepted: f.counters("gatehouse_policy_exceptions_used_total",
				"Violations that an exception allowed, by policy and exception (namespace/name). Dry runs are not counted.", "kind", "policy", "exception"),
			policy.Baselined: f.counters("gatehouse_policy_baselines_used_total",
				"Violations that a baseline allowed, by policy and baseline (namespace/name). Dry runs are not counted.", "kind", "policy", "baseline"),
		},
		known: make(map[policyLabels]*policySeries),
		used:  make(map[useLabels]prometheus.Counter),
	}
}

// Policies counts the results of policies and their rules in a review. It does not keep the
// slice, and allocates nothing for known series.
func (t *Telemetry) Policies(observations []policy.Observation) {
	p := t.policies
	for {
		observations = observations[p.count(observations):]
		if len(observations) == 0 {
			return
		}
		p.addSeries(observations)
	}
}

// count counts the observations up to the first whose series is not known, and
// returns how many these were.
func (p *policies) count(observations []policy.Observation) int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for i := range observations {
		o := &observations[i]
		s := p.known[labelsOf(o)]
		if s == nil {
			return i
		}
		if o.Exception != "" || o.Baseline != "" {
			for use := range usesOf(o) {
				if p.used[use] == nil {
					return i
				}
			}
			for use := range usesOf(o) {
				p.used[use].Inc()
			}
		}
		s.evaluations.Inc()
		if s.cost != nil && o.Cost > 0 {
			s.cost.Add(float64(o.Cost))
		}
		// a failed evaluation has no time
		if s.duration != nil && o.Elapsed > 0 {
			s.duration.Observe(o.Elapsed.Seconds())
		}
	}
	return len(observations)
}

// addSeries adds the series of the observations.
func (p *policies) addSeries(observations []policy.Observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range observations {
		o := &observations[i]
		for use := range usesOf(o) {
			if p.used[use] == nil {
				p.used[use] = p.uses[use.outcome].WithLabelValues(use.kind, use.policy, use.by)
			}
		}
		l := labelsOf(o)
		if p.known[l] != nil {
			continue
		}
		s := &policySeries{evaluations: p.evaluations.WithLabelValues(l.kind, l.policy, l.binding, l.rule, string(l.outcome))}
		if l.rule == "" {
			s.duration = p.duration.WithLabelValues(l.kind, l.policy)
			s.cost = p.cost.WithLabelValues(l.kind, l.policy)
		}
		p.known[l] = s
	}
}

func labelsOf(o *policy.Observation) policyLabels {
	return policyLabels{kind: o.Kind, policy: o.Policy, binding: o.Binding, rule: o.Rule, outcome: o.Outcome}
}

// usesOf returns the time series of what allowed a violation.
func usesOf(o *policy.Observation) iter.Seq[useLabels] {
	return func(yield func(useLabels) bool) {
		if o.Exception != "" {
			for exception := range policy.Exceptions(o.Exception) {
				if !yield(useLabels{policy.Excepted, o.Kind, o.Policy, exception}) {
					return
				}
			}
		}
		if o.Baseline != "" {
			yield(useLabels{policy.Baselined, o.Kind, o.Policy, o.Baseline})
		}
	}
}

// mutatingKind is the kind of the policies that change objects.
const mutatingKind = "MutatingAdmissionPolicy"

// PoliciesLoaded notes the policies, bindings, exceptions and baselines that are active from now on.
// The time series of others end, so that old names take no memory. A review in progress may
// add one again, until the next call.
func (t *Telemetry) PoliciesLoaded(spec *policy.Spec, mutating *mutation.Spec) {
	type named struct{ kind, name string }
	type bound struct {
		named
		binding string
	}
	active, bindings := make(map[named]bool), make(map[bound]bool)
	for _, p := range spec.All() {
		active[named{p.Kind, p.Name}] = true
		for _, b := range p.Bindings {
			bindings[bound{named{p.Kind, p.Name}, b.Name}] = true
		}
	}
	for i := range mutating.Policies {
		active[named{mutatingKind, mutating.Policies[i].Name}] = true
	}
	for i := range mutating.Bindings {
		b := &mutating.Bindings[i]
		bindings[bound{named{mutatingKind, b.Spec.PolicyName}, b.Name}] = true
	}

	type use struct {
		outcome policy.Outcome
		by      string
	}
	uses := make(map[use]bool, len(spec.Exceptions)+len(spec.Baselines))
	for i := range spec.Exceptions {
		uses[use{policy.Excepted, spec.Exceptions[i].Namespace + "/" + spec.Exceptions[i].Name}] = true
	}
	for i := range spec.Baselines {
		uses[use{policy.Baselined, spec.Baselines[i].Namespace + "/" + spec.Baselines[i].Name}] = true
	}

	p := t.policies
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.used {
		if !active[named{x.kind, x.policy}] || !uses[use{x.outcome, x.by}] {
			p.uses[x.outcome].DeleteLabelValues(x.kind, x.policy, x.by)
			delete(p.used, x)
		}
	}
	for l := range p.known {
		of := named{l.kind, l.policy}
		if !active[of] {
			p.duration.DeleteLabelValues(l.kind, l.policy)
			p.cost.DeleteLabelValues(l.kind, l.policy)
		}
		if !active[of] || l.binding != "" && !bindings[bound{of, l.binding}] {
			p.evaluations.DeleteLabelValues(l.kind, l.policy, l.binding, l.rule, string(l.outcome))
			delete(p.known, l)
		}
	}
}
