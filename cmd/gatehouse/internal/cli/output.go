package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// ShellQuote is a word as a shell reads it.
func ShellQuote(word string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-._~:/@%+=,", r))
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	if strings.ContainsFunc(word, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(word)
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// AddOutputFlag adds -o with these values, the first being the default.
func AddOutputFlag(cmd *cobra.Command, value *string, values ...string) {
	cmd.Flags().StringVarP(value, "output", "o", values[0], "output format: "+strings.Join(values, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// OutputError is the error for a value of -o that is none of these.
func OutputError(value string, values ...string) error {
	return fmt.Errorf("--output %q: must be %s", value, strings.Join(values, " or "))
}

// IsTerminal tells whether a person reads along.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// OneLine is a text as it may be shown on a terminal, on one line.
func OneLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// ViolationLine is a violation on one line, without what comes of it.
func ViolationLine(v *policy.Violation) string {
	text := RuleText(v) + ": " + OneLine(v.Message)
	if v.Exception != "" {
		text += " (PolicyException " + strict.Printable(v.Exception) + ")"
	}
	return text
}

// RuleText is which rule of which policy is meant, and where. Injection may
// refuse a pod for no profile.
func RuleText(v *policy.Violation) string {
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

func FormatTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// OneOf says of audiences that they are to be compared with others.
func OneOf(audiences []string) string {
	quoted := make([]string, len(audiences))
	for i, audience := range audiences {
		quoted[i] = strconv.Quote(audience)
	}
	if len(quoted) == 1 {
		return quoted[0] + " is one of them"
	}
	return "any of " + strings.Join(quoted, ", ") + " is one of them"
}
