package chromium

import (
	_ "embed"
	"fmt"
	"strings"
)

// axe is axe-core 4.14.1 (Mozilla Public License 2.0), which finds what keeps people with disabilities from using a page.
//
//go:embed axe/axe.min.js
var axe string

// Violation is a rule of axe-core that a page breaks.
type Violation struct {
	// ID is that of the rule, and Help says what it wants.
	ID, Impact, Help string
	Nodes            []struct {
		Target         []any
		HTML           string
		FailureSummary string
	}
}

// String returns the rule and the first elements that break it.
func (v Violation) String() string {
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%s (%s): %s, %d elements", v.ID, v.Impact, v.Help, len(v.Nodes))
	const most = 3
	for _, node := range v.Nodes[:min(most, len(v.Nodes))] {
		_, _ = fmt.Fprintf(&text, "\n  %v %.300s\n    %s", node.Target, node.HTML, strings.ReplaceAll(node.FailureSummary, "\n", "\n    "))
	}
	return text.String()
}

// Axe returns the rules of WCAG 2.2 level AA, and the best practices of axe-core, that the page breaks. DevTools bring the script
// into the page, so that the page's content security policy need not allow it.
func (p *Page) Axe() []Violation {
	p.t.Helper()
	p.Evaluate(axe+`;undefined`, nil)
	var result struct {
		Violations []Violation
		Passes     int
	}
	p.Evaluate(`axe.run(document, {runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}, resultTypes: ["violations"]})
		.then(result => ({Violations: result.violations, Passes: result.passes.length}))`, &result)
	if result.Passes == 0 {
		p.t.Fatal("axe: no rule applies to the page")
	}
	return result.Violations
}
