package audit

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit/summary"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
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
	switch {
	case x.Fail > 0:
		return "bad"
	case x.Error+x.Warn > 0:
		return "notice"
	default:
		return "soft"
	}
}
