package decision

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// IsMutating reports whether a mutating policy matches requests like this one.
func IsMutating(e mutation.Evaluation) bool {
	return e.Why != mutation.OtherRequest && e.Why != mutation.Exempt && e.Why != mutation.NotInForce
}

// PrintMutations writes what each mutating policy did to an object, or to the pods of the template at a path. All lists every policy
// that was not evaluated, and expressions.
func PrintMutations(line func(string, ...any), template string, evaluations []mutation.Evaluation, all bool) {
	others := 0
	for i := range evaluations {
		e := &evaluations[i]
		if !all && !IsMutating(*e) {
			others++
			continue
		}
		about := RuleText(&policy.Violation{Kind: admit.MutationKind, Policy: e.Policy, Binding: e.Binding, Param: e.Param, Template: template}) + ": " + mutationWhy(e)
		if e.Detail != "" {
			about += "; " + cli.OneLine(e.Detail)
		}
		line("  %s", about)
		for k := range e.Mutations {
			printMutation(line, &e.Mutations[k], all)
		}
	}
	if others > 0 {
		line("  %d mutating policies are about other requests or have no binding (hint: --all lists them)", others)
	}
}

// mutationWhy returns the reason of an evaluation for people.
func mutationWhy(e *mutation.Evaluation) string {
	switch {
	case e.Why == mutation.Evaluated && e.Again:
		return "evaluated again, because a later policy changed the object"
	case e.Why == mutation.ConditionNotMet:
		return WhyText(policy.ConditionFalse)
	case e.Why == mutation.Failed:
		return WhyText(policy.Misconfigured)
	default: // both have the same names
		return WhyText(policy.Why(e.Why))
	}
}

// printMutation writes what one mutation changed.
func printMutation(line func(string, ...any), m *mutation.Mutation, all bool) {
	result := fmt.Sprintf("mutations[%d] %s", m.Index, m.Kind)
	switch {
	case m.Error != "":
		result += " failed: " + cli.OneLine(m.Error)
	case len(m.Changes) == 0:
		result += " changes nothing"
	}
	line("      %s (cost %d)", result, m.Cost)
	if all || m.Error != "" {
		line("          %s", onOneLine(m.Text))
	}
	for _, c := range m.Changes {
		before, after := cmp.Or(string(c.Before), "absent"), cmp.Or(string(c.After), "absent")
		if !all {
			before, after = strict.Cut(before, mostValue), strict.Cut(after, mostValue)
		}
		line("          %s: %s → %s", cli.OneLine(c.Path), cli.OneLine(strings.TrimSpace(before)), cli.OneLine(strings.TrimSpace(after)))
	}
}

// ProfileSteps returns the steps by which a sidecar profile was decided about, and its parameters, each on one line.
func ProfileSteps(v *sidecar.Verdict) (steps []string) {
	if v.Explanation == nil {
		return nil
	}
	for _, step := range v.Explanation.Steps {
		steps = append(steps, strings.TrimRight(step.Name+": "+step.Result+"  "+step.Detail, " "))
	}
	for _, parameter := range v.Explanation.Parameters {
		steps = append(steps, fmt.Sprintf("parameter %s = %q (%s)", parameter.Name, parameter.Value, parameter.From))
	}
	return steps
}
