package console

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
)

// recordingsData is what the part about recordings shows.
type recordingsData struct {
	State index.State
	Files []index.FileState
	Pages pager
	// Lines are a chart of each outcome, Steps are the numbers, and Step is the time between them.
	Lines    []line
	Steps    []recordingStep
	Outcomes []string
	Step     time.Duration
}

// recordingStep is the number of reviews in a time.
type recordingStep struct {
	Begin  time.Time
	Counts []int
}

// recordingSteps is the number of times into which recordings are divided.
const recordingSteps = 48

// showRecordings shows the files of --recording.
func (c *console) showRecordings(r *http.Request) (partData, error) {
	data, err := recordingsOf(r, c.index)
	part := partData{Data: data, Notes: data.State.Problems}
	if len(c.recordings) > 0 {
		part.Command = append([]string{"record", "show"}, c.recordings...)
	}
	return part, err
}

// recordingsOf returns what an index has.
func recordingsOf(r *http.Request, x *index.Index) (*recordingsData, error) {
	data := &recordingsData{State: x.State()}
	data.Files, data.Pages = paginate(r, "recordings", data.State.Files)
	if data.State.Rows == 0 {
		return data, nil
	}
	return data, data.count(r.Context(), x)
}

// count makes the charts.
func (d *recordingsData) count(ctx context.Context, x *index.Index) error {
	counted, err := x.Histogram(ctx, index.Filter{}, recordingSteps)
	if err != nil {
		return err
	}
	d.Outcomes, d.Step = counted.Decisions, counted.Step.Round(time.Second)
	d.Steps = make([]recordingStep, recordingSteps)
	for i := range d.Steps {
		d.Steps[i].Begin = counted.From.Add(time.Duration(i) * counted.Step)
	}
	for _, outcome := range d.Outcomes {
		values, total := make([]float64, recordingSteps), 0.0
		for i, n := range counted.Counts[outcome] {
			values[i], total = float64(n), total+float64(n)
			d.Steps[i].Counts = append(d.Steps[i].Counts, n)
		}
		l := newLine(outcome, outcomeClass(outcome), values)
		l.Total = total
		d.Lines = append(d.Lines, l)
	}
	return nil
}
