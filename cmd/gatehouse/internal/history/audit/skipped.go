package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// skippedRules returns the rules and policies that an audit does not evaluate, by policy.
func skippedRules(left []policy.RequestDependent) []Skipped {
	out := make([]Skipped, 0, len(left))
	for i := range left {
		l := &left[i]
		reads := "reads " + strings.Join(l.Reads, ", ") + ", which an audit does not know"
		skipped := Skipped{Kind: l.Kind, Policy: l.Policy, Rule: l.Rule, Reason: "it " + reads}
		switch {
		case l.Condition != "":
			skipped.Reason = fmt.Sprintf("its match condition %q %s", l.Condition, reads)
		case l.Rule == "":
			skipped.Reason = "it does not match the creation of objects"
		}
		out = append(out, skipped)
	}
	sortSkipped(out)
	return out
}

// sortSkipped sorts by policy. The rules of a policy stay in their order.
func sortSkipped(list []Skipped) {
	slices.SortStableFunc(list, func(a, b Skipped) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Policy, b.Policy))
	})
}

// skipped returns the policies that an audit does not evaluate for what they match, besides those of skippedRules.
func (m *matchers) skipped(served *Served, known []Skipped) []Skipped {
	var out []Skipped
	for i := range m.policies {
		p := &m.policies[i]
		about := Skipped{Kind: p.kind, Policy: p.name}
		if slices.ContainsFunc(known, func(s Skipped) bool { return s.Rule == "" && s.Kind == p.kind && s.Policy == p.name }) {
			continue
		}
		reads := slices.ContainsFunc(served.resources, func(r resource) bool { return p.matches(&r) && !isLeftOut(r.GroupResource) })
		if !reads && len(p.literals()) > 0 && !slices.ContainsFunc(served.resources, func(r resource) bool { return p.matches(&r) }) {
			continue // what it names is unknown, and reported as that
		}
		for _, other := range m.otherVersions(p, served) {
			about.Reason = other
			out = append(out, about)
		}
		if !reads {
			about.Reason = "an audit does not read what it matches, because requests for it are never sent to Gatehouse"
			out = append(out, about)
		}
		secrets := resource{GroupResource: schemaSecrets, namespaced: true, versions: []string{"v1"}}
		if ruleNames(p.rules, &secrets, "v1") && !p.namesLiterally(schemaSecrets) && reads {
			about.Reason = "for Secrets: an audit reads them only for policies that name secrets, and not for wildcards"
			out = append(out, about)
		}
	}
	return out
}

// otherVersions returns why a policy with matchPolicy Exact is not evaluated for resources that an audit reads in
// a version that the policy does not match.
func (m *matchers) otherVersions(p *matcher, served *Served) []string {
	if !p.exact {
		return nil
	}
	var reasons []string
	for i := range served.resources {
		r := &served.resources[i]
		if version, read := m.version(r); read && p.matches(r) && !p.names(r, version) {
			reasons = append(reasons, fmt.Sprintf("for %s: its matchPolicy is Exact, and an audit reads version %s", r.GroupResource, version))
		}
	}
	return reasons
}
