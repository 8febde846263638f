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

// Steps returns the members and elements on a path of Member and Element, from the root. The path of
// a name that is shortened or quoted does not lead to it.
func Steps(path string) []string {
	var steps []string
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			step, after, _ := strings.Cut(rest, "]")
			steps, path = append(steps, step), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(steps, path)
		}
		steps, path = append(steps, path[:end]), strings.TrimPrefix(path[end:], ".")
	}
	return steps
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
