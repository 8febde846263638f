package certs

import (
	"cmp"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

func newStatusCommand(s cli.Streams) *cobra.Command {
	f := statusFlags{commonFlags: commonFlags{now: time.Now}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show CAs and the webhooks that trust them",
		Long: `Status shows whether API servers can trust the certificates of Gatehouse: each CA,
the phase of a rotation and its next step, and which CAs each webhook configuration
trusts. Problems come first, each with a remedy. Status changes nothing and shows no
key.

It reads the Secret, the webhook configurations and the objects of cert-manager from
the API server of the kubeconfig, or with --dir a directory. For a certificate that
another program issues, run 'gatehouse probe'.

Exit codes: 0 everything is trusted and valid, 1 there is a problem, 2 cannot
decide: something cannot be read, and the rest has no problem.`,
		Example: `  gatehouse certs status
  gatehouse certs status --secret edge/gate-ca --registration gate
  gatehouse certs status --dir ./gatehouse-certs

  # for programs: what the rotation waits for
  gatehouse certs status -o json | jq -r '.next.waitsFor[]?'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, s)
		},
	}
	f.add(cmd)
	cli.AddOutputFlag(cmd, &f.output, "table", "json")
	return cmd
}

// statusFlags are what the command line of certs status says.
type statusFlags struct {
	commonFlags
	output string
}

func (f *statusFlags) run(cmd *cobra.Command, s cli.Streams) error {
	place, err := f.open(cmd)
	if err != nil {
		return err
	}
	view := f.read(cmd.Context(), place).view()
	if cmd.Context().Err() != nil {
		return errors.New("interrupted")
	}
	if err := cli.WriteReport(s.Out, f.output, view, view.print); err != nil {
		return err
	}
	return cli.ExitOutcome(view.Outcome)
}

// print shows the view to people: problems first, then what comes next, then who
// trusts what. Flush of out has the error.
func (v *statusView) print(out io.Writer) {
	line := decision.LinePrinter(out)
	for i := range v.Findings {
		f := &v.Findings[i]
		level := string(f.Level)
		if f.Level == levelUnknown {
			level = "cannot decide"
		}
		line("%s: %s: %s", level, cli.OneLine(f.Object), cli.OneLine(f.Message))
		if f.Remedy != "" {
			line("  remedy: %s", cli.OneLine(f.Remedy))
		}
	}
	if len(v.Findings) > 0 {
		line("")
	}
	line("%s, at %s", cli.OneLine(v.Store), cli.FormatTime(&v.At))
	if v.Phase != "" {
		line("  phase: %s since %s", v.Phase, dated(*v.Since, v.At))
		line("  next: %s", v.Next.text(v.At))
		for _, one := range v.Next.WaitsFor {
			line("    waits for %s", cli.OneLine(one))
		}
	}
	v.printTables(out)
}

// text returns the next step on one line, without who keeps it waiting.
func (n *nextStep) text(now time.Time) string {
	text := n.What
	if n.At != nil {
		text += " at " + dated(*n.At, now)
	}
	return cli.OneLine(text + ", when " + n.When)
}

func (v *statusView) printTables(out io.Writer) {
	var cas, webhooks, issued [][]string
	for i := range v.Authorities {
		a := &v.Authorities[i]
		cas = append(cas, []string{a.Role, strict.Printable(a.Subject), shortID(a.ID), dated(a.NotAfter, v.At)})
	}
	for i := range v.Webhooks {
		w := &v.Webhooks[i]
		var trusts []string
		for _, t := range w.Trusts {
			trusts = append(trusts, cmp.Or(t.Role, strict.Printable(shortID(t.ID))))
		}
		accepts := map[authn.Outcome]string{authn.Yes: "yes", authn.No: "no", authn.Unknown: "cannot decide"}[w.Outcome]
		webhooks = append(webhooks, []string{w.Object, cmp.Or(strict.Printable(w.Webhook), "-"), cmp.Or(strings.Join(trusts, ", "), "-"), accepts})
	}
	for i := range v.CertManager {
		c := &v.CertManager[i]
		until, ready := "-", "yes"
		if c.NotAfter != nil {
			until = dated(*c.NotAfter, v.At)
		}
		if c.Problem != "" {
			ready = "no"
		}
		issued = append(issued, []string{strict.Printable(c.Object), ready, until})
	}
	for _, table := range []struct {
		head []string
		rows [][]string
	}{
		{[]string{"CA", "SUBJECT", "ID", "VALID UNTIL"}, cas},
		{[]string{"REGISTRATION", "WEBHOOK", "TRUSTS", "ACCEPTS THE SERVERS"}, webhooks},
		{[]string{"CERT-MANAGER", "READY", "VALID UNTIL"}, issued},
	} {
		if len(table.rows) > 0 {
			_, _ = io.WriteString(out, "\n")
			_ = cli.WriteTable(out, table.head, table.rows)
		}
	}
}
