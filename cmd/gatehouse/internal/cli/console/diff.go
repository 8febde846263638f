package console

import (
	"bytes"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// maxDiffLines bounds the lines of a difference.
const maxDiffLines = 2000

// diffLine is a line of the template "diff".
type diffLine struct{ Class, Text string }

// diffOf returns the difference between two texts, none if they are the same.
func diffOf(before, after []byte) (out []diffLine) {
	text := string(diff.Diff("before", endLine(before), "after", endLine(after)))
	_, text, _ = strings.Cut(text, "\n") // a line that repeats the names
	for line := range strings.Lines(text) {
		class := ""
		switch line[0] {
		case '-':
			class = "removed"
		case '+':
			class = "added"
		}
		if out = append(out, diffLine{class, strings.TrimSuffix(line, "\n")}); len(out) == maxDiffLines {
			return append(out, diffLine{"", "… and more lines that are not shown"})
		}
	}
	return out
}

// endLine returns a text whose last line ends, so that all lines can be compared.
func endLine(text []byte) []byte {
	if len(text) == 0 || bytes.HasSuffix(text, []byte("\n")) {
		return text
	}
	return append(bytes.Clone(text), '\n')
}
