package testrunner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// RuleCoverage is how often cases have seen a rule kept and violated.
type RuleCoverage struct {
	// Kind and Policy are those of the policy.
	Kind   string `json:"kind"`
	Policy string `json:"policy"`
	// Rule is as answers name it, but podSecurity as a whole: its checks are
	// upstream's, and what a policy decides is which of them hold.
	Rule string `json:"rule"`
	// Passed and Violated are numbers of cases. One case can be both: of a
	// workload, say, one of whose templates violates the rule. A violation that
	// an exception lets pass counts, one that could not be evaluated does not.
	Passed   int `json:"passed"`
	Violated int `json:"violated"`
}

// Covered reports whether the rule has been seen to say yes and to say no: one that
// was not may be always true, or always false.
func (r *RuleCoverage) Covered() bool { return r.Passed > 0 && r.Violated > 0 }

// Coverage is that of all rules.
type Coverage []RuleCoverage

// Covered is the number of rules that are covered.
func (c Coverage) Covered() int {
	n := 0
	for i := range c {
		if c[i].Covered() {
			n++
		}
	}
	return n
}

// Reaches reports whether at least this percentage of the rules is covered. Of no
// rules every percentage is.
func (c Coverage) Reaches(percent int) bool { return 100*c.Covered() >= percent*len(c) }

// podSecurity is the name of that rule.
const podSecurity = "podSecurity"

// ruleKey is what only one rule has.
type ruleKey struct{ kind, policy, rule string }

// NewCoverage counts, for every rule of the policies that the tests of the
// results are about, what the evaluations of each case say. The order is that of
// kinds, names and rules.
func NewCoverage(spec *policy.Spec, results []Result) Coverage {
	c := Coverage{}
	at := map[ruleKey]int{}
	about := tested(results)
	add := func(kind, name, rule string) {
		if !about(kind, name) {
			return
		}
		at[ruleKey{kind, name, rule}] = len(c)
		c = append(c, RuleCoverage{Kind: kind, Policy: name, Rule: rule})
	}
	for i := range spec.AdmissionPolicies {
		p := &spec.AdmissionPolicies[i]
		if p.Spec.PodSecurity != nil {
			add(ownKind, p.Name, podSecurity)
		}
		for rule := range p.Spec.Validations {
			add(ownKind, p.Name, fmt.Sprintf("validations[%d]", rule))
		}
	}
	for i := range spec.Policies {
		p := &spec.Policies[i]
		for rule := range p.Spec.Validations {
			add(upstreamKind, p.Name, fmt.Sprintf("validations[%d]", rule))
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
	slices.SortStableFunc(c, func(a, b RuleCoverage) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Policy, b.Policy))
	})
	return c
}

// tested tells of which policies the tests of the results are.
func tested(results []Result) func(kind, name string) bool {
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

// Untested are the policies that none of the tests of the results is about, as
// kind and name, in the order of these. Their rules are not in the coverage.
func Untested(spec *policy.Spec, results []Result) []string {
	about := tested(results)
	var all []string
	add := func(kind, name string) {
		if !about(kind, name) {
			all = append(all, kind+" "+name)
		}
	}
	for i := range spec.AdmissionPolicies {
		add(ownKind, spec.AdmissionPolicies[i].Name)
	}
	for i := range spec.Policies {
		add(upstreamKind, spec.Policies[i].Name)
	}
	slices.Sort(all)
	return all
}

// seen is what one case has seen of a rule.
type seen struct{ passed, violated bool }

// observe is what the evaluations of one case say about rules.
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
