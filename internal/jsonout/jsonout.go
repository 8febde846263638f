// Package jsonout writes JSON for terminals and logs: characters that a terminal obeys or does not show are escaped.
package jsonout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Encode writes a value as JSON with an indent, "" for one line. Characters such as "<" and "&" stay as they are.
func Encode(out io.Writer, indent string, value any) error {
	encoder := json.NewEncoder(NewWriter(out))
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// NewWriter returns a writer that escapes JSON texts. Each Write must be of whole characters, as those of encoders are.
func NewWriter(out io.Writer) io.Writer { return writer{out} }

type writer struct{ out io.Writer }

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	if _, err := w.out.Write(Escape(text)); err != nil {
		return 0, err //nolint:wrapcheck // it is the writer's
	}
	return len(text), nil
}

// Escape returns a JSON text of the same value in which every character can be printed: controls, those of C1 too, of which
// terminals take U+009B for the beginning of a command, those that change the direction of text, and those without a width are
// escaped. Such characters can only be in strings.
func Escape(text []byte) []byte {
	if !bytes.ContainsFunc(text, isInvisible) && utf8.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8) //nolint:mnd // a guess
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case isInvisible(r):
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// isInvisible reports whether a character cannot be printed, and is no space between values.
func isInvisible(r rune) bool { return !strconv.IsPrint(r) && r != '\n' && r != '\r' && r != '\t' }
