package offline

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/github"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/junit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// testReport is the JSON output of test.
type testReport struct {
	Cases  []testedCase `json:"cases"`
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	// Kubernetes is the version for which the configuration was compiled, "" for not at all. Then of those that passed, Stays need Gatehouse for
	// a rule that was not compiled.
	Kubernetes string `json:"kubernetes,omitempty"`
	Stays      int    `json:"stays,omitempty"`

	results []testrunner.Result
}

type testedCase struct {
	Source      string                  `json:"source"`
	Field       string                  `json:"field"`
	Test        string                  `json:"test"`
	Name        string                  `json:"name"`
	Passed      bool                    `json:"passed"`
	Differences []testrunner.Difference `json:"differences,omitempty"`
	Reasons     []string                `json:"reasons,omitempty"`
	Stays       []string                `json:"stays,omitempty"`
	Got         *testrunner.Outcome     `json:"got"`
}

func newTestReport(results []testrunner.Result, kubernetes string) *testReport {
	report := &testReport{results: results, Kubernetes: kubernetes}
	for i := range results {
		r := &results[i]
		if r.Passed() {
			report.Passed++
			if len(r.Stays) > 0 {
				report.Stays++
			}
		} else {
			report.Failed++
		}
		report.Cases = append(report.Cases, testedCase{
			Source: r.Case.Source, Field: r.Case.Field, Test: r.Case.Test, Name: r.Case.Name,
			Passed: r.Passed(), Differences: r.Differences, Reasons: r.Reasons, Stays: r.Stays, Got: &r.Got,
		})
	}
	return report
}

func (f *testFlags) write(s cli.Streams, r *testReport) error {
	switch f.output {
	case "junit":
		return r.junit(s.Out)
	case "github":
		return github.Write(s.Out, r.failures(), r.summary())
	}
	return cli.WriteReport(s.Out, f.output, r, func(out io.Writer) {
		p := testPrinter{out: out}
		p.report(r)
	})
}

// testPrinter writes for people. Flush of out has the error.
type testPrinter struct {
	out io.Writer
}

func (p *testPrinter) line(format string, args ...any) {
	decision.LinePrinter(p.out)(format, args...)
}

func (p *testPrinter) report(report *testReport) {
	source := ""
	for i := range report.results {
		r := &report.results[i]
		if r.Case.Source != source {
			if source != "" {
				p.line("")
			}
			source = r.Case.Source
			title := strict.Printable(source)
			if r.Case.Test != source {
				title = strict.Printable(r.Case.Test) + " (" + title + ")"
			}
			p.line("%s", title)
		}
		if r.Passed() {
			p.line("  ok    %s", strict.Printable(r.Case.Name))
		} else {
			p.line("  FAIL  %s: %s", r.Case.Field, strict.Printable(r.Case.Name))
		}
		p.details(r)
	}
	p.line("")
	p.line("%s", report.summary())
}

// summary returns how many cases passed and failed.
func (r *testReport) summary() string {
	text := fmt.Sprintf("%s: %d passed, %d failed", diagnostic.Count(len(r.results), "case"), r.Passed, r.Failed)
	if r.Kubernetes != "" {
		text += fmt.Sprintf("; %d passed without Gatehouse, compiled for Kubernetes %s", r.Passed-r.Stays, r.Kubernetes)
	}
	if r.Stays > 0 {
		text += fmt.Sprintf(", and %d with it", r.Stays)
	}
	return text
}

// failures returns a result for each case that failed.
func (r *testReport) failures() (all []report.Result) {
	for i := range r.results {
		result := &r.results[i]
		if result.Passed() {
			continue
		}
		var text strings.Builder
		p := testPrinter{out: &text}
		p.details(result)
		file, _, _ := strings.Cut(result.Case.Source, "#")
		all = append(all, report.Result{
			Rule: "test", Level: report.Error, File: file,
			Message: fmt.Sprintf("%s, %s: %s\n%s", result.Case.Test, result.Case.Field, result.Case.Name, text.String()),
		})
	}
	return all
}

// details writes what is expected and what came, and what compiled documents have to do with it.
func (p *testPrinter) details(r *testrunner.Result) {
	for j := range r.Differences {
		p.difference(&r.Differences[j])
	}
	for _, reason := range r.Reasons {
		p.line("        because of %s", cli.OneLine(reason))
	}
	for _, title := range r.Stays {
		p.line("        stays with Gatehouse: %s", cli.OneLine(title))
	}
}

// difference writes what is expected and what came, line under line.
func (p *testPrinter) difference(d *testrunner.Difference) {
	about := d.Field
	switch d.Problem {
	case testrunner.Different:
		about += " not as expected"
	case testrunner.Missing:
		about += " missing"
	case testrunner.Unexpected:
		about += " not expected"
	}
	p.line("        %s:", about)
	width := 0
	for i := range d.Lines {
		width = max(width, len(expectedName(&d.Lines[i])), len(d.Lines[i].Name))
	}
	for i := range d.Lines {
		l := &d.Lines[i]
		switch {
		case l.Same():
			p.value(" ", width, l.Name, *l.Got)
		case l.Expected == nil && d.Problem == testrunner.Different && l.Name != "":
			p.value(" ", width, l.Name, *l.Got) // it was not looked at
		default:
			if l.Expected != nil {
				p.value("-", width, expectedName(l), *l.Expected)
			}
			if l.Got != nil {
				p.value("+", width, l.Name, *l.Got)
			}
		}
	}
}

// expectedName returns the name of a line in the expectation.
func expectedName(l *testrunner.Line) string {
	if l.Part {
		return l.Name + "Contains"
	}
	return l.Name
}

// value writes a value behind a mark and its name, each of its lines on one.
func (p *testPrinter) value(mark string, width int, name, value string) {
	if width > 0 {
		width += 2
	}
	for line := range strings.SplitSeq(quoteInvisible(value), "\n") {
		p.line("          %s %-*s%s", mark, width, strict.Printable(name), line)
		name = ""
	}
}

// quoteInvisible returns a text in quotes if it has invisible characters. It
// keeps the ends of lines.
func quoteInvisible(text string) string {
	if text == "" || strings.TrimSpace(text) != text ||
		strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// junit writes the report for systems for continuous integration: a suite for
// each document.
func (r *testReport) junit(out io.Writer) error {
	var suites []junit.Suite
	for i := range r.results {
		result := &r.results[i]
		c := result.Case
		if len(suites) == 0 || suites[len(suites)-1].Name != c.Test {
			suites = append(suites, junit.Suite{Name: c.Test, File: c.Source})
		}
		one := junit.Case{Name: c.Name, Class: c.Test, Elapsed: result.Elapsed}
		if result.Passed() {
			var text strings.Builder
			p := testPrinter{out: &text}
			p.details(result)
			one.Output = text.String()
		} else {
			fields := make([]string, 0, len(result.Differences))
			var text strings.Builder
			p := testPrinter{out: &text}
			p.details(result)
			for j := range result.Differences {
				if field := result.Differences[j].Field; !slices.Contains(fields, field) {
					fields = append(fields, field)
				}
			}
			one.Failure = c.Field + ": not as expected: " + strings.Join(fields, ", ")
			one.Text = text.String()
		}
		suite := &suites[len(suites)-1]
		suite.Cases = append(suite.Cases, one)
	}
	return junit.Write(out, suites)
}
