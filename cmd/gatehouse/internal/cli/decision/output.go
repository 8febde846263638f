package decision

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// LinePrinter returns a function that writes a line without trailing spaces. Errors are those of a later Flush of out.
func LinePrinter(out io.Writer) func(format string, args ...any) {
	return func(format string, args ...any) {
		_, _ = io.WriteString(out, strings.TrimRight(fmt.Sprintf(format, args...), " ")+"\n")
	}
}

// PaintDiff returns a diff in colors.
func PaintDiff(paint cli.Painter, text []byte) []byte {
	var out bytes.Buffer
	hunks := false
	for line := range bytes.Lines(text) {
		var color cli.Color
		switch {
		case bytes.HasPrefix(line, []byte("@@")):
			color, hunks = cli.Cyan, true
		case !hunks:
			color = cli.Bold
		case line[0] == '-':
			color = cli.Red
		case line[0] == '+':
			color = cli.Green
		}
		content, ended := bytes.CutSuffix(line, []byte("\n"))
		if out.WriteString(paint.Paint(color, string(content))); ended {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
