package strict

import (
	"strconv"
	"strings"
)

// Member returns the path of a member of the value at path. A name with special characters is
// put in brackets, as in package field of apimachinery.
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

// Printable returns text of a document for a terminal: short, and without control characters.
func Printable(text string) string {
	const most = 100
	text = Cut(text, most)
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Cut returns the first characters of a text, at most most, and "…" if there are more.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
