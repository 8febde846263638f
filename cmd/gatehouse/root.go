package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes of every subcommand.
const (
	exitYes     = 0
	exitNo      = 1 // refused, found an error, would change
	exitUnknown = 2 // bad usage, bad input, unreachable: no answer could be had
)

// streams are what a command reads from and writes to: results to out, remarks
// and progress to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError ends the program with a code. Without err nothing is printed,
// because the command has already said everything.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// runCommands runs the program with these commands and returns its exit code.
func runCommands(ctx context.Context, args []string, s streams, commands ...func(streams) *cobra.Command) int {
	root := newRootCommand(s, commands...) //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(args)
	err := misspelled(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return exitYes
	}
	if _, _, unknown := root.Find(args); unknown != nil {
		err = unknownCommand(root, ofRoot(unknown))
	}
	code := exitUnknown
	if exit, ok := errors.AsType[*exitError](err); ok {
		code, err = exit.code, exit.err
	}
	if err != nil {
		_, _ = io.WriteString(s.err, errorText(err)) // nobody is left to tell
	}
	return code
}

// errorText is an error as it is shown, without tokens. Each of several on lines of their own
// says whose it is, unless the first line introduces the others.
func errorText(err error) string {
	const prefix = "gatehouse: "
	lines := strings.Split(withoutTokens(err.Error()), "\n")
	for i := range lines {
		if i == 0 || !strings.HasSuffix(lines[0], ":") && !strings.HasPrefix(lines[i], " ") {
			lines[i] = prefix + lines[i]
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// newRootCommand returns the command tree with these commands.
func newRootCommand(s streams, commands ...func(streams) *cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "gatehouse",
		Short: "The gate in front of a Kubernetes API server",
		Long: `Gatehouse answers the webhooks of a Kubernetes API server: it lets people in
(token authentication), equips what they bring (sidecar injection) and refuses
what policy forbids (validating admission). The same decisions run offline on
manifests and recorded reviews.

Exit codes: 0 yes, 1 no (refused, an error found), 2 could not tell (bad usage,
bad input, unreachable).`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName(os.Args[0])},
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: needsFlags,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(flagError)
	for _, command := range commands {
		root.AddCommand(command(s))
	}
	showAs(root, root.DisplayName())
	// Cobra's own commands, which it would add later, refuse arguments like the
	// others.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = helpTopic
		}
	}
	keepArguments(root)
	return root
}
