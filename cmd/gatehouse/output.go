package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// addOutputFlag adds -o with these values, the first being the default.
func addOutputFlag(cmd *cobra.Command, value *string, values ...string) {
	cmd.Flags().StringVarP(value, "output", "o", values[0], "output format: "+strings.Join(values, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// outputError is the error for a value of -o that is none of these.
func outputError(value string, values ...string) error {
	return fmt.Errorf("--output %q: must be %s", value, strings.Join(values, " or "))
}

// isTerminal tells whether a person reads along.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
