package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// replayedReview is the JSON output of replay --show.
type replayedReview struct {
	Review replay.Subject `json:"review"`
	// Before and After are the answers. Undecided is why the replay cannot decide.
	Before    *replay.Answer `json:"before,omitempty"`
	After     *replay.Answer `json:"after,omitempty"`
	Undecided string         `json:"undecided,omitempty"`
	// Diff is the difference between the objects that the two answers make of that of the request, as YAML.
	Diff string `json:"diff,omitempty"`
	// Profiles and Policies explain the answer of the candidate.
	Profiles []replayedProfile   `json:"profiles,omitempty"`
	Policies []policy.Evaluation `json:"policies,omitempty"`
	// Mutations are those of mutating policies.
	Mutations []mutation.Evaluation `json:"mutations,omitempty"`
	Limits    string                `json:"limits"`

	violations []policy.Violation
}

// replayedProfile explains the verdict about a sidecar profile.
type replayedProfile struct {
	Profile  string         `json:"profile"`
	Reason   sidecar.Reason `json:"reason"`
	Detail   string         `json:"detail,omitempty"`
	Revision string         `json:"revision,omitempty"`
	Steps    []string       `json:"steps,omitempty"`
}

// mostFound bounds the reviews of --show that are compared.
const mostFound = 100

// showReview shows one review.
func (f *replayFlags) showReview(ctx context.Context, s cli.Streams, sources []replay.Source, candidate *replay.Candidate) error {
	found, damaged := replay.Find(ctx, sources, f.show, mostFound)
	if err := ctx.Err(); err != nil {
		return err
	}
	item, err := f.choose(found)
	if err != nil {
		return errors.Join(err, damaged)
	}
	shown := newReplayedReview(ctx, item, candidate)
	if err := cli.WriteReport(s.Out, f.output, shown, func(out io.Writer) { shown.print(out, f.all) }); err != nil {
		return err
	}
	if shown.Undecided != "" {
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	return nil
}

// choose returns the review of --show.
func (f *replayFlags) choose(found []*replay.Item) (*replay.Item, error) {
	if len(found) == 0 {
		return nil, fmt.Errorf("--show %q: there is no such review in the recording", f.show)
	}
	for _, one := range found {
		if one.Review.ID == f.show {
			return one, nil
		}
		if first := found[0].Review.ID; one.Review.ID != first {
			return nil, fmt.Errorf("--show %q: is the beginning of several IDs: %s, %s …", f.show, cli.InertName(first), cli.InertName(one.Review.ID))
		}
	}
	return found[0], nil
}

func newReplayedReview(ctx context.Context, item *replay.Item, candidate *replay.Candidate) *replayedReview {
	was, is := item.Recorded(), candidate.Explain(ctx, item)
	out := &replayedReview{
		Review: item.Subject(), Before: was, After: is.Answer, Undecided: is.Undecided, Limits: oneStep,
	}
	if is.Policy != nil {
		out.Policies, out.violations = is.Policy.Evaluations, is.Policy.Violations
	}
	if is.Mutation != nil {
		out.Mutations = is.Mutation.Evaluations
	}
	if is.Sidecar != nil {
		for i := range is.Sidecar.Verdicts {
			v := &is.Sidecar.Verdicts[i]
			out.Profiles = append(out.Profiles, replayedProfile{v.Profile, v.Reason, v.Detail, v.Revision, decision.ProfileSteps(v)})
		}
	}
	if is.Answer != nil && was.Patch != is.Answer.Patch {
		out.Diff = patchDiff(item, was.Patch, is.Answer.Patch)
	}
	return out
}

// patchDiff returns the difference between the objects that two patches make of that of the request.
func patchDiff(item *replay.Item, before, after string) string {
	object := rawjson.Value(item.Review.Request).Get("request", "object")
	was, err := decision.Patched(object, before)
	is, otherErr := decision.Patched(object, after)
	if err := errors.Join(err, otherErr); err != nil {
		return "the patches cannot be compared: " + err.Error()
	}
	return string(diff.Diff("before", was, "after", is))
}

// print writes the review as text. Flush of out has the error.
func (r *replayedReview) print(out io.Writer, all bool) {
	line := decision.LinePrinter(out)
	s := &r.Review
	line("%s", subjectTitle(s))
	for _, part := range [][2]string{
		{"id", cli.InertName(s.ID)},
		{"time", cli.FormatTime(&s.Time)},
		{"endpoint", cli.InertName(s.Endpoint)},
		{"workload", cli.InertName(s.Workload)},
		{"recording", cli.InertName(s.Recording)},
	} {
		if part[1] != "" {
			line("  %-9s  %s", part[0], part[1])
		}
	}
	printAnswer(line, "before", r.Before, "")
	printAnswer(line, "after", r.After, r.Undecided)
	for i := range r.violations {
		line("  %s", decision.ViolationLine(&r.violations[i]))
	}
	if r.Diff != "" {
		line("")
		line("what the two answers make of the object:")
		for one := range strings.Lines(r.Diff) {
			_, _ = io.WriteString(out, cli.OneLine(strings.TrimSuffix(one, "\n"))+"\n")
		}
	}
	if len(r.Mutations) > 0 {
		line("")
		line("mutating policies of the candidate:")
		decision.PrintMutations(line, "", r.Mutations, all)
	}
	if len(r.Profiles) > 0 {
		line("")
		line("sidecar profiles:")
		for i := range r.Profiles {
			p := &r.Profiles[i]
			line("  %s  %s  %s", cli.InertName(p.Profile), p.Reason, cli.Inert(p.Detail))
			for _, step := range p.Steps {
				line("      %s", cli.Inert(step))
			}
		}
	}
	if len(r.Policies) > 0 {
		line("")
		line("policies of the candidate:")
		decision.PrintPolicies(line, r.Policies, all)
	}
	line("")
	line("%s", oneStep)
}

// printAnswer writes an answer.
func printAnswer(line func(string, ...any), title string, a *replay.Answer, undecided string) {
	line("")
	if undecided != "" {
		line("%s: %s", title, "cannot decide: "+cli.Inert(undecided))
		return
	}
	if a == nil {
		return
	}
	shown := *a
	shown.Warnings = nil
	line("%s: %s", title, answerText(&shown))
	for _, warning := range a.Warnings {
		line("  warning: %s", cli.Inert(warning))
	}
}
