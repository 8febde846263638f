// Command gatehouse answers the webhooks of a Kubernetes API server: token
// reviews, mutating admission and validating admission.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/offline"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/serve"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/token"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a graceful end, the second ends at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, s cli.Streams) int {
	return cli.Run(ctx, args, s, commands()...)
}

// commands returns the constructors of all subcommands, in the order of the help.
func commands() []func(cli.Streams) *cobra.Command {
	return []func(cli.Streams) *cobra.Command{
		serve.NewCommand,
		offline.NewReviewCommand,
		offline.NewLintCommand,
		offline.NewMutateCommand,
		offline.NewInjectCommand,
		offline.NewUninjectCommand,
		offline.NewCheckCommand,
		offline.NewExplainCommand,
		offline.NewTestCommand,
		offline.NewConvertCommand,
		offline.NewCompileCommand,
		offline.NewDrillCommand,
		record.NewCommand,
		record.NewReplayCommand,
		audit.NewCommand,
		func(s cli.Streams) *cobra.Command { return console.NewCommand(s, run) },
		install.NewManifestsCommand,
		install.NewProbeCommand,
		install.NewUninstallCommand,
		certs.NewCommand,
		token.NewCommand,
		token.NewGrantCommand,
		login.NewCommand,
		login.NewLogoutCommand,
		login.NewWhoamiCommand,
		login.NewKubeconfigCommand,
		serve.NewLogLevelCommand,
		cli.NewVersionCommand,
	}
}
