package audit

import (
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
)

// mostNames is how many namespaces the table lists.
const mostNames = 10

// mostUnjudged is how many lines the table has about what was not judged, of each sort.
const mostUnjudged = 50

// print writes the report for people. Flush of out has the error.
func (r *report) print(out io.Writer) {
	line := decision.LinePrinter(out)
	if r.isLog {
		line("%s in %s", r.counted(), r.Configuration)
		line("from %s to %s", cli.FormatTime(&r.Began), cli.FormatTime(&r.Ended))
	} else {
		line("%s", r.counted()+" judged by "+r.Configuration)
		line("%s, in %s", cli.FormatTime(&r.Began), r.elapsed())
	}
	if r.Unseen != "" {
		line("note: %s", r.Unseen)
	}
	var rules, changes []summary.Rule
	for i := range r.Rules {
		one := &r.Rules[i]
		if one.Fail+one.Error+one.Warn+one.Excepted+one.Baselined+one.Skip > 0 {
			rules = append(rules, *one)
		} else if one.Change > 0 {
			changes = append(changes, *one)
		}
	}
	if len(rules) > 0 {
		line("")
		printRules(line, rules, r.Totals.Baselined > 0)
	}
	if len(changes) > 0 {
		line("")
		line("%8s  %s", "CHANGE", "POLICY")
		for i := range changes {
			line("%8s  %s", grouped(changes[i].Change), ruleTitle(changes[i].Kind, changes[i].Policy, changes[i].Rule))
			printDetails(line, changes[i].Namespaces, nil, changes[i].Examples)
		}
	}
	r.printInjection(line)
	r.printAllowing(line)
	r.printUnjudged(line)
	if r.Baseline != nil {
		r.Baseline.print(line)
	}
	line("")
	for _, exceeded := range r.Exceeded {
		line("%s", "failed: "+exceeded)
	}
	line("%s", r.sentence())
}

// sentence says what the result is.
func (r *report) sentence() string {
	t := &r.Totals
	if r.isLog {
		text := fmt.Sprintf("%s: %s refused, %s warned or audited, %s exempt, %s without an answer of a webhook", r.counted(), grouped(t.Fail), grouped(t.Warn), grouped(t.Excepted), grouped(t.Error))
		if !r.Complete {
			text += "; the log was not read completely"
		}
		return text
	}
	text := fmt.Sprintf("%s: %s fail, %s warn, %s excepted, %s cannot be decided", objectCount(r.Objects), grouped(t.Fail), grouped(t.Warn), grouped(t.Excepted), grouped(t.Error))
	if t.Baselined > 0 {
		text += ", " + grouped(t.Baselined) + " baselined"
	}
	if t.Change > 0 {
		text += ", " + grouped(t.Change) + " would be changed"
	}
	if !r.Complete {
		text += "; the audit is not complete"
	}
	return text
}

// printRules writes a row for each rule, with its namespaces and examples.
func printRules(line func(string, ...any), rules []summary.Rule, baselines bool) {
	row := func(fail, warn, failed, excepted, baselined, rule string) {
		text := fmt.Sprintf("%8s  %8s  %8s  %8s  ", fail, warn, failed, excepted)
		if baselines {
			text += fmt.Sprintf("%9s  ", baselined)
		}
		line("%s", text+rule)
	}
	row("FAIL", "WARN", "ERROR", "EXCEPTED", "BASELINED", "RULE")
	for i := range rules {
		one := &rules[i]
		row(grouped(one.Fail), grouped(one.Warn), grouped(one.Error), grouped(one.Excepted), grouped(one.Baselined), ruleTitle(one.Kind, one.Policy, one.Rule))
		printDetails(line, one.Namespaces, one.Users, one.Examples)
	}
}

// printDetails writes where objects are, and examples.
func printDetails(line func(string, ...any), namespaces, users []summary.Named, examples []summary.Example) {
	if text := namesText(namespaces); text != "" {
		line("%10sin        %s", "", text)
	}
	if text := namesText(users); text != "" {
		line("%10sby        %s", "", text)
	}
	for i := range examples {
		line("%10s%-8s  %s", "", exampleLabel(&examples[i]), exampleText(&examples[i]))
	}
}

// printInjection writes a row for each profile.
func (r *report) printInjection(line func(string, ...any)) {
	if len(r.Injection) == 0 {
		return
	}
	line("")
	const row = "%8s  %8s  %8s  %8s  %8s  %s"
	titles := make([]any, 0, len(summary.States())+1)
	for _, state := range summary.States() {
		titles = append(titles, strings.ToUpper(string(state)))
	}
	line(row, append(titles, "PROFILE")...)
	for i := range r.Injection {
		p := &r.Injection[i]
		cells := make([]any, 0, len(summary.States())+1)
		for _, state := range summary.States() {
			cells = append(cells, grouped(p.States[state]))
		}
		line(row, append(cells, cli.InertName(p.Profile))...)
		printDetails(line, p.Namespaces, nil, p.Examples)
	}
}

// printAllowing writes which exceptions and baselines are used.
func (r *report) printAllowing(line func(string, ...any)) {
	for _, of := range []struct {
		what  string
		named []summary.Named
	}{{"exceptions", r.Exceptions}, {"baselines", r.Baselines}} {
		if len(of.named) > 0 {
			line("")
			line("%s in use: %s", of.what, namesText(of.named))
		}
	}
}

// printUnjudged writes what was not judged, and why.
func (r *report) printUnjudged(line func(string, ...any)) {
	list := func(title string, texts []string) {
		if len(texts) == 0 {
			return
		}
		line("")
		line("%s", title)
		for _, text := range texts[:min(mostUnjudged, len(texts))] {
			line("  %s", cli.Inert(text))
		}
		if more := len(texts) - mostUnjudged; more > 0 {
			line("  and %d more (hint: -o json has all)", more)
		}
	}
	list("not judged:", r.Unjudged)
	list("rules that an audit cannot judge:", r.skippedTexts())
	list("resources that policies name and the cluster does not have:", r.Unknown)
}

// skippedTexts returns a line for each skipped rule.
func (r *report) skippedTexts() []string {
	texts := make([]string, len(r.Skipped))
	for i, s := range r.Skipped {
		texts[i] = ruleTitle(s.Kind, s.Policy, s.Rule) + ": " + s.Reason
	}
	return texts
}
