package decision

import (
	"fmt"
	"io"
	"strings"
)

// LinePrinter returns a function that writes a line without trailing spaces. Errors are those of a later Flush of out.
func LinePrinter(out io.Writer) func(format string, args ...any) {
	return func(format string, args ...any) {
		_, _ = io.WriteString(out, strings.TrimRight(fmt.Sprintf(format, args...), " ")+"\n")
	}
}
