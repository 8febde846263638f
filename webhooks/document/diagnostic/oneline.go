package diagnostic

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// OneLine returns a text as it can be shown on one line of a terminal or a log: characters that cannot be printed are escaped as
// in Go. Otherwise a name could begin a line of its own, which CI systems may take for a command, or change colors.
func OneLine(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			_, _ = fmt.Fprintf(&b, `\x%02x`, text[i]) // to memory
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
