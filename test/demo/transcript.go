package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// transcript writes what a person would have seen at a terminal. It is not safe
// for concurrent use. No access token gets through it whole.
type transcript struct {
	out    io.Writer
	colour bool
	noted  bool // the last line is a note on the next command
}

// wantsColour follows https://no-color.org: colour is for terminals, and for
// people who did not ask to be spared.
func wantsColour(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	// A character device too, and nobody looks at it.
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// The attributes that ECMA-48 calls select graphic rendition.
const (
	bold  = "1"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (t *transcript) paint(attribute, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}

// line writes one line of text.
func (t *transcript) line(format string, args ...any) {
	// That nobody reads any more is noticed by the signal, SIGPIPE.
	_, _ = fmt.Fprintf(t.out, format+"\n", args...)
}

// heading begins a part and says in a sentence what it shows.
func (t *transcript) heading(title, says string) {
	t.line("\n%s", t.paint(bold, "━━ "+title))
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
	t.line("%s", t.paint(cyan, "$ "+strings.ReplaceAll(shorten(text), "\n", "\n> ")))
}

// output shows what a command printed, with one line break at its end.
func (t *transcript) output(text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		t.line("%s", shorten(text))
	}
}

// change shows what an edit did to a file: the lines that went, and those that
// came.
func (t *transcript) change(file, before, after string) {
	t.line("\n%s", t.paint(bold, "edit "+file+":"))
	gone, come := changedLines(before, after)
	for _, l := range gone {
		t.line("%s", t.paint(red, "- "+l))
	}
	for _, l := range come {
		t.line("%s", t.paint(green, "+ "+l))
	}
}

// passed notes what was checked.
func (t *transcript) passed(text string) { t.line("%s %s", t.paint(green, "✓"), text) }

// changedLines are the lines between the beginning and the end that two texts
// have in common.
func changedLines(before, after string) (gone, come []string) {
	gone, come = strings.Split(before, "\n"), strings.Split(after, "\n")
	for len(gone) > 0 && len(come) > 0 && gone[0] == come[0] {
		gone, come = gone[1:], come[1:]
	}
	for len(gone) > 0 && len(come) > 0 && gone[len(gone)-1] == come[len(come)-1] {
		gone, come = gone[:len(gone)-1], come[:len(come)-1]
	}
	return gone, come
}

// shorten cuts access tokens down to what cannot be used: their id and the first
// characters of their secret. The alphabet of the secret and of the check behind
// it, 47 characters in all, is that of base32 in lower case.
func shorten(text string) string {
	token := regexp.MustCompile(`(gatehouse_[a-z0-9-]+_[a-z2-7]{4})[a-z2-7]{43}`)
	return token.ReplaceAllString(text, "$1…")
}
