package record

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// oneStep is the limit of every replay.
const oneStep = "A replay is one step: it does not know what clients would have done after another answer."

// replayReport is the JSON output of replay.
type replayReport struct {
	// Candidate is what was compared with the recorded answers.
	Candidate string `json:"candidate"`

	*replay.Report

	// UndecidedReviews is the sum of Undecided.
	UndecidedReviews int64 `json:"undecidedReviews"`
	// Exceeded are the limits of --fail-on that are exceeded.
	Exceeded []string `json:"exceeded,omitempty"`
	// Limits say what a replay does not show.
	Limits string `json:"limits"`

	failed []cli.Threshold
}

func newReplayReport(f *replayFlags, report *replay.Report) *replayReport {
	r := &replayReport{
		Candidate: cmp.Or(f.config, recorded), Report: report, UndecidedReviews: report.UndecidedReviews(), Limits: oneStep,
	}
	for _, t := range thresholdsOf(&f.failOn) {
		if n := countOf(t.Name, report); t.IsExceeded(n) {
			r.failed = append(r.failed, t)
			r.Exceeded = append(r.Exceeded, fmt.Sprintf("%s: %d of %s, allowed is %s", t.Name, n, diagnostic.Count(int(report.Reviews), "review"), t.Limit()))
		}
	}
	return r
}

// exit returns the error with the exit code.
func (r *replayReport) exit() error {
	var errs []error
	for _, problem := range r.Problems {
		errs = append(errs, errors.New(cli.Inert(problem)))
	}
	switch {
	case r.Reviews == 0 && len(errs) == 0:
		errs = append(errs, errors.New("there is no such review in the recording, or only logins"))
	case r.Reviews > 0 && r.UndecidedReviews == r.Reviews:
		errs = append(errs, fmt.Errorf("no review can be decided: %s", cli.Inert(r.reasons()[0])))
	}
	for _, t := range r.failed {
		if t.Name == undecidedName {
			errs = append(errs, fmt.Errorf("%d of %s cannot be decided, and --fail-on undecided allows %s", r.UndecidedReviews, diagnostic.Count(int(r.Reviews), "review"), t.Limit()))
		}
	}
	switch {
	case len(errs) > 0:
		return &cli.ExitError{Code: cli.ExitUnknown, Err: errors.Join(errs...)}
	case len(r.failed) > 0:
		return &cli.ExitError{Code: cli.ExitNo}
	default:
		return nil
	}
}

// reasons returns the reasons of undecided reviews, the most frequent first.
func (r *replayReport) reasons() []string {
	return slices.SortedFunc(maps.Keys(r.Undecided), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Undecided[b], r.Undecided[a]), cmp.Compare(a, b))
	})
}

// mostNames is how many names the table lists.
const mostNames = 10

// nameList returns names on one line, at most mostNames of them.
func nameList(names []string, more bool) string {
	shown := names[:min(mostNames, len(names))]
	parts := make([]string, len(shown))
	for i, name := range shown {
		parts[i] = cli.InertName(name)
	}
	text := strings.Join(parts, ", ")
	rest := len(names) - len(shown)
	switch {
	case more:
		text += fmt.Sprintf(" and more than %d others", rest)
	case rest > 0:
		text += fmt.Sprintf(" and %s", diagnostic.Count(rest, "other"))
	}
	return text
}

// changeText returns a change as words.
func changeText(c replay.Change) string { return strings.ReplaceAll(string(c), "-", " ") }

// ruleTitle names the rule of a group.
func ruleTitle(r replay.Rule) string {
	return decision.RuleText(&policy.Violation{Kind: cli.InertName(r.Kind), Policy: r.Name, Rule: r.Rule})
}

// groupTitle says which reviews a group has.
func groupTitle(g *replay.Group) string {
	text := diagnostic.Count(int(g.Reviews), "review")
	if g.Kind != "" {
		text += " of " + cli.InertName(g.Kind)
	}
	if g.Namespace != "" {
		text += " in namespace " + cli.InertName(g.Namespace)
	}
	return text
}

// kindText returns the kind of a review with its subresource.
func kindText(s *replay.Subject) string {
	if s.SubResource == "" {
		return s.Kind
	}
	return s.Kind + "/" + s.SubResource
}

