package console

import (
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
)

// The size of a chart in its own units.
const (
	chartWidth  = 800
	chartHeight = 120
)

// chart are decisions over time, as bars of an SVG and as rows of a table.
type chart struct {
	Width, Height int
	Bars          []bar
	From, To      time.Time
	Most          int
	Decisions     []string
	Rows          []chartRow
}

// bar is a part of a bar.
type bar struct {
	X, Y, Width, Height int
	Class               string
}

// chartRow are the numbers of a time, in the order of chart.Decisions.
type chartRow struct {
	At     time.Time
	Counts []int
}

// newChart returns a chart, nil without decisions.
func newChart(b *index.Buckets) *chart {
	if len(b.Decisions) == 0 {
		return nil
	}
	n := len(b.Counts[b.Decisions[0]])
	c := &chart{
		Width: chartWidth, Height: chartHeight, From: b.From, To: b.From.Add(time.Duration(n) * b.Step), Decisions: b.Decisions,
	}
	// What was refused is at the bottom, where small numbers can be compared.
	order := map[string]int{"bad": 0, "notice": 1, "good": 2}
	slices.SortStableFunc(c.Decisions, func(a, b string) int { return order[outcomeClass(a)] - order[outcomeClass(b)] })
	for i := range n {
		sum := 0
		for _, decision := range c.Decisions {
			sum += b.Counts[decision][i]
		}
		c.Most = max(c.Most, sum)
	}
	for i := range n {
		row := chartRow{At: b.From.Add(time.Duration(i) * b.Step)}
		x, next, sum := i*chartWidth/n, (i+1)*chartWidth/n, 0
		for _, decision := range c.Decisions {
			count := b.Counts[decision][i]
			row.Counts = append(row.Counts, count)
			below := sum * chartHeight / c.Most
			sum += count
			height := sum*chartHeight/c.Most - below
			if count > 0 {
				height = max(height, 1) // it can be seen
				c.Bars = append(c.Bars, bar{x, chartHeight - below - height, max(next-x-1, 1), height, outcomeClass(decision)})
			}
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}
