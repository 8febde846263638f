package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// TestAggregator checks that a group keeps the first examples, and so many names, and that the group with the most reviews is first.
func TestAggregator(t *testing.T) {
	t.Parallel()
	a := replay.NewAggregator()
	const n = 100
	answer := &replay.Answer{Decision: "allowed"}
	for i := range n {
		a.Add(&replay.Result{
			Review:  replay.Subject{Time: time.Unix(int64(i), 0), Namespace: fmt.Sprint("n", i)},
			Changes: []replay.Change{replay.NewlyRefused}, Rules: []replay.Rule{{Kind: "AdmissionPolicy", Name: "p"}}, Before: answer, After: answer,
		})
		a.Add(&replay.Result{Undecided: fmt.Sprint("reason ", i%10)})
		a.Add(&replay.Result{
			Review:  replay.Subject{User: fmt.Sprint("u", i), Workload: fmt.Sprint("Deployment/w", i%50)},
			Changes: []replay.Change{replay.NewWarnings}, Rules: []replay.Rule{{Name: "q"}},
		})
		a.Add(&replay.Result{})
	}
	r := a.Report()
	if r.Reviews != 4*n || r.Unchanged != n || r.Changed[replay.NewlyRefused] != n || r.UndecidedReviews() != n || len(r.Undecided) != 10 {
		t.Errorf("reviews %d, unchanged %d, changed %v, undecided %v", r.Reviews, r.Unchanged, r.Changed, r.Undecided)
	}
	first := r.Groups[0]
	if len(r.Groups) != n+1 || first.Rule.Name != "q" || first.Reviews != n || r.Groups[1].Examples[0].After != answer {
		t.Errorf("%d groups, the first %+v", len(r.Groups), first)
	}
	if len(first.Users) != replay.MaxNames || !first.MoreUsers || len(first.Workloads) != 50 || first.MoreWorkloads || len(first.Examples) != replay.MaxExamples {
		t.Errorf("%d users, %v, %d workloads, %v, %d examples", len(first.Users), first.MoreUsers, len(first.Workloads), first.MoreWorkloads, len(first.Examples))
	}
	if !r.Begin.Equal(time.Unix(0, 0)) || !r.End.Equal(time.Unix(n-1, 0)) {
		t.Errorf("from %v to %v", r.Begin, r.End)
	}
}

// TestSamplingIsNoted replays recordings of which some are samples. There is one note for each share.
func TestSamplingIsNoted(t *testing.T) {
	t.Parallel()
	var sources []replay.Source
	for i, share := range []float64{0.1, 0, 0.1, 0.5} {
		sources = append(sources, file(t, fmt.Sprint(i), &record.Line{Header: &record.Header{Format: record.FormatVersion, Share: share}}, line(fmt.Sprint(i))))
	}
	report, _ := run(t, replay.Options{Sources: sources, Candidate: load(t, admissionPolicy("p", always))})
	const note = "numbers and percentages are of the recorded sample, which has all denied requests and all warnings, and %s of the others"
	if want := []string{fmt.Sprintf(note, "10%"), fmt.Sprintf(note, "50%")}; !slices.Equal(report.Notes, want) {
		t.Errorf("notes %q, want %q", report.Notes, want)
	}
}
