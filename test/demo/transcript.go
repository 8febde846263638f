package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// transcript writes what a person would have seen at a terminal. It is not safe
// for concurrent use. No access token gets through it whole.
type transcript struct {
	out   io.Writer
	noted bool // the last line is a note on the next command
}

// line writes one line of text.
func (t *transcript) line(format string, args ...any) {
	// That nobody reads any more is noticed by the signal, SIGPIPE.
	_, _ = fmt.Fprintf(t.out, format+"\n", args...)
}

// heading begins a part and says in a sentence what it shows.
func (t *transcript) heading(title, says string) {
	t.line("\n━━ %s", title)
	if says != "" {
		t.line("%s", says)
	}
}

// note says what the next command is for, as a comment of the shell.
func (t *transcript) note(text string) {
	t.line("\n# %s", text)
	t.noted = true
}

// command shows a command as it would be typed.
func (t *transcript) command(text string) {
	if !t.noted {
		t.line("")
	}
	t.noted = false
	t.line("$ %s", strings.ReplaceAll(shorten(text), "\n", "\n> "))
}

// output shows what a command printed, with one line break at its end.
func (t *transcript) output(text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		t.line("%s", shorten(text))
	}
}

// passed notes what was checked.
func (t *transcript) passed(text string) { t.line("✓ %s", text) }

// shorten cuts access tokens down to what cannot be used: their id and the first
// characters of their secret. The alphabet of the secret and of the check behind
// it, 47 characters in all, is that of base32 in lower case.
func shorten(text string) string {
	token := regexp.MustCompile(`(gatehouse_[a-z0-9-]+_[a-z2-7]{4})[a-z2-7]{43}`)
	return token.ReplaceAllString(text, "$1…")
}
