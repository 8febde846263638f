// Command promql takes PromQL apart: it reads expressions from standard input, one JSON string a line, and writes what
// is in each, one JSON object a line. It is a module of its own, so that Prometheus is no dependency of the program.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

// Parts are what an expression is made of.
type Parts struct {
	// Error says why it is none.
	Error string `json:"error,omitempty"`
	// Selectors are the series that it reads.
	Selectors []Selector `json:"selectors,omitempty"`
	// Groupings are labels that it groups, joins or sorts by, each with the metrics that these may come from.
	Groupings []Selector `json:"groupings,omitempty"`
}

// Selector are labels, and the metrics that are to have them.
type Selector struct {
	Metrics []string `json:"metrics"`
	Labels  []string `json:"labels"`
}

func main() {
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run() error {
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var text string
		err := json.Unmarshal(in.Bytes(), &text)
		if err != nil {
			return err
		}
		err = out.Encode(parts(text))
		if err != nil {
			return err
		}
	}
	return in.Err()
}

func parts(text string) Parts {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return Parts{Error: err.Error()}
	}
	var p Parts
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			s := Selector{Metrics: []string{n.Name}}
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" {
					s.Labels = append(s.Labels, m.Name)
				}
			}
			p.Selectors = append(p.Selectors, s)
		case *parser.AggregateExpr:
			if len(n.Grouping) > 0 {
				p.Groupings = append(p.Groupings, Selector{metrics(n.Expr), n.Grouping})
			}
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil && len(m.MatchingLabels)+len(m.Include) > 0 {
				p.Groupings = append(p.Groupings, Selector{metrics(n), append(m.MatchingLabels, m.Include...)})
			}
		}
		return nil
	})
	return p
}

// metrics are the names of all series below a node.
func metrics(node parser.Node) []string {
	var names []string
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	return names
}
