package console

import (
	"context"
	"net/url"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
)

// recordedEffects is what a policy or profile has done by the recordings.
type recordedEffects struct {
	// Reviews is the number of all reviews, and Ready is false while recordings are being read.
	Reviews int
	Ready   bool
	// Chart has the decisions over time in which it refused, warned or injected, and Causes their rules.
	Chart  *chart
	Causes []index.CauseCount
	// URL leads to these decisions.
	URL string
}

// maxCauses bounds the rules that are listed.
const maxCauses = 50

// canReplay reports whether there are recordings: those of the command line, or of the replicas.
func (c *console) canReplay() bool { return len(c.recordingPaths()) > 0 }

// recordedEffects returns what a policy or profile has done, nil without recordings.
func (c *console) recordedEffects(ctx context.Context, kind, name string) (*recordedEffects, error) {
	if !c.canReplay() {
		return nil, nil //nolint:nilnil // there is none
	}
	c.lookAtRecordings()
	state, of := c.index.State(), kind+"/"+name
	out := &recordedEffects{Reviews: state.Rows, Ready: state.Ready, URL: "/decisions?" + url.Values{"policy": {of}}.Encode()}
	filter := index.Filter{Policies: []string{of}}
	buckets, err := c.index.Histogram(ctx, filter, chartBuckets)
	if err != nil {
		return nil, err
	}
	out.Chart = newChart(buckets)
	out.Causes, err = c.index.TopCauses(ctx, filter, true, maxCauses)
	return out, err
}
