// Package cli has what all commands share: the root of the command tree, exit codes, the flags that name a cluster, and
// output and input. Run is the entry point of the program. Each family of commands is a package below this one; families
// do not import each other.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The exit codes of every subcommand.
const (
	ExitYes     = 0
	ExitNo      = 1 // refused, found an error, would change
	ExitUnknown = 2 // bad usage, bad input, unreachable: no answer could be had
)

// Streams are the input and output of a command. Results go to Out, messages and progress to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ExitError ends the program with a code. Without Err nothing is printed, because the command has printed everything.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Exit returns the error of a command that has printed everything, nil for ExitYes.
func Exit(code int) error {
	if code == ExitYes {
		return nil
	}
	return &ExitError{Code: code}
}

// ExitOutcome returns Exit for an outcome.
func ExitOutcome(outcome authn.Outcome) error {
	switch outcome {
	case authn.Yes:
		return nil
	case authn.No:
		return Exit(ExitNo)
	case authn.Unknown:
	}
	return Exit(ExitUnknown)
}

// Run runs the program with these commands and returns its exit code: that of an ExitError, and ExitUnknown for any other
// error. It writes the error to s.Err.
func Run(ctx context.Context, args []string, s Streams, commands ...func(Streams) *cobra.Command) int {
	if slices.Equal(args, []string{"--version"}) {
		args = []string{"version"}
	}
	root := NewRoot(s, commands...)
	root.SetArgs(args)
	err := checkSubcommand(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return ExitYes
	}
	if _, _, unknown := root.Find(args); unknown != nil {
		err = unknownCommand(root, unknownWord(unknown))
	}
	code := ExitUnknown
	if exit, ok := errors.AsType[*ExitError](err); ok {
		code, err = exit.Code, exit.Err
	}
	if err != nil {
		_, _ = io.WriteString(s.Err, ErrorText(err)) // there is no other place to report to
	}
	return code
}

// ErrorText returns an error as it is shown, without tokens. Each line begins with the name of the program, unless the first line introduces
// the others.
func ErrorText(err error) string {
	const prefix = "gatehouse: "
	lines := strings.Split(withoutTokens(err.Error()), "\n")
	for i := range lines {
		if i == 0 || !strings.HasSuffix(lines[0], ":") && !strings.HasPrefix(lines[i], " ") {
			lines[i] = prefix + lines[i]
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// NewRoot returns the command tree with these commands.
func NewRoot(s Streams, commands ...func(Streams) *cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "gatehouse",
		Short: "Admission and authentication webhooks for Kubernetes",
		Long: `Gatehouse is a webhook server for the Kubernetes API server. It injects sidecars,
enforces policies and authenticates tokens.

'gatehouse serve' runs the server. The other commands decide as the server does,
about manifests, about what exists in a cluster and about recorded requests, or help
you to operate it.

Exit codes: 0 yes, 1 no (something is refused, or has an error), 2 cannot decide
(wrong usage, wrong input, or a server that does not answer).`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: DisplayName(os.Args[0])},
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: checkRequiredFlags,
	}
	root.Flags().Bool("version", false, "print the version and exit")
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(flagError)
	for _, command := range commands {
		root.AddCommand(command(s))
	}
	showAs(root, root.DisplayName())
	// Cobra would add its own commands later. They hide arguments too.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = checkHelpTopic
		}
	}
	hideArguments(root)
	adaptFlags(root)
	fillHelp(root)
	return root
}

// adaptFlags gives the flags of a command and its subcommands what all flags of their name or type have.
func adaptFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		switch {
		case flag.Name == configFlag:
			flag.Value = onceValue{flag.Value}
		case flag.Value.Type() == "duration":
			adaptDurationFlag(flag)
		}
		if flag.DefValue == "[]" {
			flag.DefValue = "" // help shows none
		}
	})
	for _, sub := range cmd.Commands() {
		adaptFlags(sub)
	}
}

// Worst joins problems, with the highest exit code among them.
func Worst(problems []error) error {
	joined := errors.Join(problems...)
	if joined == nil {
		return nil
	}
	return &ExitError{Code: WorstCode(joined), Err: joined}
}

// WorstCode returns the exit code of an error, or the highest of those that it joins.
func WorstCode(err error) int {
	if exit, ok := err.(*ExitError); ok { //nolint:errorlint // the tree is walked
		return exit.Code
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		code := ExitNo
		for _, one := range several.Unwrap() {
			code = max(code, WorstCode(one))
		}
		return code
	}
	return ExitUnknown
}
