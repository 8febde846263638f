// Package shell quotes words for commands that people paste.
package shell

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Quote returns a word that a POSIX shell reads as the given text and executes nothing of. What a terminal would obey or not
// show is escaped: the result is one line, but for line feeds at its end, which no substitution keeps. A shell has no NUL.
func Quote(word string) string {
	if word != "" && word[0] != '=' && strings.IndexFunc(word, func(r rune) bool { return !isPlain(r) }) < 0 {
		return word
	}
	if utf8.ValidString(word) && !strings.ContainsFunc(word, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	text := strings.TrimRight(word, "\n")
	out := ""
	if text != "" {
		out = `"$(printf '` + octal(text) + `')"`
	}
	if ends := word[len(text):]; ends != "" {
		out += "'" + ends + "'"
	}
	return out
}

// isPlain reports whether no shell gives a character a meaning.
func isPlain(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r < utf8.RuneSelf && strings.ContainsRune("-._:/@%+=,", r)
}

// octal returns a text as a format of printf that has no character with a meaning but the backslash.
func octal(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; isPlain(rune(c)) && c != '%' && c != '-' || c == ' ' {
			b.WriteByte(c)
		} else {
			_, _ = fmt.Fprintf(&b, `\%03o`, c) // to memory
		}
	}
	return b.String()
}
