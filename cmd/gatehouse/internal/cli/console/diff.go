package console

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// maxDiffRows bounds the rows of a diff.
const maxDiffRows = 2000

// diffRow is a row of the template "diff": a line of a text before and after a change.
type diffRow struct {
	// Kind is "same", "changed", "removed", "added", or "folded" for lines that are not shown.
	Kind string
	// LeftLine and RightLine count from 1. They are 0 if this side has no line.
	LeftLine, RightLine int
	Left, Right         string
	// Folded says what is not shown.
	Folded string
}

// sideBySide returns the rows of the difference between two texts, none if they are the same. Lines that are far from a change are folded.
func sideBySide(before, after []byte) []diffRow {
	var d differ
	for line := range strings.Lines(string(diff.Diff("before", endLine(before), "after", endLine(after)))) {
		text := strings.TrimRight(line[1:], "\n")
		switch {
		case strings.HasPrefix(line, "@@ "):
			d.beginHunk(line)
		case d.left == 0 && d.right == 0: // what is above the first hunk
		case line[0] == '-':
			d.removed = append(d.removed, text)
		case line[0] == '+':
			d.added = append(d.added, text)
		default:
			d.flush()
			d.add(diffRow{Kind: "same", Left: text, Right: text})
		}
	}
	d.flush()
	if rest := bytes.Count(endLine(before), []byte("\n")) - d.left + 1; len(d.rows) > 0 && rest > 0 {
		d.fold(rest)
	}
	if more := len(d.rows) - maxDiffRows; more > 0 {
		d.rows = append(d.rows[:maxDiffRows], diffRow{Kind: "folded", Folded: fmt.Sprintf("%d more rows are not shown", more)})
	}
	return d.rows
}

// endLine returns a text whose last line ends, so that all lines can be compared.
func endLine(text []byte) []byte {
	if len(text) == 0 || bytes.HasSuffix(text, []byte("\n")) {
		return text
	}
	return append(bytes.Clone(text), '\n')
}

// differ makes rows of a unified diff.
type differ struct {
	rows []diffRow
	// left and right are the numbers of the next lines.
	left, right int
	// removed and added are the lines of a change that has not ended.
	removed, added []string
}

// beginHunk folds the lines since the last hunk.
func (d *differ) beginHunk(header string) {
	d.flush()
	var left, leftCount, right, rightCount int
	_, _ = fmt.Sscanf(header, "@@ -%d,%d +%d,%d @@", &left, &leftCount, &right, &rightCount) // diff.Diff wrote it
	if leftCount == 0 {
		left++ // it is the line before
	}
	if rightCount == 0 {
		right++
	}
	if same := left - max(d.left, 1); same > 0 {
		d.fold(same)
	}
	d.left, d.right = left, right
}

// fold adds a row for lines that are the same.
func (d *differ) fold(lines int) {
	text := "1 line is the same"
	if lines != 1 {
		text = fmt.Sprintf("%d lines are the same", lines)
	}
	d.rows = append(d.rows, diffRow{Kind: "folded", Folded: text})
}

// flush adds the rows of a change: lines that replace others stand beside them.
func (d *differ) flush() {
	for i := range max(len(d.removed), len(d.added)) {
		switch {
		case i >= len(d.added):
			d.add(diffRow{Kind: "removed", Left: d.removed[i]})
		case i >= len(d.removed):
			d.add(diffRow{Kind: "added", Right: d.added[i]})
		default:
			d.add(diffRow{Kind: "changed", Left: d.removed[i], Right: d.added[i]})
		}
	}
	d.removed, d.added = nil, nil
}

// add adds a row with the numbers of its lines.
func (d *differ) add(row diffRow) {
	if row.Kind != "added" {
		row.LeftLine = d.left
		d.left++
	}
	if row.Kind != "removed" {
		row.RightLine = d.right
		d.right++
	}
	d.rows = append(d.rows, row)
}
