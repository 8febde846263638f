package jwt

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText is how much of a text from a token is quoted.
const maxText = 120

func refuse(reason Reason, detail string) *Refusal { return &Refusal{Reason: reason, Detail: detail} }

// quote is s in quotes, cut where it is long.
func quote(s string) string {
	if len(s) <= maxText {
		return strconv.Quote(s)
	}
	return strconv.Quote(cut(s, maxText)) + "…"
}

// quoteAll is quote for each, with commas between.
func quoteAll(all []string) string {
	var b strings.Builder
	for i, s := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(s))
	}
	return b.String()
}

// bounded is a text that cannot break a line, cut where it is long.
func bounded(s string) string {
	more := ""
	if len(s) > maxText {
		s, more = cut(s, maxText), "…"
	}
	quoted := strconv.Quote(s)
	if quoted = quoted[1 : len(quoted)-1]; strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return quoted + more
	}
	return s + more
}

// cut is the front of s, at most n bytes, with whole characters.
func cut(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// maxError is how much of an error's text is kept: expressions are quoted whole
// in it, and so may claims be.
const maxError = 500

// boundedError is the text of an error on one line, cut where it is long.
func boundedError(err error) string {
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return !strconv.IsPrint(r) }), " ")
	if len(text) > maxError {
		return cut(text, maxError) + "…"
	}
	return text
}
