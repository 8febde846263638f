package certs

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

func newStatusCommand(s cli.Streams) *cobra.Command {
	f := statusFlags{commonFlags: commonFlags{now: time.Now}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show CAs, replicas and the webhooks that trust them",
		Long: `Status shows how far a rotation of the CA is and what comes next, each CA, what
each replica serves, and what each webhook configuration trusts. Problems come
first, each with what to do about it.

It reads the Secret, the Leases of the replicas and the webhook configurations,
from the API server of the kubeconfig; or with --dir a directory, and no webhook
configuration unless --registration names one. It changes nothing, and shows no
key. A replica is away if nothing was heard of it for a minute; that by itself is a
note, and no problem.

Exit codes: 0 everything is trusted and valid, 1 something is wrong, 2 could not
tell: something cannot be read, and nothing that can be is wrong.`,
		Example: `  gatehouse certs status
  gatehouse certs status --secret edge/gate-ca --registration validating/gate
  gatehouse certs status --dir ./gatehouse-certs

  # for programs: who is waited for
  gatehouse certs status -o json | jq -r '.next.waitsFor[]?'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.output != "table" && f.output != "json" {
				return cli.OutputError(f.output, "table", "json")
			}
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
	if f.output == "json" {
		err = cli.WriteJSON(s.Out, view)
	} else {
		err = view.print(s.Out)
	}
	if err != nil {
		return err
	}
	switch view.Outcome {
	case authn.No:
		return &cli.ExitError{Code: cli.ExitNo}
	case authn.Unknown:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case authn.Yes:
	}
	return nil
}
