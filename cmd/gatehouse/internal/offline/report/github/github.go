// Package github writes results as workflow commands of GitHub Actions, which shows them beside the lines of a pull request:
// https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands.
package github

import (
	"io"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Write writes a command for each result that is not suppressed, and a notice with the totals, since GitHub shows the first results only.
// The error is that of out.
func Write(out io.Writer, results []report.Result, totals string) error {
	for i := range results {
		if results[i].Suppressed != "" {
			continue
		}
		if _, err := io.WriteString(out, command(&results[i])); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, "::notice title=gatehouse::"+message(totals)+"\n")
	return err
}

// command returns the line of a result.
func command(r *report.Result) string {
	name := string(r.Level)
	if r.Level == report.Note {
		name = "notice"
	}
	var properties []string
	if r.File != "" {
		properties = append(properties, "file="+property(r.File))
	}
	text := r.Message
	switch {
	case r.Rendered && r.Line > 0: // GitHub would show another line of the template
		properties = append(properties, "line=1")
		text += " (line " + strconv.Itoa(r.Line) + " of what " + r.File + " renders to)"
	case r.File != "":
		properties = append(properties, "line="+strconv.Itoa(max(r.Line, 1)))
		if r.Line > 0 && r.Column > 0 {
			properties = append(properties, "col="+strconv.Itoa(r.Column))
		}
	}
	properties = append(properties, "title="+property(r.Rule))
	return "::" + name + " " + strings.Join(properties, ",") + "::" + message(text) + "\n"
}

// message returns a text as the message of a command, without other control characters than ends of lines.
func message(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = strings.ReplaceAll(diagnostic.OneLine(lines[i]), "%", "%25")
	}
	return strings.Join(lines, "%0A")
}

// property returns a text as the value of a property, which ends at a comma or a colon.
func property(text string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(message(text))
}
