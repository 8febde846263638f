package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that a run measured.
type report struct {
	started time.Time
	rounds  int
	results []result
	memory  []memory
	// diskBytes is the size of a recorded review, of the servers that record.
	diskBytes float64
}

// result is what was measured in one scenario.
type result struct {
	scenario string
	samples  map[string][]sample // by the kind of the server; the index is the round
}

// sample is one round of one server in one scenario.
type sample struct {
	requests int
	cpu      time.Duration // of the server, for all requests
	p50, p99 time.Duration
	allocations
}

// allocations are what a process has allocated on Go's heap.
type allocations struct{ objects, bytes float64 }

// minus returns the difference.
func (a allocations) minus(b allocations) allocations {
	return allocations{objects: a.objects - b.objects, bytes: a.bytes - b.bytes}
}

// memory is what a server holds after all rounds, in MiB, without the pages of its program: how many of these the kernel maps, and keeps, does
// not depend on the server.
type memory struct {
	kind, configuration string
	resident, peak      float64
}

// samples returns what was measured on a kind of server in a scenario, or nil.
func (r *report) samples(scenario, kind string) []sample {
	for _, result := range r.results {
		if result.scenario == scenario {
			return result.samples[kind]
		}
	}
	return nil
}

// added returns by how much more memory Gatehouse has with one configuration
// than with another, or 0 if one was not measured.
func (r *report) added(less, more string) float64 {
	resident := map[string]float64{}
	for _, m := range r.memory {
		if m.kind == gatehouseServer {
			resident[m.configuration] = m.resident
		}
	}
	if resident[less] == 0 || resident[more] == 0 {
		return 0
	}
	return max(resident[more]-resident[less], 0.01)
}

// addedRatio returns the median over the rounds of how much more processor time one scenario takes than
// another, as a ratio to null in the same scenario and round. It is 0 if one was not measured.
func (r *report) addedRatio(less, more string) float64 {
	ratio := func(scenario string, round int) float64 {
		of, null := r.samples(scenario, gatehouseServer), r.samples(scenario, nullServer)
		if round >= len(of) || round >= len(null) || null[round].perRequest() == 0 {
			return 0
		}
		return of[round].perRequest().Seconds() / null[round].perRequest().Seconds()
	}
	var all []float64
	for round := range r.rounds {
		if a, b := ratio(less, round), ratio(more, round); a > 0 && b > 0 {
			all = append(all, b-a)
		}
	}
	if len(all) == 0 {
		return 0
	}
	return max(median(all), 0.01)
}

// passed reports whether every bar was measured and held.
func (r *report) passed() bool {
	return !slices.ContainsFunc(bars(), func(b bar) bool {
		measured := b.measured(r)
		return measured == 0 || measured > b.limit
	})
}

// write writes the report: a row for each scenario, then the memory of the
// servers, then the bars.
func (r *report) write(out io.Writer) error {
	version := ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "k8s.io/apiserver" {
				version = module.Version
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row(fmt.Sprintf("Processor time of the server per request: of the null webhook in µs, of the others as a ratio to it\n"+
		"in the same round; medians of %d rounds. Allocations are objects and KiB per request.\n"+
		"IN-TREE is the API server's own plugin for the same policies (k8s.io/apiserver %s)\n"+
		"behind the HTTP handler of Gatehouse.\n%s, %s/%s, %d CPUs, %s.\n",
		r.rounds, version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), r.started.Format(time.DateOnly)))

	columns := []struct{ kind, title string }{{nullServer, "NULL"}, {gatehouseServer, "GATEHOUSE"}, {inTreeServer, "IN-TREE"}, {oldServer, "OLD"}}
	if !slices.ContainsFunc(r.results, func(result result) bool { return result.samples[oldServer] != nil }) {
		columns = columns[:3]
	}
	cells := []string{"SCENARIO", "NULL µs"}
	for _, c := range columns[1:] {
		cells = append(cells, c.title+" ×")
	}
	for _, c := range columns {
		cells = append(cells, c.title+" allocs/KiB")
	}
	for _, c := range columns {
		cells = append(cells, c.title+" p50/p99 ms")
	}
	row(cells...)
	for _, result := range r.results {
		null := result.samples[nullServer]
		cells := []string{result.scenario, fmt.Sprintf("%.1f", median(each(null, sample.perRequest)).Seconds()*1e6)}
		for _, c := range columns[1:] {
			cells = append(cells, orDash(result.samples[c.kind] != nil, "%.2f", medianRatio(result.samples[c.kind], null)))
		}
		for _, c := range columns {
			a := meanAllocations(result.samples[c.kind])
			cells = append(cells, orDash(result.samples[c.kind] != nil, "%.0f/%.1f", a.objects, a.bytes/1024))
		}
		for _, c := range columns {
			samples := result.samples[c.kind]
			p50, p99 := median(each(samples, func(s sample) time.Duration { return s.p50 })), median(each(samples, func(s sample) time.Duration { return s.p99 }))
			cells = append(cells, orDash(samples != nil, "%.2f/%.2f", p50.Seconds()*1e3, p99.Seconds()*1e3))
		}
		row(cells...)
	}

	row("\nMEMORY AFTER THE RUN", "RESIDENT MiB", "PEAK MiB")
	for _, m := range r.memory {
		row(strings.TrimSuffix(m.kind+", "+m.configuration, ", "), fmt.Sprintf("%.1f", m.resident), fmt.Sprintf("%.1f", m.peak))
	}
	row("\nBAR", "AT MOST", "MEASURED", "RESULT")
	for _, b := range bars() {
		measured, verdict := b.measured(r), "pass"
		if measured == 0 {
			verdict = "not measured"
		} else if measured > b.limit {
			verdict = "fail"
		}
		row(b.what, fmt.Sprintf("%.2f", b.limit), orDash(measured != 0, "%.2f", measured), verdict)
	}
	return w.Flush()
}

// orDash formats numbers, or returns a dash for what was not measured.
func orDash(measured bool, format string, numbers ...any) string {
	if !measured {
		return "–"
	}
	return fmt.Sprintf(format, numbers...)
}

// perRequest returns the processor time of one request.
func (s sample) perRequest() time.Duration { return s.cpu / time.Duration(s.requests) }

// meanAllocations returns the means over all requests of the samples. They are no
// medians because Go's counters lag behind: they count what a processor has
// allocated when it is done with a piece of memory, or at a collection, up to
// some thousand objects later. Over the rounds that evens out.
func meanAllocations(samples []sample) allocations {
	var total allocations
	requests := 0.0
	for _, s := range samples {
		total.objects += s.objects
		total.bytes += s.bytes
		requests += float64(s.requests)
	}
	return allocations{objects: total.objects / requests, bytes: total.bytes / requests}
}

// each returns a quantity of every sample.
func each[T any](samples []sample, quantity func(sample) T) []T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = quantity(s)
	}
	return values
}

// median returns the median of the values, the mean of the two in the middle if
// their number is even, and 0 if there are none.
func median[T ~int64 | ~float64](values []T) T {
	values = slices.Sorted(slices.Values(values))
	if len(values) == 0 {
		return 0
	}
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// medianRatio returns the median over the rounds of the ratio of the processor
// times per request of two servers. Rounds in which the base used no measurable
// time do not count.
func medianRatio(samples, base []sample) float64 {
	var ratios []float64
	for round := range min(len(samples), len(base)) {
		if of := base[round].perRequest(); of > 0 {
			ratios = append(ratios, samples[round].perRequest().Seconds()/of.Seconds())
		}
	}
	return median(ratios)
}
