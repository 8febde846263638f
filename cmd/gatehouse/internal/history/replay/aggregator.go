package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
)

// Aggregator sums up results. It is for one goroutine.
type Aggregator struct {
	report Report
	groups map[groupKey]*group
}

type groupKey struct {
	change          Change
	rule            Rule
	namespace, kind string
}

type group struct {
	Group

	workloads, users map[string]bool
}

// NewAggregator returns an empty Aggregator.
func NewAggregator() *Aggregator {
	return &Aggregator{report: Report{Changed: map[Change]int64{}, Undecided: map[string]int64{}}, groups: map[groupKey]*group{}}
}

// Add adds a result. It keeps the Result's strings and answers.
func (a *Aggregator) Add(r *Result) {
	report := &a.report
	report.Reviews++
	if at := r.Review.Time; !at.IsZero() {
		if report.Begin.IsZero() || at.Before(report.Begin) {
			report.Begin = at
		}
		if at.After(report.End) {
			report.End = at
		}
	}
	switch {
	case r.Undecided != "":
		report.Undecided[r.Undecided]++
		return
	case len(r.Changes) == 0:
		report.Unchanged++
		return
	}
	for _, change := range r.Changes {
		report.Changed[change]++
		for _, rule := range r.Rules {
			a.addTo(groupKey{change, rule, r.Review.Namespace, r.Review.Kind}, r)
		}
	}
}

func (a *Aggregator) addTo(key groupKey, r *Result) {
	g := a.groups[key]
	if g == nil {
		g = &group{
			Group:     Group{Change: key.change, Rule: key.rule, Namespace: key.namespace, Kind: key.kind},
			workloads: map[string]bool{}, users: map[string]bool{},
		}
		a.groups[key] = g
	}
	g.Reviews++
	g.MoreWorkloads = addName(g.workloads, r.Review.Workload) || g.MoreWorkloads
	g.MoreUsers = addName(g.users, r.Review.User) || g.MoreUsers
	if len(g.Examples) < MaxExamples {
		g.Examples = append(g.Examples, Example{Review: r.Review, Before: r.Before, After: r.After})
	}
}

// addName adds a name to a set, and reports whether there is no space for it.
func addName(to map[string]bool, name string) (more bool) {
	switch {
	case name == "" || to[name]:
		return false
	case len(to) == MaxNames:
		return true
	}
	to[name] = true
	return false
}

// addProblem adds a file that could not be read to its end.
func (a *Aggregator) addProblem(text string) {
	a.report.Problems = append(a.report.Problems, text)
}

// addNotes adds of what the recording is a sample.
func (a *Aggregator) addNotes(header *record.Header) {
	if header.Share > 0 {
		a.addNote(fmt.Sprintf("numbers and percentages are of the recorded sample, which has all denied requests and all warnings, and %.4g%% of the others", 100*header.Share))
	}
}

func (a *Aggregator) addNote(note string) {
	if !slices.Contains(a.report.Notes, note) {
		a.report.Notes = append(a.report.Notes, note)
	}
}

// Report returns the sum of all results so far.
func (a *Aggregator) Report() *Report {
	out := a.report
	out.Changed, out.Undecided = maps.Clone(out.Changed), maps.Clone(out.Undecided)
	out.Problems, out.Notes = slices.Clone(out.Problems), slices.Clone(out.Notes)
	all := slices.Collect(maps.Values(a.groups))
	order := Changes()
	slices.SortFunc(all, func(a, b *group) int {
		return cmp.Or(
			-cmp.Compare(a.Reviews, b.Reviews), cmp.Compare(slices.Index(order, a.Change), slices.Index(order, b.Change)),
			cmp.Compare(a.Rule.Kind, b.Rule.Kind), cmp.Compare(a.Rule.Name, b.Rule.Name), cmp.Compare(a.Rule.Rule, b.Rule.Rule),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind),
		)
	})
	for _, g := range all {
		one := g.Group
		one.Workloads, one.Users = slices.Sorted(maps.Keys(g.workloads)), slices.Sorted(maps.Keys(g.users))
		out.Groups = append(out.Groups, one)
	}
	return &out
}
