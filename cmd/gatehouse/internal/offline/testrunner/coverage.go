package testrunner

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// RuleCoverage is how often cases have seen a rule pass and violated.
type RuleCoverage struct {
	// Kind and Policy are those of the policy.
	Kind   string `json:"kind"`
	Policy string `json:"policy"`
	// Rule is the rule as answers name it. podSecurity is one rule.
	Rule string `json:"rule"`
	// Passed and Violated are numbers of cases. One case can be both, such as a workload with two templates. A violation that
	// an exception exempts counts, an evaluation that failed does not.
	Passed   int `json:"passed"`
	Violated int `json:"violated"`
}

// Covered reports whether the rule was seen to pass and violated.
func (r *RuleCoverage) Covered() bool { return r.Passed > 0 && r.Violated > 0 }

// Coverage is that of all rules.
type Coverage []RuleCoverage

// Covered returns the number of rules that are covered.
func (c Coverage) Covered() int {
	n := 0
	for i := range c {
		if c[i].Covered() {
			n++
		}
	}
	return n
}

// Reaches reports whether at least this percentage of the rules is covered.
func (c Coverage) Reaches(percent int) bool { return 100*c.Covered() >= percent*len(c) }

// podSecurity is the name of that rule.
const podSecurity = "podSecurity"

// ruleKey identifies a rule.
type ruleKey struct{ kind, policy, rule string }

// NewCoverage counts, for every rule of the policies that the tests of the results are about, the evaluations of each case. It
// is sorted by kinds, names and rules.
func NewCoverage(spec *policy.Spec, results []Result) Coverage {
	c := Coverage{}
	at := map[ruleKey]int{}
	tested := testedBy(results)
	for _, p := range policiesOf(spec) {
		if !tested(p.kind, p.name) {
			continue
		}
		var rules []string
		if p.podSecurity {
			rules = append(rules, podSecurity)
		}
		rules = append(rules, p.validations...)
		for _, rule := range rules {
			at[ruleKey{p.kind, p.name, rule}] = len(c)
			c = append(c, RuleCoverage{Kind: p.kind, Policy: p.name, Rule: rule})
		}
	}
	for i := range results {
		for n, seen := range observe(results[i].Got.Evaluations) {
			if j, known := at[n]; known {
				if seen.passed && (!seen.violated || n.rule != podSecurity) {
					c[j].Passed++
				}
				if seen.violated {
					c[j].Violated++
				}
			}
		}
	}
	return c
}

// testedBy returns what reports whether a test of the results is about a policy.
func testedBy(results []Result) func(kind, name string) bool {
	var all []*About
	for i := range results {
		if about := results[i].Case.About; !slices.Contains(all, about) {
			all = append(all, about)
		}
	}
	return func(kind, name string) bool {
		return slices.ContainsFunc(all, func(a *About) bool { return a.Policy(kind, name) })
	}
}

// Untested returns the policies that none of the tests of the results is about, as kind and name. Their rules are not in the
// coverage.
func Untested(spec *policy.Spec, results []Result) []string {
	tested := testedBy(results)
	var all []string
	for _, p := range policiesOf(spec) {
		if !tested(p.kind, p.name) {
			all = append(all, p.kind+" "+p.name)
		}
	}
	return all
}

// seen is what one case has seen of a rule.
type seen struct{ passed, violated bool }

// observe returns what the evaluations of one case say about rules.
func observe(evaluations []policy.Evaluation) map[ruleKey]seen {
	all := map[ruleKey]seen{}
	for i := range evaluations {
		e := &evaluations[i]
		for _, rule := range e.Rules {
			key := ruleKey{e.Kind, e.Policy, rule.Name}
			if strings.HasPrefix(rule.Name, podSecurity+".") {
				key.rule = podSecurity
			}
			s := all[key]
			switch rule.Outcome {
			case policy.Passed:
				s.passed = true
			case policy.Violated, policy.Excepted, policy.Existing:
				s.violated = true
			case policy.Failed, policy.Ignored, policy.Done:
			}
			all[key] = s
		}
	}
	return all
}
