package offline

import (
	"encoding/json"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// isMatched reports whether there is something to explain about an object without a pod.
func (e *explained) isMatched() bool {
	if slices.ContainsFunc(e.Mutations, func(m explainedMutation) bool { return slices.ContainsFunc(m.Policies, decision.IsMutating) }) {
		return true
	}
	return e.Error != "" || len(e.Invalid)+len(e.Violations) > 0 || e.from.note != "" || slices.ContainsFunc(e.Policies, func(p policy.Evaluation) bool { return decision.IsMatch(p.Why) })
}

// explainedMutation is what mutating policies do to an object, or to the pods of its template.
type explainedMutation struct {
	// Template is the path of the template, "" for the object itself.
	Template string `json:"template,omitempty"`
	// Policies are all policies, also those that do not match, in the order in which they run.
	Policies []mutation.Evaluation `json:"policies"`
	// Last are the paths that were changed, and the mutation that did it last.
	Last []lastChange `json:"last,omitempty"`
	// Conflicts say which policies give different results in different orders.
	Conflicts []explainedConflict `json:"conflicts,omitempty"`
}

// explainedConflict is a pair of policies whose order matters.
type explainedConflict struct {
	First  string `json:"first"`
	Second string `json:"second"`
	// Paths are where the results differ. InOrder and Reversed are the results, absent for an object that is refused or unchanged.
	Paths    []string        `json:"paths,omitempty"`
	InOrder  json.RawMessage `json:"inOrder,omitempty"`
	Reversed json.RawMessage `json:"reversed,omitempty"`

	text string
}

// explainMutations explains the decisions of mutating policies.
func explainMutations(all []admit.Mutated) (out []explainedMutation) {
	for i := range all {
		m := &all[i]
		if len(m.Evaluations) == 0 {
			continue
		}
		one := explainedMutation{Template: m.Template, Policies: m.Evaluations, Last: lastChangesOf(all[i : i+1])}
		for k := range m.Conflicts {
			c := &m.Conflicts[k]
			one.Conflicts = append(one.Conflicts, explainedConflict{c.First, c.Second, c.Paths, c.InOrder.Object, c.Reversed.Object, admit.ConflictText(c)})
		}
		out = append(out, one)
	}
	return out
}

// print writes the explanation for people.
func (m *explainedMutation) print(line func(string, ...any), all bool) {
	decision.PrintMutations(line, m.Template, m.Policies, all)
	if len(m.Last) > 0 {
		line("  changed last by")
	}
	for _, c := range m.Last {
		line("      %s  %s, binding %s, mutations[%d]", cli.OneLine(c.Path), cli.OneLine(c.Policy), cli.OneLine(c.Binding), c.Mutation)
	}
	for i := range m.Conflicts {
		line("  order matters: %s", cli.OneLine(m.Conflicts[i].text))
		for _, one := range []struct {
			first, second string
			result        json.RawMessage
		}{{m.Conflicts[i].First, m.Conflicts[i].Second, m.Conflicts[i].InOrder}, {m.Conflicts[i].Second, m.Conflicts[i].First, m.Conflicts[i].Reversed}} {
			for _, path := range m.Conflicts[i].Paths {
				line("      %s before %s: %s = %s", cli.OneLine(one.first), cli.OneLine(one.second), cli.OneLine(path), cli.OneLine(manifest.ValueAt(one.result, path)))
			}
		}
	}
}

// printPolicies writes the policies.
func (e *explained) printPolicies(line func(string, ...any), all bool) {
	if e.from.undecodable && e.hasPolicies {
		line("  no policy is evaluated, because the API server cannot decode the object")
		return
	}
	if e.from.SkippedPolicies && e.hasPolicies {
		why := "injection rejects the pod"
		if slices.ContainsFunc(e.from.Violations, func(v policy.Violation) bool { return v.Kind == admit.MutationKind }) {
			why = "a mutating policy refuses the object"
		}
		line("  no policy is evaluated, because %s", why)
		return
	}
	decision.PrintPolicies(line, e.Policies, all)
}
