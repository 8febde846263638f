package console

import (
	"regexp"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// token is a part of an expression, with the class of its color.
type token struct{ Class, Text string }

// celTokens are the tokens of CEL that have a color: comments, strings, numbers and words. What is between them has none.
var celTokens = regexp.MustCompile(`(?s)` +
	`(?P<comment>//[^\n]*)` +
	`|(?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:"""(?:\\.|[^\\])*?"""|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))` +
	`|(?P<digits>0[xX][0-9a-fA-F]+[uU]?|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[uU]?)` +
	`|(?P<word>[A-Za-z_][A-Za-z0-9_]*)`)

// highlight returns an expression in CEL as tokens. Characters that cannot be printed are escaped.
func highlight(expression string) []token {
	expression = strings.TrimSpace(expression)
	var out []token
	add := func(class, text string) {
		if text != "" {
			out = append(out, token{class, multiline(text)})
		}
	}
	end := 0
	for _, at := range celTokens.FindAllStringSubmatchIndex(expression, -1) {
		add("", expression[end:at[0]])
		end = at[1]
		text, class := expression[at[0]:end], ""
		for i, name := range celTokens.SubexpNames() {
			if name != "" && at[2*i] >= 0 {
				class = name
			}
		}
		if class == "word" {
			class = wordClass(text, strings.HasPrefix(expression[end:], "("))
		}
		add(class, text)
	}
	add("", expression[end:])
	return out
}

// wordClass returns the class of an identifier.
func wordClass(word string, isCalled bool) string {
	switch {
	case word == "true" || word == "false" || word == "null" || word == "in":
		return "keyword"
	case isCalled:
		return "call"
	default:
		return ""
	}
}

// multiline returns a text of several lines. Other characters that cannot be printed are escaped.
func multiline(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = diagnostic.OneLine(strings.TrimSuffix(line, "\r"))
	}
	return strings.Join(lines, "\n")
}
