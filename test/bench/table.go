package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// writeTable writes the report for people: a row for each scenario, then the
// memory of the servers, then what policies took to compile, then the bars.
func writeTable(w io.Writer, r *report) error {
	_, old := r.Versions[oldServer]
	rows := [][]string{{"SCENARIO", "NULL µs", "GATEHOUSE ×", "C-R ×", "NULL allocs/KiB", "GATEHOUSE allocs/KiB", "C-R allocs/KiB", "NULL p50/p99 ms", "GATEHOUSE p50/p99 ms", "C-R p50/p99 ms"}}
	for _, s := range r.Scenarios {
		null, gatehouse, usual := s.Servers[nullServer], s.Servers[gatehouseServer], s.Servers[usualServer]
		row := []string{s.Name, "–", ratioText(gatehouse), ratioText(usual)}
		for _, cell := range []func(*series) string{allocationText, latencyText} {
			row = append(row, cell(null), cell(gatehouse), cell(usual))
		}
		if null != nil {
			row[1] = fmt.Sprintf("%.1f", microseconds(null.CPUPerRequest))
		}
		if old {
			row = append(row, ratioText(s.Servers[oldServer]), allocationText(s.Servers[oldServer]))
		}
		rows = append(rows, row)
	}
	if old {
		rows[0] = append(rows[0], "OLD ×", "OLD allocs/KiB")
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Processor time of the server per request: of the null webhook in µs, of the others as a ratio to it\nin the same round; medians of %d rounds. Allocations are objects and KiB per request.\nC-R is the usual webhook on controller-runtime %s.\n%s, %s/%s, %d CPUs, %s.\n\n",
		r.Rounds, r.Versions["sigs.k8s.io/controller-runtime"], r.Versions["go"], r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Started.Format(time.DateOnly))
	align(&text, rows)

	rows = [][]string{{"MEMORY AFTER THE RUN", "RESIDENT MiB", "PEAK MiB"}}
	for _, m := range r.Memory {
		name := m.Server
		if m.Configuration != "" {
			name += ", " + m.Configuration
		}
		rows = append(rows, []string{name, fmt.Sprintf("%.1f", mebibytes(m.Resident)), fmt.Sprintf("%.1f", mebibytes(m.Peak))})
	}
	text.WriteString("\n")
	align(&text, rows)

	if len(r.Compilations) > 0 {
		rows = [][]string{{"POLICIES COMPILED ON ONE PROCESSOR", "SECONDS", "AFTER A CHANGE OF ONE, ms", "HEAP KiB EACH"}}
		for _, c := range r.Compilations {
			rows = append(rows, []string{
				c.Name, fmt.Sprintf("%.2f", c.All.Seconds()), fmt.Sprintf("%.1f", microseconds(c.Change)/1000),
				fmt.Sprintf("%.1f", float64(c.Retained)/1024/float64(c.Policies)),
			})
		}
		text.WriteString("\n")
		align(&text, rows)
	}

	rows = [][]string{{"BAR", "AT MOST", "MEASURED", "RESULT"}}
	for _, b := range r.Bars {
		measured := "–"
		if b.Result != resultNotMeasured {
			measured = fmt.Sprintf("%.2f", b.Measured)
		}
		rows = append(rows, []string{b.What, fmt.Sprintf("%.2f", b.Limit), measured, b.Result})
	}
	text.WriteString("\n")
	align(&text, rows)
	_, err := io.WriteString(w, text.String())
	return err
}

// align writes rows of equal length as columns, the first to the left, the
// others to the right.
func align(w *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for column, cell := range row {
			widths[column] = max(widths[column], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for column, cell := range row {
			padding := strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell))
			if column == 0 {
				w.WriteString(cell + padding)
			} else {
				w.WriteString("  " + padding + cell)
			}
		}
		w.WriteString("\n")
	}
}

// ratioText is the ratio of a server, or a dash for one that was not measured.
func ratioText(s *series) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", s.Ratio)
}

// latencyText is what the callers of a server waited.
func latencyText(s *series) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f/%.2f", microseconds(s.P50)/1000, microseconds(s.P99)/1000)
}

// allocationText is what a server allocated for one request.
func allocationText(s *series) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f/%.1f", s.AllocationsPerRequest, s.BytesPerRequest/1024)
}

// microseconds is a duration as a number.
func microseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Microsecond)
}

// mebibytes is a number of bytes as a number of MiB.
func mebibytes(bytes int64) float64 {
	return float64(bytes) / (1 << 20)
}
