package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

// replayResult is what the template "replayed" shows.
type replayResult struct {
	*replay.Report

	Groups []replayGroup
	// Counts are the numbers of changes, in the order of reports.
	Counts []replayCount
	// MoreReviews is the number of changed reviews of groups that are not shown.
	MoreReviews int64
	Comment     string
	Command     []string
}

type replayCount struct {
	Text, Class string
	Reviews     int64
}

// replayGroup is a group of changed reviews.
type replayGroup struct {
	*replay.Group

	Text, Class string
	// PolicyURL leads to the policy or profile, "" if it has no page.
	PolicyURL string
	Examples  []replayExample
}

// replayExample is an example with a link to the decision.
type replayExample struct {
	*replay.Example

	URL string
}

// maxReplayGroups bounds the groups that are shown.
const maxReplayGroups = 50

// startReplay begins a replay of recordings as a job. The candidate is compared with the recorded answers if against is nil.
func (c *console) startReplay(title string, sources []replay.Source, command []string, candidate, against *replay.Candidate) *web.Job {
	return c.web.Start(c.ctx, title, func(ctx context.Context, report func(web.Progress)) (*web.View, error) {
		done, err := replay.Run(ctx, replay.Options{
			Sources: sources, Candidate: candidate, Against: against,
			// Policies and profiles decide nothing about logins.
			Keep: func(s *replay.Subject) bool { return s.Endpoint != "authenticate" },
			Progress: func(p replay.Progress) {
				report(web.Progress{Text: fmt.Sprintf("%d reviews so far", p.Reviews), Done: p.Read, Total: p.Size})
			},
		})
		if err != nil {
			return nil, err //nolint:wrapcheck // it is that of the context
		}
		return &web.View{Template: "replayed", Data: newReplayResult(done, command)}, nil
	})
}

// newReplayResult returns a report for the page.
func newReplayResult(report *replay.Report, command []string) *replayResult {
	out := &replayResult{Report: report, MoreReviews: report.MoreGroups, Command: command}
	for _, change := range replay.Changes() {
		if n := report.Changed[change]; n > 0 {
			out.Counts = append(out.Counts, replayCount{changeText(change), changeClass(change), n})
		}
	}
	for i := range report.Groups {
		g := &report.Groups[i]
		if i >= maxReplayGroups {
			out.MoreReviews += g.Reviews
			continue
		}
		one := replayGroup{Group: g, Text: changeText(g.Change), Class: changeClass(g.Change)}
		if slices.Contains([]string{admissionPolicyKind, nativePolicyKind, profileKind}, g.Rule.Kind) {
			one.PolicyURL = policyURL(g.Rule.Kind, g.Rule.Name)
		}
		for j := range g.Examples {
			one.Examples = append(one.Examples, replayExample{&g.Examples[j], decisionURL(&index.Row{Subject: g.Examples[j].Review})})
		}
		out.Groups = append(out.Groups, one)
	}
	out.Comment = replayComment(out)
	return out
}

// changeText returns a change for people.
func changeText(change replay.Change) string { return strings.ReplaceAll(string(change), "-", " ") }

// changeClass returns the class of a change.
func changeClass(change replay.Change) string {
	switch change {
	case replay.NewlyRefused, replay.NoLongerDecidable:
		return "bad"
	case replay.NewlyAdmitted:
		return "good"
	case replay.ChangedPatch, replay.ChangedIdentity, replay.NewWarnings:
		return "notice"
	default:
		return ""
	}
}

// Title returns the rule of a group.
func (g replayGroup) Title() string {
	return strings.TrimSpace(g.Rule.Kind + " " + g.Rule.Name + " " + g.Rule.Rule)
}

// replayComment returns a replay as a comment for a pull request.
func replayComment(r *replayResult) string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) } // to memory
	line("### Gatehouse: whom this change would have affected\n")
	line("%d recorded reviews from %s to %s, %d with the same answer.\n", r.Reviews, cli.FormatTime(&r.Begin), cli.FormatTime(&r.End), r.Unchanged)
	for _, c := range r.Counts {
		line("- %d %s", c.Reviews, c.Text)
	}
	if n := r.UndecidedReviews(); n > 0 {
		line("- %d cannot be decided from the recording", n)
	}
	if len(r.Groups) > 0 {
		line("\n| change | rule | namespace | kind | reviews | workloads |\n|---|---|---|---|---|---|")
	}
	for _, g := range r.Groups {
		workloads := g.Workloads[:min(len(g.Workloads), mostNames)]
		more := ""
		if len(g.Workloads) > mostNames || g.MoreWorkloads {
			more = ", …"
		}
		names := make([]string, len(workloads))
		for i, name := range workloads {
			names[i] = markdown(name)
		}
		line("| %s | %s | %s | %s | %d | %s%s |", g.Text, markdown(g.Title()), markdown(g.Namespace), markdown(g.Kind), g.Reviews, strings.Join(names, ", "), more)
	}
	return b.String()
}

// mostNames is how many workloads and users of a group are shown.
const mostNames = 10

// FirstWorkloads and FirstUsers are those that are shown.
func (g replayGroup) FirstWorkloads() []string { return g.Workloads[:min(len(g.Workloads), mostNames)] }

// FirstUsers are the users that are shown.
func (g replayGroup) FirstUsers() []string { return g.Users[:min(len(g.Users), mostNames)] }

// HasMoreWorkloads reports whether there are others.
func (g replayGroup) HasMoreWorkloads() bool { return g.MoreWorkloads || len(g.Workloads) > mostNames }

// HasMoreUsers reports whether there are others.
func (g replayGroup) HasMoreUsers() bool { return g.MoreUsers || len(g.Users) > mostNames }

// recordingOf returns the recording that a form names, all of them for "", and its arguments for a command. It can name none but those of
// the command line.
func (c *console) recordingOf(name string) (sources []replay.Source, words []string, err error) {
	words = c.recordings
	switch {
	case c.isMirrored() && name == "":
		c.lookAtRecordings()
		if sources = c.index.Sources(); len(sources) == 0 {
			err = web.BadRequest("no recording of a replica has been read yet (hint: try again, or look at the page Decisions)")
		}
		return sources, []string{"RECORDING"}, err
	case len(c.recordings) == 0:
		return nil, nil, web.BadRequest("there is no recording to replay (hint: gatehouse console --recording FILE)")
	case name == "":
	case !slices.Contains(c.recordings, name):
		return nil, nil, web.NotFound("%q is not a --recording", cli.InertName(name))
	default:
		words = []string{name}
	}
	sources, problems := replay.Sources(words)
	return sources, words, errors.Join(problems...)
}

// startTryReplay begins a replay of the recording of the form with the candidate.
func (c *console) startTryReplay(l *loaded, form *tryForm) (*web.Job, error) {
	sources, words, err := c.recordingOf(form.Recording)
	if err != nil {
		return nil, err
	}
	x, err := c.newCandidate(l, form.Documents)
	if err != nil {
		return nil, err
	}
	defer x.remove()
	loadedCandidate, err := replay.Load(x.all)
	if err != nil {
		return nil, x.clean(err)
	}
	return c.startReplay("Replay of the candidate", sources, append([]string{"replay", "--config", "DIR"}, words...), loadedCandidate, nil), nil
}
