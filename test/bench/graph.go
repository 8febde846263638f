package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"
)

// curve is a line of the graph: what a server takes in some scenarios.
type curve struct {
	label, server, class string
	scenarios            []string  // without protocol and concurrency
	at                   []float64 // of each scenario on the axis
}

// panel is one of the two coordinate systems of the graph.
type panel struct {
	title, axis string
	ticks       []float64
	curves      []curve
}

// panels returns what the graph shows.
func panels() []panel {
	counts, sizes := []float64{1, 10, 100, 1000}, []float64{1.5, 5, 60, 600}
	ten := []string{"validate-1-policy/5KB", "validate-10-policies/5KB", "validate-10-of-100-policies/5KB", "validate-10-of-1000-policies/5KB"}
	all := []string{"validate-10-policies/5KB", "validate-100-policies/5KB"}
	policies, mutate := bySize("validate-10-policies"), bySize("mutate")
	return []panel{
		{"Pods of 5 KB, by number of policies", "policies", counts, []curve{
			{"in-tree, all match", inTreeServer, "in-tree dashed", all, counts[1:3]},
			{"in-tree, ten match", inTreeServer, "in-tree", ten, counts},
			{"Gatehouse, all match", gatehouseServer, "gatehouse dashed", all, counts[1:3]},
			{"Gatehouse, ten match", gatehouseServer, "gatehouse", ten, counts},
			{"null", nullServer, "null", ten, counts},
		}},
		{"By size of the pod: ten policies, or injection", "KB", sizes, []curve{
			{"in-tree", inTreeServer, "in-tree", policies, sizes},
			{"Gatehouse", gatehouseServer, "gatehouse", policies, sizes},
			{"Gatehouse, injection", gatehouseServer, "gatehouse dashed", mutate, sizes},
			{"null", nullServer, "null", policies, sizes},
		}},
	}
}

// bySize returns the names of a scenario with pods of all sizes.
func bySize(name string) []string {
	return []string{name + "/1.5KB", name + "/5KB", name + "/60KB", name + "/600KB"}
}

// graphed is the protocol and the concurrency of the graph's scenarios: what an API
// server speaks to a Service.
const graphed = "/http1/c16"

// The graph has its own background, because a page that embeds it may be light or
// dark without the browser's preference.
const graphHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 400" role="img" aria-labelledby="title" font-family="sans-serif" font-size="12">
<title id="title">Processor time of a review, by number of policies and by size of the pod</title>
<style>
.page { fill: #ffffff } .grid { stroke: #d8dee4 } text { fill: #1f2328 } .small { fill: #59636e }
polyline { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 5 4 }
polyline.gatehouse { stroke: #0969da } polyline.in-tree { stroke: #bc4c00 } polyline.null { stroke: #6e7781 }
circle.gatehouse { fill: #0969da } circle.in-tree { fill: #bc4c00 } circle.null { fill: #6e7781 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #f0f6fc } .small { fill: #9198a1 }
polyline.gatehouse { stroke: #58a6ff } polyline.in-tree { stroke: #f0883e } polyline.null { stroke: #9198a1 }
circle.gatehouse { fill: #58a6ff } circle.in-tree { fill: #f0883e } circle.null { fill: #9198a1 }
}
</style>
<rect class="page" width="1000" height="400"/>
`

// writeGraph writes the graph as SVG.
func (r *report) writeGraph(path string) error {
	graph, err := r.graph()
	if err != nil {
		return fmt.Errorf("--graph: %w", err)
	}
	return os.WriteFile(path, []byte(graph), 0o644) //nolint:gosec // part of the documentation
}

// graph returns the graph as SVG: processor time over the number of policies, and
// over the size of the pod, all logarithmic.
func (r *report) graph() (string, error) {
	const top, bottom, width = 60.0, 330.0, 260.0
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range panels() {
		for _, c := range p.curves {
			for _, scenario := range c.scenarios {
				if micros := r.microseconds(scenario+graphed, c.server); micros > 0 {
					low, high = min(low, math.Floor(math.Log10(micros))), max(high, math.Ceil(math.Log10(micros)))
				}
			}
		}
	}
	if low >= high {
		return "", errors.New("none of its scenarios was measured (hint: --scenario '^(validate-1[0-9a-z-]*-polic(y|ies)|mutate)/.*" + graphed + "')")
	}
	y := func(micros float64) float64 { return bottom - (math.Log10(micros)-low)/(high-low)*(bottom-top) }

	var b strings.Builder
	b.WriteString(graphHead)
	for i, p := range panels() {
		left := 65 + 500*float64(i)
		first, last := math.Log10(p.ticks[0]), math.Log10(p.ticks[len(p.ticks)-1])
		x := func(at float64) float64 { return left + (math.Log10(at)-first)/(last-first)*width }
		fmt.Fprintf(&b, `<text x="%.0f" y="24" font-weight="bold">%s</text>`+"\n", left, p.title)
		fmt.Fprintf(&b, `<text class="small" x="%.0f" y="42">processor time of a review, µs</text>`+"\n", left)
		for exponent := low; exponent <= high; exponent++ {
			at := y(math.Pow(10, exponent))
			fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, left+width, at, at)
			fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", left-6, at+4, thousands(math.Pow(10, exponent)))
		}
		for _, tick := range p.ticks {
			fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x(tick), bottom+18, thousands(tick))
		}
		fmt.Fprintf(&b, `<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", left+width/2, bottom+36, p.axis)
		r.writeCurves(&b, p.curves, x, y, left+width+14, top+40)
	}
	fmt.Fprintf(&b, `<text class="small" x="65" y="390">HTTP/1.1, concurrency 16, medians of %d rounds; %s, %d CPUs, %s</text>`+"\n</svg>\n",
		r.rounds, runtime.Version(), runtime.NumCPU(), r.started.Format(time.DateOnly))
	return b.String(), nil
}

// writeCurves writes the measured curves of a panel, and a legend at a place.
func (r *report) writeCurves(b *strings.Builder, curves []curve, x, y func(float64) float64, legendX, legendY float64) {
	for _, c := range curves {
		var points []string
		for i, scenario := range c.scenarios {
			if micros := r.microseconds(scenario+graphed, c.server); micros > 0 {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(c.at[i]), y(micros)))
				fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"><title>%s: %.0f µs</title></circle>`, c.class, x(c.at[i]), y(micros), scenario, micros)
			}
		}
		if len(points) == 0 {
			continue
		}
		fmt.Fprintf(b, `<polyline class="%s" points="%s"/>`+"\n", c.class, strings.Join(points, " "))
		fmt.Fprintf(b, `<polyline class="%s" points="%.1f,%.1f %.1f,%.1f"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
			c.class, legendX, legendY, legendX+20, legendY, legendX+26, legendY+4, c.label)
		legendY += 20
	}
}

// microseconds returns the median processor time of a request, or 0 if it was not
// measured.
func (r *report) microseconds(scenario, server string) float64 {
	return float64(median(each(r.samples(scenario, server), sample.perRequest))) / float64(time.Microsecond)
}

// thousands formats a number with commas.
func thousands(n float64) string {
	text := fmt.Sprintf("%g", n)
	if n >= 1000 {
		text = fmt.Sprintf("%d,%03d", int(n)/1000, int(n)%1000)
	}
	return text
}
