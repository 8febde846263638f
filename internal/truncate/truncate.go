// Package truncate shortens text to a length that a log, a status or a terminal can
// hold, and marks that something is missing.
package truncate

import "unicode/utf8"

// mark stands for what is missing.
const mark = "…"

// Bytes returns text with at most most bytes. A longer text ends with "…" and is not
// cut within a character.
func Bytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// Runes returns text with at most most characters. A longer text ends with "…".
func Runes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	count, end := 0, 0
	for i := range text {
		count++
		switch {
		case count == most:
			end = i
		case count > most:
			return text[:end] + mark
		}
	}
	return text
}

// IsPlain reports whether a string has nothing but printable ASCII characters. Nearly all messages are such, and need no
// look at each of their runes.
func IsPlain(s string) bool {
	for i := range len(s) {
		if s[i]-' ' > '~'-' ' { // less than a space wraps around
			return false
		}
	}
	return true
}
