package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
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

// oneLine is a text as it may be shown on a terminal, on one line.
func oneLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// violationLine is a violation on one line, without what comes of it.
func violationLine(v *policy.Violation) string {
	text := ruleText(v) + ": " + oneLine(v.Message)
	if v.Exception != "" {
		text += " (PolicyException " + strict.Printable(v.Exception) + ")"
	}
	return text
}

// ruleText is which rule of which policy is meant, and where. Injection may
// refuse a pod for no profile.
func ruleText(v *policy.Violation) string {
	text := v.Kind + " " + strict.Printable(v.Policy)
	rule := v.Rule
	if v.Kind == admit.InjectionKind && v.Policy == "" {
		text, rule = "sidecar injection", ""
	}
	if v.Binding != "" {
		text += " with binding " + strict.Printable(v.Binding)
	}
	for _, part := range []struct{ what, name string }{{"param ", v.Param}, {"template ", v.Template}, {"", rule}} {
		if part.name != "" {
			text += ", " + part.what + strict.Printable(part.name)
		}
	}
	return text
}
