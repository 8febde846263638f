package offline

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// policies explains what policies say about an object, and what becomes of it.
func (x *explainer) policies(ctx context.Context, o *manifest.Object, e *explained) {
	from := x.ask(ctx, o, true)
	e.configured = len(x.matchers) > 0
	e.Policies, e.note, e.unasked = from.evaluations, from.note, from.injection && e.configured
	e.Verdict, e.unreadable = from.verdict(), unreadable(o) != nil
	for i := range from.violations {
		if v := &from.violations[i]; v.Kind == admit.InjectionKind {
			e.denials = append(e.denials, *v)
		}
	}
	e.Error = cmp.Or(from.untold(), e.Error)
}

// concerned reports whether there is something to explain about an object without
// a pod.
func (e *explained) concerned() bool {
	return e.Error != "" || e.note != "" || slices.ContainsFunc(e.Policies, func(p policy.Evaluation) bool { return isAbout(p.Why) })
}

// isAbout reports whether a policy is about requests like this one, whatever it
// says about the object.
func isAbout(why policy.Why) bool {
	return why != policy.OtherRequest && why != policy.Exempt && why != policy.NotInForce
}

// counts reports whether a policy has had its say.
func counts(why policy.Why) bool { return why == policy.Evaluated || why == policy.Misconfigured }

const (
	// mostOthers is how many policies that do not count are listed.
	mostOthers = 8
	// mostValue is how many characters of the value of a variable are shown.
	mostValue = 160
)

// printPolicies writes what is told about policies.
func (e *explained) printPolicies(line func(string, ...any), all bool) {
	if e.unasked {
		line("  policies are not asked about a pod that injection refuses")
		return
	}
	// A policy that is about a pod template, or about the object itself, is not
	// said to be about other requests besides.
	type key struct{ kind, name string }
	about := make(map[key]bool)
	for i := range e.Policies {
		if p := &e.Policies[i]; isAbout(p.Why) {
			about[key{p.Kind, p.Policy}] = true
		}
	}
	var told []*policy.Evaluation
	others := make(map[policy.Why]int)
	sum := 0
	for i := range e.Policies {
		p := &e.Policies[i]
		if !isAbout(p.Why) && about[key{p.Kind, p.Policy}] {
			continue
		}
		if told = append(told, p); !counts(p.Why) {
			others[p.Why]++
			sum++
		}
	}
	list := all || sum <= mostOthers
	for _, p := range told {
		if list || counts(p.Why) {
			printEvaluation(line, p, all)
		}
	}
	if list {
		return
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(others)) {
		parts = append(parts, fmt.Sprintf("%d %s", others[why], whyText(why)))
	}
	line("  %d others are not evaluated: %s (hint: --all lists them)", sum, strings.Join(parts, ", "))
}

// whyText is the reason for people.
func whyText(why policy.Why) string {
	switch why {
	case policy.Evaluated:
		return "evaluated"
	case policy.Exempt:
		return "exempt"
	case policy.OtherRequest:
		return "about other requests"
	case policy.NamespaceNotSelected:
		return "namespace not selected"
	case policy.ObjectNotSelected:
		return "object not selected"
	case policy.ConditionFalse:
		return "condition false"
	case policy.NoParams:
		return "no params"
	case policy.NotInForce:
		return "without a binding"
	case policy.Misconfigured:
		return "cannot be evaluated"
	default:
		return string(why)
	}
}

// printEvaluation writes what became of one policy.
func printEvaluation(line func(string, ...any), p *policy.Evaluation, all bool) {
	about := ruleText(&policy.Violation{Kind: p.Kind, Policy: p.Policy, Binding: p.Binding, Param: p.Param, Template: p.Template}) + ": " + whyText(p.Why)
	if p.Detail != "" && p.Why != policy.NotInForce { // which says it already
		about += "; " + cli.OneLine(p.Detail)
	}
	if p.Cost > 0 {
		about += fmt.Sprintf("; cost %d", p.Cost)
	}
	line("  %s", about)
	expression := func(what string, x *policy.Expression) {
		value := " = " + cli.OneLine(x.Value)
		if !all {
			value = strict.Cut(value, mostValue)
		}
		if x.Error != "" {
			value = " failed: " + cli.OneLine(x.Error)
		}
		line("      %s %s%s (cost %d)", what, x.Name, value, x.Cost)
		if all || x.Error != "" {
			line("          %s", folded(x.Text))
		}
	}
	for i := range p.Conditions {
		expression("condition", &p.Conditions[i])
	}
	for i := range p.Variables {
		expression("variable", &p.Variables[i])
	}
	width, result, cost := 0, 0, 0
	for i := range p.Rules {
		r := &p.Rules[i]
		width, result, cost = max(width, len(r.Name)), max(result, len(r.Outcome)), max(cost, len(strconv.FormatInt(r.Cost, 10)))
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		message := cli.OneLine(r.Message)
		if r.Exception != "" {
			message += " (PolicyException " + r.Exception + ")"
		}
		spent := ""
		if p.Cost > 0 {
			spent = fmt.Sprintf("cost %*d  ", cost, r.Cost)
		}
		line("      %-*s  %-*s  %s%s", width, r.Name, result, strings.ToLower(string(r.Outcome)), spent, message)
		for _, tried := range r.Tried {
			line("          PolicyException %s does not hold: %s", strict.Printable(tried.Exception), cli.OneLine(tried.Why))
		}
		if r.Text != "" && (all || r.Outcome != policy.Passed) {
			line("          %s", folded(r.Text))
		}
	}
	for i := range p.AuditAnnotations {
		expression("audit annotation", &p.AuditAnnotations[i])
	}
}

// folded is an expression on one line.
func folded(text string) string { return cli.OneLine(strings.Join(strings.Fields(text), " ")) }
