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
		Long: `Status shows the state of a rotation and its next step, each CA, the certificate of
each replica, and which CAs each webhook configuration trusts. It shows problems
first, each with a remedy.

It reads the Secret, the Leases of the replicas and the webhook configurations from
the API server of the kubeconfig. With --dir it reads a directory, and the webhook
configurations of --registration. It changes nothing and shows no key. A replica is
"away" if it has not reported for a minute, which alone is a note and not a problem.

Exit codes: 0 everything is trusted and valid, 1 there is a problem, 2 cannot decide:
something cannot be read, and the rest has no problem.`,
		Example: `  gatehouse certs status
  gatehouse certs status -n edge
  gatehouse certs status --secret edge/gate-ca --registration validating/gate
  gatehouse certs status --dir ./gatehouse-certs

  # for programs: what the rotation waits for
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
