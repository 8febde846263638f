package ldap

import (
	"fmt"
	"strconv"
	"strings"
)

// quoted is as much of a text as a message shows.
const quoted = 200

func quote(text string) string {
	if len(text) > quoted {
		return strconv.Quote(text[:quoted]) + fmt.Sprintf(" and %d bytes more", len(text)-quoted)
	}
	return strconv.Quote(text)
}

// isAttribute reports whether a text is an attribute description (RFC 4512,
// section 2.5): a name or an OID, with options.
func isAttribute(text string) bool {
	if text == "" || len(text) > quoted {
		return false
	}
	name, options, _ := strings.Cut(text, ";")
	for option := range strings.SplitSeq(options, ";") {
		if options != "" && (option == "" || strings.Trim(strings.ToLower(option), "abcdefghijklmnopqrstuvwxyz0123456789-") != "") {
			return false
		}
	}
	if strings.HasSuffix(text, ";") {
		return false
	}
	if isLetter(name) {
		return strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	}
	for number := range strings.SplitSeq(name, ".") {
		if number == "" || strings.Trim(number, "0123456789") != "" || len(number) > 1 && number[0] == '0' {
			return false
		}
	}
	return strings.Contains(name, ".")
}

func isLetter(text string) bool {
	return text != "" && ('a' <= text[0] && text[0] <= 'z' || 'A' <= text[0] && text[0] <= 'Z')
}