// subjectTitle names a review on one line.
func subjectTitle(s *replay.Subject) string {
	var parts []string
	if s.Operation != "" {
		parts = append(parts, cli.InertName(s.Operation))
	}
	if s.Kind != "" {
		parts = append(parts, cli.InertName(kindText(s)))
	}
	name := cli.InertName(s.Name)
	if s.Namespace != "" {
		name = cli.InertName(s.Namespace) + "/" + name
	}
	if name != "" {
		parts = append(parts, name)
	}
	if s.User != "" {
		parts = append(parts, "by "+cli.InertName(s.User))
	}
	if s.DryRun {
		parts = append(parts, "(dry run)")
	}
	return strings.Join(parts, " ")
}

// answerText returns an answer on one line.
func answerText(a *replay.Answer) string {
	if a == nil {
		return "not kept: the replay has too many examples"
	}
	text := cli.InertName(a.Decision)
	switch text {
	case "unknown":
		text = "cannot decide"
	case "no-opinion":
		text = "inside of the scope"
	}
	if a.Message != "" {
		text += ": " + cli.Inert(a.Message)
	}
	if len(a.Warnings) > 0 {
		text += ", warning: " + cli.Inert(a.Warnings[0])
		if rest := len(a.Warnings) - 1; rest > 0 {
			text += fmt.Sprintf(" and %d more", rest)
		}
	}
	if a.Patch != "" {
		text += ", with a patch"
	}
	return text
}

// comparison says what was compared.
func (r *replayReport) comparison() string {
	name := cli.InertName(r.Candidate)
	if r.Candidate == recorded {
		name = "the recorded configuration"
	}
	return name + " compared with the recorded answers"
}

// printCounts writes a row for each number of reviews, with its share.
func (r *replayReport) printCounts(line func(string, ...any)) {
	row := func(title string, n int64) {
		share := ""
		if r.Reviews > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(n)/float64(r.Reviews))
		}
		line("%10d  %7s  %s", n, share, title)
	}
	row("unchanged", r.Unchanged)
	for _, c := range replay.Changes() {
		if n := r.Changed[c]; n > 0 {
			row(changeText(c), n)
		}
	}
	if n := r.UndecidedReviews; n > 0 {
		row("cannot decide", n)
	}
}

// print writes the report as a table. Flush of out has the error.
func (r *replayReport) print(out io.Writer) {
	line := decision.LinePrinter(out)
	line("%s", diagnostic.Count(int(r.Reviews), "review")+": "+r.comparison())
	if !r.Begin.IsZero() {
		line("%s to %s", cli.FormatTime(&r.Begin), cli.FormatTime(&r.End))
	}
	line("")
	r.printCounts(line)
	for _, reason := range r.reasons() {
		line("%21s%d  %s", "", r.Undecided[reason], cli.Inert(reason))
	}
	if r.Gaps > 0 {
		line("%10d  %7s  not recorded: the server could not write them in time", r.Gaps, "")
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		line("")
		line("%s: %s", changeText(g.Change), ruleTitle(g.Rule))
		line("  %s", groupTitle(g))
		if len(g.Workloads) > 0 {
			line("  workloads  %s", nameList(g.Workloads, g.MoreWorkloads))
		}
		if len(g.Users) > 0 {
			line("  users      %s", nameList(g.Users, g.MoreUsers))
		}
		for j := range g.Examples {
			x := &g.Examples[j]
			line("  example    %s  %s", cli.FormatTime(&x.Review.Time), subjectTitle(&x.Review))
			beginning := strings.TrimSuffix(truncate.Runes(x.Review.ID, 100), "…") // which --show takes, too
			line("             --show %s", shell.Quote(beginning))
			if j > 0 && answerText(x.Before) == answerText(g.Examples[j-1].Before) && answerText(x.After) == answerText(g.Examples[j-1].After) {
				continue // once is enough
			}
			line("             before: %s", answerText(x.Before))
			line("             after:  %s", answerText(x.After))
		}
	}
	if len(r.Notes) > 0 {
		line("")
		for _, note := range r.Notes {
			line("note: %s", cli.Inert(note))
		}
	}
	line("")
	for _, exceeded := range r.Exceeded {
		line("%s", "failed: "+exceeded)
	}
	line("%s", oneStep)
}
