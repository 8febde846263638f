package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
)

// recordingsData is what the part about recordings shows.
type recordingsData struct {
	State index.State
	Files []index.FileState
	Pages pager
	Chart *chart
}

// showRecordings shows the files of the recordings, and their decisions over time.
func (c *console) showRecordings(r *http.Request) (partData, error) {
	data := &recordingsData{State: c.index.State()}
	data.Files, data.Pages = paginate(r, "recordings", data.State.Files)
	part := partData{Data: data, Notes: data.State.Problems}
	if len(c.recordings) > 0 {
		part.Command = append([]string{"record", "show"}, c.recordings...)
	}
	buckets, err := c.index.Histogram(r.Context(), index.Filter{}, chartBuckets)
	if err == nil {
		data.Chart = newChart(buckets)
	}
	return part, err
}
