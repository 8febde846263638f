package ldapconfig

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest name that anybody types, in bytes.
const maxName = 256

// IsName reports whether an account can have a name: whatever else was typed is
// not worth a search. That is text without control characters, and without white
// space around it, which comparisons in the directory do not look at.
func IsName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && strings.TrimSpace(name) == name &&
		!strings.ContainsFunc(name, unicode.IsControl)
}
