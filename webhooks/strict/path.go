package strict

import (
	"strconv"
	"strings"
)

// Member returns the path of a member of what is at path. A name that is not a plain
// one is put in brackets, as package field of apimachinery does.
func Member(path, name string) string {
	if name == "" || strings.ContainsAny(name, ".[]/ ") {
		return path + "[" + Printable(name) + "]"
	}
	if path == "" {
		return Printable(name)
	}
	return path + "." + Printable(name)
}

// Element returns the path of an element of the list at path.
func Element(path string, index int) string {
	return path + "[" + strconv.Itoa(index) + "]"
}

// Printable is text out of a document as it may be shown on a terminal: short,
// and without control characters.
func Printable(text string) string {
	const most = 100
	text = Cut(text, most)
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Cut returns text of at most most characters, which ends in … if there was more.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
