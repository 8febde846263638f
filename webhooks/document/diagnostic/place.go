package diagnostic

import (
	"fmt"
	"strconv"
	"strings"
)

// Place is a place in a CEL expression.
type Place struct {
	// Text is the whole expression.
	Text string
	// Line and Column count from 1, and Column counts characters. Line is 0 for no place.
	Line, Column int
}

// Message returns a message about the place: `1:12 in "object.spec": …`.
func (p Place) Message(format string, args ...any) string {
	return p.prefix() + fmt.Sprintf(format, args...)
}

func (p Place) prefix() string {
	return fmt.Sprintf("%d:%d in %s: ", p.Line, p.Column, strconv.Quote(Excerpt(p.Text, p.Line, p.Column)))
}

// Excerpt returns a line of an expression, from 1, shortened around the column to a length that a message can hold.
func Excerpt(expression string, line, column int) string {
	const (
		most   = 80 // characters: half a line of a wide terminal
		before = 50 // of these
	)
	lines := strings.Split(expression, "\n")
	text := []rune(lines[min(max(line, 1), len(lines))-1])
	start := ""
	if len(text) > most && column-1 > before && column <= len(text) {
		text, start = text[column-1-before:], "…"
	}
	if text = []rune(strings.TrimSpace(string(text))); len(text) > most {
		return start + string(text[:most]) + "…"
	}
	return start + string(text)
}
