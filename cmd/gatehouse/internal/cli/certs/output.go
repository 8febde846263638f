package certs

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// newTable returns a writer of aligned columns.
func newTable(out io.Writer) *tabwriter.Writer {
	const padding = 2
	return tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
}

// print shows the view to people: problems first, then what comes next, then who
// serves and who trusts what.
func (v *statusView) print(out io.Writer) error {
	var text strings.Builder
	for i := range v.Findings {
		v.Findings[i].print(&text)
	}
	if len(v.Findings) > 0 {
		text.WriteString("\n")
	}
	v.printPhase(&text)
	v.printTables(&text)
	_, err := io.WriteString(out, text.String())
	return err
}

func (f *diagnostic) print(text *strings.Builder) {
	level := string(f.Level)
	if f.Level == levelUnknown {
		level = "cannot decide"
	}
	fmt.Fprintf(text, "%s: %s: %s\n", level, cli.OneLine(f.Object), cli.OneLine(f.Message))
	if f.Remedy != "" {
		fmt.Fprintf(text, "  remedy: %s\n", cli.OneLine(f.Remedy))
	}
}

func (v *statusView) printPhase(text *strings.Builder) {
	fmt.Fprintf(text, "%s, at %s\n", cli.OneLine(v.Store), cli.FormatTime(&v.At))
	if v.Phase == "" {
		return
	}
	fmt.Fprintf(text, "  phase: %s", v.Phase)
	if v.Since != nil {
		fmt.Fprintf(text, " since %s", dated(*v.Since, v.At))
	}
	if v.Cause != "" {
		fmt.Fprintf(text, ", cause %s", cli.OneLine(string(v.Cause)))
	}
	text.WriteString("\n")
	fmt.Fprintf(text, "  next: %s\n", v.Next.text(v.At))
	for _, one := range v.Next.WaitsFor {
		fmt.Fprintf(text, "    waits for %s\n", cli.OneLine(one))
	}
}

// text is what is next on one line, without who keeps it waiting.
func (n *nextStep) text(now time.Time) string {
	text := n.What
	if n.At != nil {
		text += " at " + dated(*n.At, now)
	}
	if n.When != "" {
		text += ", when " + n.When
	}
	return cli.OneLine(text)
}

func (v *statusView) printTables(text *strings.Builder) {
	var cas, replicas, webhooks [][]string
	for i := range v.Authorities {
		a := &v.Authorities[i]
		cas = append(cas, []string{a.Role, strict.Printable(a.Subject), shortID(a.ID), dated(a.NotAfter, v.At)})
	}
	for i := range v.Replicas {
		r := &v.Replicas[i]
		issuer := r.Role
		switch {
		case r.Issuer == "":
			issuer = "-"
		case issuer == "":
			issuer = strict.Printable(shortID(r.Issuer))
		}
		ends, seen := "-", "-"
		if r.NotAfter != nil {
			ends = dated(*r.NotAfter, v.At)
		}
		if r.Seen != nil {
			seen = dated(*r.Seen, v.At)
		}
		if r.Away {
			seen += ", away"
		}
		replicas = append(replicas, []string{strict.Printable(r.Name), issuer, ends, seen, cli.OrDash(strict.Printable(r.Version))})
	}
	for i := range v.Webhooks {
		w := &v.Webhooks[i]
		webhooks = append(webhooks, []string{w.Object, cli.OrDash(strict.Printable(w.Webhook)), cli.OrDash(w.trusts()), w.verdict()})
	}
	printTable(text, []string{"CA", "SUBJECT", "ID", "VALID UNTIL"}, cas)
	printTable(text, []string{"REPLICA", "CA", "CERTIFICATE ENDS", "LAST SEEN", "VERSION"}, replicas)
	printTable(text, []string{"REGISTRATION", "WEBHOOK", "TRUSTS", "ACCEPTS REPLICAS"}, webhooks)
}

// trusts is the CAs that are trusted, by their roles.
func (w *webhookView) trusts() string {
	var names []string
	for _, t := range w.Trusts {
		name := t.Role
		if name == "" {
			name = shortID(t.ID)
		}
		names = append(names, name)
	}
	return join(names)
}

// verdict is whether it accepts what replicas serve.
func (w *webhookView) verdict() string {
	switch {
	case w.Outcome == authn.Unknown:
		return "cannot decide"
	case len(w.Refuses) > 0:
		return strict.Printable("not " + join(w.Refuses))
	case w.Outcome == authn.No:
		return "no"
	default:
		return "yes"
	}
}

// printTable prints rows, if there are any, below an empty line.
func printTable(text *strings.Builder, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	text.WriteString("\n")
	table := newTable(text)
	for _, row := range append([][]string{head}, rows...) {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // a Builder takes everything
	}
	_ = table.Flush()
}
