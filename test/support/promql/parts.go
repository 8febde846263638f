package main

import "github.com/prometheus/prometheus/promql/parser"

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

func parts(text string) Parts {
	expr, err := syntax.ParseExpr(text)
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
