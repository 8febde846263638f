package record

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

//go:embed replay.html
var replayPage string

// writeHTML writes the report as one file that loads nothing and has no script.
func (r *replayReport) writeHTML(out io.Writer) error {
	page, err := decision.NewPage("replay", replayPage, template.FuncMap{
		"inert": cli.Inert, "name": cli.InertName, "names": func(names []string, more bool) string { return nameList(names, more, mostNamesHTML) }, "change": changeText, "rule": ruleTitle, "scope": groupScope,
		"subject": func(s replay.Subject) string { return subjectTitle(&s) },
		"answer":  answerText,
		"time":    func(s replay.Subject) string { return cli.FormatTime(&s.Time) },
	})
	if err != nil {
		return err
	}
	return page.Execute(out, map[string]any{
		"Report": r, "Counts": r.counts(), "Reasons": r.reasons(), "Span": r.span(), "Comparison": r.comparison(), "Version": build.Version(),
	})
}
