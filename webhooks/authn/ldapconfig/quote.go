package ldapconfig

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// quoted is as much of a text as a message shows.
const quoted = 200

// Quote returns a text for a message, shortened.
func Quote(text string) string {
	if len(text) > quoted {
		return strconv.Quote(text[:quoted]) + fmt.Sprintf(" and %d bytes more", len(text)-quoted)
	}
	return strconv.Quote(text)
}

// attribute is an attribute description (RFC 4512, section 2.5): a name or an
// OID, with options.
var attribute = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*|(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))+)(;[A-Za-z0-9-]+)*$`)

// isAttribute reports whether a text is an attribute description.
func isAttribute(text string) bool { return len(text) <= quoted && attribute.MatchString(text) }

// isDN reports whether a text is what people write for the DN, which is a part of an entry and none of its attributes (RFC 4511, 4.1.7).
func isDN(text string) bool {
	name, _, _ := strings.Cut(text, ";")
	return strings.EqualFold(name, "dn")
}
