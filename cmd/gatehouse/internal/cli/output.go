package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// OrList returns alternatives as part of a sentence: "text, json or yaml".
func OrList(values []string) string {
	last := len(values) - 1
	if last < 1 {
		return strings.Join(values, "")
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// outputValue is the value of -o.
type outputValue struct {
	value   *string
	allowed []string
}

// String implements pflag.Value.
func (v *outputValue) String() string {
	if v.value == nil {
		return ""
	}
	return *v.value
}

// Type implements pflag.Value.
func (*outputValue) Type() string { return "string" }

// Set implements pflag.Value.
func (v *outputValue) Set(text string) error {
	if !slices.Contains(v.allowed, text) {
		return errors.New("must be " + OrList(v.allowed))
	}
	*v.value = text
	return nil
}

// AddOutputFlag adds -o with these values, the first being the default.
func AddOutputFlag(cmd *cobra.Command, value *string, values ...string) {
	*value = values[0]
	cmd.Flags().VarP(&outputValue{value, values}, "output", "o", "output format: "+OrList(values))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// WriteJSON writes a value as indented JSON, as jsonout.Encode does.
func WriteJSON(out io.Writer, value any) error {
	return jsonout.Encode(out, "  ", value)
}

// WriteJSONLine is WriteJSON on one line.
func WriteJSONLine(out io.Writer, value any) error {
	return jsonout.Encode(out, "", value)
}

// WriteReport writes a report as -o says: with "json" as WriteJSON does, else as write does, which leaves errors to a Flush of out.
func WriteReport(out io.Writer, output string, report any, write func(out io.Writer)) error {
	buffered := bufio.NewWriter(out)
	if output != "json" {
		write(buffered)
	} else if err := WriteJSON(buffered, report); err != nil {
		return err
	}
	return buffered.Flush()
}

// WriteTable writes rows below a head, with aligned columns.
func WriteTable(out io.Writer, head []string, rows [][]string) error {
	const padding = 2
	table := tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		_, _ = io.WriteString(table, strings.Join(row, "\t")+"\n") // Flush returns errors
	}
	return table.Flush()
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// OneLine is diagnostic.OneLine.
func OneLine(text string) string { return diagnostic.OneLine(text) }

// Inert returns a text on one line, with blanks in place of line breaks and other characters that cannot be seen escaped. It is short:
// for texts that strangers write.
func Inert(text string) string {
	const most = 300 // characters
	return OneLine(truncate.Runes(strings.NewReplacer("\r\n", " ", "\n", " ").Replace(strings.TrimRight(text, "\r\n")), most))
}

// InertName is Inert for names, which nobody reads to such an end.
func InertName(name string) string {
	const most = 100 // characters
	return OneLine(truncate.Runes(name, most))
}

// FormatTime returns a time for people, "-" for none.
func FormatTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// OneOf returns the end of a sentence which says that one of these audiences is enough.
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
