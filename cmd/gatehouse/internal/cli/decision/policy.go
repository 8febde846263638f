// Package decision prints decisions for people: policies with the values of their expressions, violations, and patched objects. Commands that
// decide offline and those that replay recordings share it.
package decision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// IsMatch reports whether a policy matches requests like this one.
func IsMatch(why policy.Why) bool {
	return why != policy.OtherRequest && why != policy.Exempt && why != policy.NotInForce
}

// isEvaluated reports whether a policy was evaluated, or should have been.
func isEvaluated(why policy.Why) bool { return why == policy.Evaluated || why == policy.Misconfigured }

const (
	// mostOthers is how many policies that are not evaluated are listed.
	mostOthers = 8
	// mostValue is how many characters of the value of a variable are shown.
	mostValue = 160
)

// PrintPolicies writes what each policy said about a request, with expressions and their values. All also lists every policy
// that was not evaluated, and expressions in full.
func PrintPolicies(line func(string, ...any), policies []policy.Evaluation, all bool) {
	// A policy that matches a pod template, or the object itself, is not listed as one that does not match.
	type key struct{ kind, name string }
	matching := make(map[key]bool)
	for i := range policies {
		if p := &policies[i]; IsMatch(p.Why) {
			matching[key{p.Kind, p.Policy}] = true
		}
	}
	var listed []*policy.Evaluation
	others := make(map[policy.Why]int)
	sum := 0
	for i := range policies {
		p := &policies[i]
		if !IsMatch(p.Why) && matching[key{p.Kind, p.Policy}] {
			continue
		}
		if listed = append(listed, p); !isEvaluated(p.Why) {
			others[p.Why]++
			sum++
		}
	}
	list := all || sum <= mostOthers
	for _, p := range listed {
		if list || isEvaluated(p.Why) {
			printEvaluation(line, p, all)
		}
	}
	if list {
		return
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(others)) {
		parts = append(parts, fmt.Sprintf("%d %s", others[why], WhyText(why)))
	}
	line("  %d others are not evaluated: %s (hint: --all lists them)", sum, strings.Join(parts, ", "))
}

// whyTexts are the reasons of evaluations for people.
//
//nolint:gochecknoglobals // constant
var whyTexts = map[policy.Why]string{
	policy.Evaluated:            "evaluated",
	policy.Exempt:               "exempt",
	policy.OtherRequest:         "about other requests",
	policy.NamespaceNotSelected: "namespace not selected",
	policy.ObjectNotSelected:    "object not selected",
	policy.ConditionFalse:       "condition false",
	policy.NoParams:             "no params",
	policy.NotInForce:           "without a binding",
	policy.Misconfigured:        "cannot be evaluated",
}

// WhyText returns the reason of an evaluation for people.
func WhyText(why policy.Why) string { return cmp.Or(whyTexts[why], string(why)) }

// printEvaluation writes one policy.
func printEvaluation(line func(string, ...any), p *policy.Evaluation, all bool) {
	about := RuleText(&policy.Violation{Kind: p.Kind, Policy: p.Policy, Binding: p.Binding, Param: p.Param, Template: p.Template}) + ": " + WhyText(p.Why)
	if p.Detail != "" && p.Why != policy.NotInForce { // which says it already
		about += "; " + cli.OneLine(p.Detail)
	}
	if p.Cost > 0 {
		about += fmt.Sprintf("; cost %d of 10,000,000", p.Cost) // celconfig.RuntimeCELCostBudget
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
		line("      %s %s%s (cost %d)", what, cli.OneLine(x.Name), value, x.Cost)
		if all || x.Error != "" {
			line("          %s", onOneLine(x.Text))
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
			message += " (PolicyException " + cli.OneLine(r.Exception) + ")"
		}
		if r.Baseline != "" {
			message += " (PolicyBaseline " + cli.OneLine(r.Baseline) + ")"
		}
		spent := ""
		if p.Cost > 0 {
			spent = fmt.Sprintf("cost %*d  ", cost, r.Cost)
		}
		line("      %-*s  %-*s  %s%s", width, cli.OneLine(r.Name), result, strings.ToLower(string(r.Outcome)), spent, message)
		if len(r.Containers) > 0 {
			line("          evaluated again without the exempt containers, it passes: %s", cli.OneLine(diagnostic.QuotedList(r.Containers)))
		}
		for _, tried := range r.Tried {
			what := "PolicyException " + tried.Exception
			if tried.Baseline != "" {
				what = "PolicyBaseline " + tried.Baseline
			}
			line("          %s does not apply: %s", strict.Printable(what), cli.OneLine(tried.Why))
		}
		if r.Text != "" && (all || r.Outcome != policy.Passed) {
			line("          %s", onOneLine(r.Text))
		}
	}
	if p.Contact != "" && slices.ContainsFunc(p.Rules, func(r policy.Rule) bool { return r.Outcome != policy.Passed }) {
		line("      contact: %s", cli.OneLine(p.Contact))
	}
	for i := range p.AuditAnnotations {
		expression("audit annotation", &p.AuditAnnotations[i])
	}
}

// onOneLine returns an expression on one line.
func onOneLine(text string) string { return cli.OneLine(strings.Join(strings.Fields(text), " ")) }

// ViolationLine returns a violation on one line, without its effect.
func ViolationLine(v *policy.Violation) string {
	text := RuleText(v) + ": " + cli.OneLine(v.Message)
	if v.Exception != "" {
		text += " (PolicyException " + strict.Printable(v.Exception) + ")"
	}
	if v.Baseline != "" {
		text += " (PolicyBaseline " + strict.Printable(v.Baseline) + ")"
	}
	if v.Contact != "" && v.Refuses() {
		text += " (contact: " + cli.OneLine(v.Contact) + ")"
	}
	return text
}

// RuleText names the rule and the policy of a violation. Injection can refuse a pod without a profile.
func RuleText(v *policy.Violation) string {
	text := v.Kind + " " + strict.Printable(v.Policy)
	rule := v.Rule
	if v.Kind == admit.InjectionKind && v.Policy == "" {
		text, rule = "sidecar injection", ""
	}
	if v.Binding != "" {
		text += " with binding " + strict.Printable(v.Binding)
	}
	for _, part := range []struct{ what, name string }{{"param ", v.Param}, {"template ", v.Template}, {"", rule}} {
		if part.name != "" {
			text += ", " + part.what + strict.Printable(part.name)
		}
	}
	return text
}
