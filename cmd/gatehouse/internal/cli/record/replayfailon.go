package record

import (
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// Names of --fail-on beside the changes.
const (
	// changedName is any change.
	changedName = "changed"
	// undecidedName are reviews that cannot be decided.
	undecidedName = "undecided"
)

// newThresholds returns --fail-on without a value.
func newThresholds() cli.Thresholds {
	var names []string
	for _, c := range replay.Changes() {
		names = append(names, string(c))
	}
	return cli.Thresholds{Names: append(names, changedName, undecidedName), What: "reviews"}
}

// thresholdsOf returns those that were given, or the default without any.
func thresholdsOf(t *cli.Thresholds) []cli.Threshold {
	if t.Given() {
		return t.List()
	}
	return t.List(changedName)
}

// countOf returns how many reviews a threshold is about.
func countOf(name string, r *replay.Report) int64 {
	switch name {
	case changedName:
		return r.Reviews - r.Unchanged - r.UndecidedReviews()
	case undecidedName:
		return r.UndecidedReviews()
	default:
		return r.Changed[replay.Change(name)]
	}
}
