package offline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/drill"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// drillReport is the JSON output of drill.
type drillReport struct {
	// Where names the cluster, or the number of files.
	Where string `json:"where"`
	// Result is "pass" (exit code 0), "fail" (1) or "cannot-decide" (2).
	Result string `json:"result"`
	// Lockouts, Risks and Notes count the findings.
	Lockouts int `json:"lockouts"`
	Risks    int `json:"risks"`
	Notes    int `json:"notes"`

	*drill.Report
}

// write writes the report, and returns the error for the exit code.
func (f *drillFlags) write(to io.Writer, r *drill.Report, where string) error {
	out := drillReport{Where: where, Lockouts: r.Count(drill.Lockout), Risks: r.Count(drill.Risk), Notes: r.Count(drill.Note), Report: r}
	code := cli.ExitYes
	for _, severity := range drill.Severities() {
		if severity.IsAtLeast(f.threshold()) && r.Count(severity) > 0 {
			code = cli.ExitNo
		}
	}
	if len(r.Unknown) > 0 {
		code = cli.ExitUnknown
	}
	out.Result = [...]string{cli.ExitYes: "pass", cli.ExitNo: "fail", cli.ExitUnknown: "cannot-decide"}[code]
	buffered, err := bufio.NewWriter(to), error(nil)
	switch f.output {
	case "json":
		err = cli.WriteJSON(buffered, out)
	case "sarif":
		err = writeSARIF(buffered, drillResults(r), code != cli.ExitUnknown)
	case "dot":
		r.WriteDOT(buffered)
	case "mermaid":
		r.WriteMermaid(buffered)
	default:
		out.print(buffered)
	}
	return cmp.Or(err, buffered.Flush(), cli.Exit(code))
}

// print writes the report for people. Flush of out has the error.
func (r *drillReport) print(out io.Writer) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	found := 0
	for _, s := range r.Subjects {
		if len(s.Findings) == 0 {
			continue
		}
		found++
		answers := "answered by " + cli.InertName(s.Backend)
		if s.FailurePolicy != "" {
			answers = fmt.Sprintf("%s; failurePolicy %s, %ds; ", cli.Inert(s.Sent), s.FailurePolicy, s.TimeoutSeconds) + answers
		}
		line("%s (%s)", cli.InertName(s.Title()), answers)
		for i := range s.Findings {
			f := &s.Findings[i]
			line("  %-7s  %s: %s", f.Severity, f.Code, cli.Inert(f.Message))
			if f.Severity != drill.Note {
				line("           → %s", cli.Inert(f.Mend))
			}
		}
		line("")
	}
	if o := r.Outage; o != nil {
		line("%s from %s to %s were judged:", diagnostic.Count(int(o.Requests), "request"), cli.FormatTime(&o.From), cli.FormatTime(&o.To))
		for i := range o.Backends {
			line("  %s", pastText(&o.Backends[i]))
		}
		line("")
	}
	for _, text := range r.Unknown {
		line("unknown: %s", cli.Inert(text))
	}
	for _, text := range r.Assumed {
		line("assumed: %s", cli.Inert(text))
	}
	line("%s, %s and %s for %d of %s in %s", diagnostic.Count(r.Lockouts, "lockout"), diagnostic.Count(r.Risks, "risk"), diagnostic.Count(r.Notes, "note"),
		found, diagnostic.Count(len(r.Subjects), "webhook"), r.Where)
}

// pastText says what an outage would have meant.
func pastText(o *drill.BackendOutage) string {
	text := fmt.Sprintf("if %s had been down from %s to %s, %s would have failed", cli.InertName(o.Backend), cli.FormatTime(&o.From), cli.FormatTime(&o.To), diagnostic.Count(int(o.Failed), "request"))
	if o.Failed > 0 {
		var callers []string
		for _, c := range o.Callers {
			callers = append(callers, fmt.Sprintf("%s (%d)", cli.InertName(c.User), c.Failed))
		}
		if o.MoreCallers > 0 {
			callers = append(callers, fmt.Sprintf("%d more", o.MoreCallers))
		}
		text += fmt.Sprintf(", %d of them to heal the cluster: %s", o.Healing, strings.Join(callers, ", "))
	}
	if o.Unknown > 0 {
		text += fmt.Sprintf("; of %d more it is not known, because the log does not have what decides", o.Unknown)
	}
	return text
}

// drillResults returns the findings for programs.
func drillResults(r *drill.Report) (all []report.Result) {
	levels := map[drill.Severity]report.Level{drill.Lockout: report.Error, drill.Risk: report.Warning, drill.Note: report.Note}
	for _, s := range r.Subjects {
		for i := range s.Findings {
			f := &s.Findings[i]
			all = append(all, report.Result{
				Rule: string(f.Code), Description: drill.Summary(f.Code), Level: levels[f.Severity], Message: s.Title() + ": " + f.Message + " (hint: " + f.Mend + ")",
				File: cmp.Or(s.File, s.Object), Line: s.Line, Object: s.Object,
			})
		}
	}
	return slices.Clip(all)
}
