package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// TestAggregatorBounds adds more of everything than a Report may hold.
func TestAggregatorBounds(t *testing.T) {
	t.Parallel()
	a := replay.NewAggregator()
	const n = 6000
	long := &replay.Answer{Decision: "allowed", Message: strings.Repeat("x", 64<<10)}
	for i := range n {
		a.Add(&replay.Result{
			Review:  replay.Subject{ID: fmt.Sprint(i), Time: time.Unix(int64(i), 0), Namespace: fmt.Sprint("n", i%5000), User: fmt.Sprint("u", i), Workload: fmt.Sprint("Deployment/w", i)},
			Changes: []replay.Change{replay.NewlyRefused}, Rules: []replay.Rule{{Kind: "AdmissionPolicy", Name: "p"}}, Before: long, After: long,
		})
		a.Add(&replay.Result{Undecided: fmt.Sprint("reason ", i)})
		a.Add(&replay.Result{
			Review:  replay.Subject{User: fmt.Sprint("u", i), Workload: fmt.Sprint("Deployment/w", i%50)},
			Changes: []replay.Change{replay.NewWarnings}, Rules: []replay.Rule{{Name: "q"}},
		})
		a.Add(&replay.Result{})
	}
	r := a.Report()
	if r.Reviews != 4*n || r.Unchanged != n || r.Changed[replay.NewlyRefused] != n || r.UndecidedReviews() != n || len(r.Undecided) != replay.MaxReasons {
		t.Errorf("reviews %d, unchanged %d, changed %v, %d reasons", r.Reviews, r.Unchanged, r.Changed, len(r.Undecided))
	}
	if len(r.Groups) != replay.MaxGroups || r.Groups[0].Rule.Name != "q" || r.Groups[0].Reviews != n {
		t.Fatalf("%d groups, the first %+v", len(r.Groups), r.Groups[0])
	}
	total, bytes := r.MoreGroups, 0
	for _, g := range r.Groups {
		total += g.Reviews
		for _, example := range g.Examples {
			if example.Before != nil {
				bytes += len(example.Before.Message)
			}
		}
	}
	if total != 2*n || bytes > 8<<20 {
		t.Errorf("groups and MoreGroups come to %d, want %d; examples have %d bytes", total, 2*n, bytes)
	}
	first := r.Groups[0]
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
	const note = "numbers and percentages are of the recorded sample, which has all denied requests and all warnings, and %s of the others (hint: use no percentages with --fail-on)"
	if want := []string{fmt.Sprintf(note, "10%"), fmt.Sprintf(note, "50%")}; !slices.Equal(report.Notes, want) {
		t.Errorf("notes %q, want %q", report.Notes, want)
	}
}
