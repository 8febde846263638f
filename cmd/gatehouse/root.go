package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
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

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	root := newRootCommand(s) //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitYes
	}
	if _, _, unknown := root.Find(args); unknown != nil {
		err = unknownCommand(root, unknown)
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

// errorText is an error as it is shown. Each of several on lines of their own
// says whose it is, unless the first line introduces the others.
func errorText(err error) string {
	const prefix = "gatehouse: "
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		if i == 0 || !strings.HasSuffix(lines[0], ":") && !strings.HasPrefix(lines[i], " ") {
			lines[i] = prefix + lines[i]
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// unknownCommand is cobra's error for a command that there is not, with the one
// that may have been meant.
func unknownCommand(root *cobra.Command, err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	quoted, wrong := strconv.QuotedPrefix(strings.TrimPrefix(text, "unknown command "))
	word, wrongToo := strconv.Unquote(quoted)
	if wrong != nil || wrongToo != nil {
		return errors.New(text)
	}
	var names []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	hint := finding.DidYouMean(word, names...)
	if hint == "" {
		hint = "see 'gatehouse --help'"
	}
	return fmt.Errorf("%s (hint: %s)", text, hint)
}

// needsConfig tells that --config is missing where it is required, and what it
// is.
func needsConfig(cmd *cobra.Command, _ []string) error {
	flag := cmd.Flags().Lookup("config")
	if flag != nil && len(flag.Annotations[cobra.BashCompOneRequiredFlag]) > 0 && flag.Value.String() == "" {
		return errors.New("--config is required (hint: the directory of documents)")
	}
	return nil
}

// noArgs refuses arguments, and says where what they are belongs.
func noArgs(belongs func(arg string) string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("%q: %s", args[0], belongs(args[0]))
	}
}

func newRootCommand(s streams) *cobra.Command {
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
		PersistentPreRunE: needsConfig,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (hint: see '%s --help')", err, cmd.CommandPath())
	})
	root.AddCommand(
		newServeCommand(s),
		newReviewCommand(s),
		newLintCommand(s),
		newInjectCommand(s),
		newUninjectCommand(s),
		newCheckCommand(s),
		newExplainCommand(s),
		newTestCommand(s),
		newManifestsCommand(s),
		newTokenCommand(s),
		newLoginCommand(s),
		newLogoutCommand(s),
		newWhoamiCommand(s),
		newKubeconfigCommand(s),
		newVersionCommand(s),
	)
	showAs(root, root.DisplayName())
	return root
}
