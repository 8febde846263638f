package console

import (
	"html/template"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"time":      func(t time.Time) string { return cli.FormatTime(&t) },
		"digest":    shortDigest,
		"name":      cli.InertName,
		"short":     func(text string) string { return cli.Inert(web.Unwrap(text)) },
		"multiline": multiline,
		"outcome":   outcomeText,
		"took":      func(c *call) string { return tookText(c.Took()) },

		"outcomeClass": outcomeClass,

		"at":         (*call).Time,
		"decision":   (*request).Decision,
		"isSet":      (*decisionFilter).IsSet,
		"isZero":     time.Time.IsZero,
		"last":       (*request).Last,
		"link":       (*decisionFilter).With,
		"operations": operations,
		"percent":    (*decisionList).Percent,
		"url":        (*call).URL,
		"value":      tryChoice.Value,
	}
}

// multiline returns a text of several lines. Other characters that cannot be printed are escaped.
func multiline(text string) string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = cli.OneLine(strings.TrimSuffix(line, "\r"))
	}
	return strings.Join(lines, "\n")
}

// tookText returns how long a review took, for people.
func tookText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(10 * time.Microsecond).String()
}
