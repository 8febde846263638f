package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// helpWidth is how many characters a line of a help has that is not written to a terminal.
const helpWidth = 80

// fillHelp has the help of a command and its subcommands fill the width of the terminal: the paragraphs, and there the usages of flags.
func fillHelp(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		width, isTerminal := terminalWidth(cmd.OutOrStdout())
		if isTerminal {
			cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "FlagUsages |", fmt.Sprintf("FlagUsagesWrapped %d |", width)))
		}
		cmd.Long = FillParagraphs(cmd.Long, width)
		show(cmd, args)
	})
}

// terminalWidth returns the width of the terminal that is written to, helpWidth if it is none.
func terminalWidth(out io.Writer) (width int, isTerminal bool) {
	const least = 40
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width >= least {
			return width, true
		}
	}
	return helpWidth, false
}

// FillParagraphs returns a text whose paragraphs have lines of at most a number of characters, unless a word is longer. Lines that begin
// with a blank, such as examples and lists, stay as they are.
func FillParagraphs(text string, width int) string {
	var b strings.Builder
	at := 0 // how many characters the line of a paragraph has
	for line := range strings.Lines(text) {
		if line[0] == ' ' || line[0] == '\n' {
			if at > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line)
			at = 0
			continue
		}
		for word := range strings.FieldsSeq(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case at == 0:
			case at+1+n > width:
				b.WriteByte('\n')
				at = 0
			default:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += n
		}
	}
	return b.String()
}
