package audit

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit/summary"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	auditreport "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/junit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/sarif"
)

//go:embed audit.html
var page string

// writeHTML writes the report as one file that loads nothing and has no script.
func (r *report) writeHTML(out io.Writer) error {
	parsed, err := decision.NewPage("audit", page, template.FuncMap{
		"inert": cli.Inert, "name": cli.InertName, "rule": func(x summary.Rule) string { return ruleTitle(&x) }, "number": grouped,
		"example": func(x summary.Example) string { return exampleText(&x) }, "label": func(x summary.Example) string { return exampleLabel(&x) },
		"names":  func(list []summary.Named, more int64) string { return namesText(list, more, mostNamesHTML) },
		"states": summary.States, "state": func(p summary.Profile, of audit.Injection) string { return grouped(p.States[of]) },
		"class": ruleClass,
	})
	if err != nil {
		return err
	}
	return parsed.Execute(out, map[string]any{
		"Report": r, "Sentence": r.sentence(), "Scope": r.scope(), "Began": cli.FormatTime(&r.Began), "Elapsed": r.elapsed(),
		"Skipped": r.skippedTexts(), "Version": build.Version(), "Judged": r.Complete && r.Objects > 0,
	})
}

// ruleClass returns the class of a rule on the page.
func ruleClass(x summary.Rule) string {
	switch ruleColor(&x.Counts) { //nolint:exhaustive // a rule has no other color
	case cli.Red:
		return "bad"
	case cli.Yellow:
		return "notice"
	default:
		return "soft"
	}
}

// unknownText is in front of a resource that policies name and the cluster does not have.
const unknownText = "not in the cluster: "

// writeSARIF writes the examples of each rule as results, and what was not judged as notifications. The place of an object is a
// path that looks like one of a manifest, because services for code show only results in files.
func (r *report) writeSARIF(out io.Writer) error {
	log := sarif.Log{Tool: "gatehouse", Version: build.Version(), URI: build.ProjectURL}
	for _, text := range r.Unjudged {
		log.Notifications = append(log.Notifications, sarif.Notification{Message: text})
	}
	for _, text := range r.Unknown {
		log.Notifications = append(log.Notifications, sarif.Notification{Message: unknownText + text, Note: true})
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		id := strings.Trim(strings.Join([]string{rule.Kind, rule.Policy, rule.Rule}, "/"), "/")
		if id == "" {
			id = string(cannotDecide)
		}
		for j := range rule.Examples {
			x := &rule.Examples[j]
			one := auditreport.Result{
				Rule: id, Description: ruleTitle(rule) + ": " + countsText(&rule.Counts), HelpURI: build.DocsURL("audit", "what-the-results-mean"), Level: levelOf(x.Status),
				Message: exampleText(x), File: path(&x.Object), Object: objectTitle(&x.Object),
			}
			if x.Exception != "" && x.Status == audit.Skip {
				one.Suppressed = "PolicyException " + x.Exception
			}
			sum := sha256.Sum256([]byte(strings.Join([]string{id, x.APIVersion, x.Kind, x.Namespace, x.Name, x.Binding, x.Template}, "\x00")))
			one.Fingerprint = hex.EncodeToString(sum[:16])
			log.Results = append(log.Results, one)
		}
	}
	return log.Write(out)
}

// path returns a place for an object: "cluster/NAMESPACE/KIND/NAME".
func path(o *summary.Object) string {
	parts := []string{"cluster"}
	if o.Namespace != "" {
		parts = append(parts, o.Namespace)
	}
	return strings.Join(append(parts, kindTitle(o), o.Name), "/")
}

func levelOf(s audit.Status) auditreport.Level {
	switch s { //nolint:exhaustive // the others are notes
	case audit.Fail, audit.Error:
		return auditreport.Error
	case audit.Warn:
		return auditreport.Warning
	default:
		return auditreport.Note
	}
}

// countsText returns numbers on one line.
func countsText(c *summary.Counts) string {
	return fmt.Sprintf("%s fail, %s warn, %s excepted, %s cannot be decided", grouped(c.Fail), grouped(c.Warn), grouped(c.Excepted), grouped(c.Error))
}

// writeJUnit writes a case for each rule. Those fail of which an object fails, or warns if --fail-on says so.
func (r *report) writeJUnit(out io.Writer) error {
	const class = "audit"
	suite := junit.Suite{Name: "gatehouse audit", Cases: []junit.Case{{Name: countOf(r.Objects, "object") + " judged", Class: class, Output: r.Configuration + "\n" + r.sentence() + "\n"}}}
	for i := range r.Rules {
		rule := &r.Rules[i]
		var text strings.Builder
		line := decision.LinePrinter(&text)
		printWhere(line, &rule.Where)
		for j := range rule.Examples {
			line("%s: %s", exampleLabel(&rule.Examples[j]), exampleText(&rule.Examples[j]))
		}
		one := junit.Case{Name: ruleTitle(rule), Class: class}
		switch {
		case rule.Fail > 0 && r.fails(violationsName), rule.Warn > 0 && r.fails(warningsName), rule.Excepted > 0 && r.fails(exceptedName):
			one.Failure, one.Text = countsText(&rule.Counts), text.String()
		case rule.Error > 0:
			one.Error, one.Text = countsText(&rule.Counts), text.String()
		default:
			one.Output = countsText(&rule.Counts) + "\n" + text.String()
		}
		suite.Cases = append(suite.Cases, one)
	}
	for i := range r.Injection {
		p := &r.Injection[i]
		var text strings.Builder
		line := decision.LinePrinter(&text)
		failed := ""
		for _, state := range summary.States() {
			line("%s: %s", state, grouped(p.States[state]))
			if p.States[state] > 0 && r.fails(string(state)) {
				failed = countOf(p.States[state], "object") + " " + string(state)
			}
		}
		printWhere(line, &p.Where)
		one := junit.Case{Name: "injection: " + cli.InertName(p.Profile), Class: class, Output: text.String()}
		if failed != "" {
			one.Failure, one.Text, one.Output = failed, text.String(), ""
		}
		suite.Cases = append(suite.Cases, one)
	}
	for _, text := range r.Unjudged {
		suite.Cases = append(suite.Cases, junit.Case{Name: "not judged: " + cli.Inert(text), Class: class, Error: cli.Inert(text)})
	}
	for _, text := range r.Unknown {
		suite.Cases = append(suite.Cases, junit.Case{Name: unknownText + cli.Inert(text), Class: class})
	}
	return junit.Write(out, []junit.Suite{suite})
}
