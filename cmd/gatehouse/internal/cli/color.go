package cli

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

// Color is a color of text that every terminal has, as the control sequence that begins it.
type Color string

// The colors.
const (
	Bold   Color = "\x1b[1m"
	Red    Color = "\x1b[31m"
	Green  Color = "\x1b[32m"
	Yellow Color = "\x1b[33m"
	Cyan   Color = "\x1b[36m"

	endOfColor = "\x1b[0m"
)

// Painter colors text, or leaves it as it is. The zero Painter leaves it.
type Painter struct{ on bool }

// Paint returns the text in the color. An empty color leaves it as it is.
func (p Painter) Paint(color Color, text string) string {
	if !p.on || color == "" || text == "" {
		return text
	}
	return string(color) + text + endOfColor
}

// ColorFlag is --color: whether output for people is colored. The zero flag is "auto".
type ColorFlag struct{ when string }

// colorValues are the values of --color.
func colorValues() []string { return []string{"auto", "always", "never"} }

// Add adds the flag.
func (f *ColorFlag) Add(cmd *cobra.Command) {
	cmd.Flags().Var(f, "color", "use colors: auto, always or never; auto means on a terminal, unless NO_COLOR is set")
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorValues(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// String returns the value.
func (f *ColorFlag) String() string {
	if f.when == "" {
		return "auto"
	}
	return f.when
}

// Set sets the value.
func (f *ColorFlag) Set(value string) error {
	if !slices.Contains(colorValues(), value) {
		return errors.New("must be auto, always or never")
	}
	f.when = value
	return nil
}

// Type returns the type that help shows.
func (*ColorFlag) Type() string { return "string" }

// Painter returns what colors the output to w. "auto" colors on a terminal, unless the environment variable NO_COLOR is not empty
// (https://no-color.org) or TERM is "dumb".
func (f *ColorFlag) Painter(w io.Writer) Painter {
	switch f.String() {
	case "always":
		return Painter{true}
	case "never":
		return Painter{}
	default:
		return Painter{IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	}
}
