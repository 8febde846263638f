package template

import (
	"regexp"
	"strings"
)

var (
	// shellOperator is an expansion of a shell whose operators CEL does not have,
	// or not behind a name: ${x:-y}, ${#x}, ${x%%y}, ${x//y/z}, ${x[@]}.
	shellOperator = regexp.MustCompile(`^(?:[#!][A-Za-z_]|[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?(?::[-=+?0-9]|#|%%|//|\^|,|@[A-Za-z]))`)
	// shellName is a name as those of environment variables are, alone or in
	// front of an operator.
	shellName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*(?:$|[-+=?%/\[])`)
	// anyName is any other name alone, or in front of an operator without space.
	anyName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(?:$|[-+=?%/\[])`)
)

// isShell reports whether a placeholder's text is an expansion of a shell rather
// than CEL.
func isShell(text string) bool { return shellOperator.MatchString(text) || shellName.MatchString(text) }

// shellHint returns the hint for a placeholder that is no expression: the one given,
// or how to write a variable of a shell if that may have been meant.
func shellHint(text, hint string, syntax bool) (string, bool) {
	if isShell(text) || hint == "" && (syntax || anyName.MatchString(text)) {
		return "for a shell variable write $${" + excerpt(text, 1) + "}", true
	}
	return hint, false
}

// unterminatedHint returns the hint for a placeholder without an end, whose text is
// the rest. What a shell replaces begins a comment of CEL: ${x//a/b}.
func unterminatedHint(rest string) string {
	if text, _, ended := strings.Cut(rest, "}"); ended && isShell(text) {
		hint, _ := shellHint(text, "", true)
		return hint
	}
	return "write $${ for the characters ${"
}
