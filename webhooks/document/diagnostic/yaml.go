package diagnostic

import "strings"

// YAMLHint returns a hint for a message of the YAML parser, "" for none.
func YAMLHint(message string) string {
	for _, of := range []struct {
		hint  string
		parts []string
	}{
		{"put text that begins with @, ` or % in quotes, and indent with spaces, never with tabs", []string{"cannot start any token", "tab character"}},
		{"put text with a colon and a space in it in quotes, and check the indentation", []string{"mapping values are not allowed"}},
		{"check the indentation: the keys of a mapping, and the elements of a list, begin in the same column", []string{
			"did not find expected key", "did not find expected '-' indicator", "could not find expected ':'", "block sequence entries are not allowed", "did not find expected <document start>",
		}},
		{"close the quotes", []string{"unexpected end of stream"}},
		{"check the brackets, and put text that begins with [ or { in quotes", []string{"expected ',' or", "expected node content"}},
		{"put text that begins with * or & in quotes", []string{"alphabetic or numeric character", "unknown anchor"}},
		{"in double quotes, a backslash is written twice; in single quotes once", []string{"unknown escape character"}},
	} {
		for _, part := range of.parts {
			if strings.Contains(message, part) {
				return of.hint
			}
		}
	}
	return ""
}
