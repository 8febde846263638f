// Command gatehouse stands in front of a Kubernetes API server and answers its
// webhooks: token reviews, mutating admission and validating admission.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a graceful end, the second ends at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	return runCommands(ctx, args, s, commands()...)
}

// commands returns the constructors of all subcommands, in the order of the help.
func commands() []func(streams) *cobra.Command {
	return []func(streams) *cobra.Command{
		newServeCommand,
		newReviewCommand,
		newLintCommand,
		newInjectCommand,
		newUninjectCommand,
		newCheckCommand,
		newExplainCommand,
		newTestCommand,
		newManifestsCommand,
		newUninstallCommand,
		newCertsCommand,
		newTokenCommand,
		newLoginCommand,
		newLogoutCommand,
		newWhoamiCommand,
		newKubeconfigCommand,
		newLogLevelCommand,
		newVersionCommand,
	}
}
