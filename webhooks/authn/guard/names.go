package guard

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// maxNameBytes bounds every string of an identity. Every audit event of the user repeats
// them. X.509 subjects and LDAP names stay well below it.
const maxNameBytes = 1024

// Fault is what is wrong with one string, as the end of a sentence that begins with the
// string in quotes. The zero Fault is none.
type Fault string

const (
	empty Fault = `must not be empty`
	// Reserved is the fault of a name that begins with "system:".
	Reserved     Fault = `is reserved: names that begin with "system:" belong to Kubernetes itself`
	breakGlass   Fault = `is reserved: requests of members of "` + v1alpha1.BreakGlassGroup + `" are not sent to Gatehouse, so only impersonation may give this group`
	outerSpace   Fault = `must not begin or end with white space`
	control      Fault = `must not contain control or invisible characters`
	notUTF8      Fault = `must be valid UTF-8`
	replaced     Fault = `must not contain U+FFFD, the replacement of unreadable characters: different names would become equal`
	outerJoiner  Fault = `must not begin or end with an invisible joiner`
	tooLong      Fault = `must not be longer than 1024 bytes`
	reservedKey  Fault = `is reserved: extra keys under kubernetes.io and k8s.io belong to Kubernetes itself`
	ownKey       Fault = `is reserved: extra keys of gatehouse.dev are set by Gatehouse itself`
	upperCaseKey Fault = `must be lower case`
	spaceInKey   Fault = `must not contain white space`
)

// CheckName returns the fault of a user name or a group, "" if it has none.
func CheckName(name string) Fault {
	switch {
	case name == "":
		return empty
	case len(name) <= maxNameBytes && isReserved(name):
		// Before the other rules, because " system:masters" is a matter of more
		// than its space.
		return Reserved
	}
	if f := CheckString(name); f != "" {
		return f
	}
	if strings.TrimSpace(name) != name {
		return outerSpace
	}
	if ends := name[0] | name[len(name)-1]; ends >= utf8.RuneSelf && strings.Trim(name, string(nonJoiner)+string(joiner)) != name {
		return outerJoiner
	}
	return ""
}

// CheckGroup returns the fault of a group from outside a token, for which there are no
// exceptions, "" if it has none.
func CheckGroup(group string) Fault {
	if IsBreakGlass(group) {
		return breakGlass
	}
	return CheckName(group)
}

// CheckKey returns the fault of a key of extra, "" if it has none.
func CheckKey(key string) Fault {
	if key == "" {
		return empty
	}
	if f := CheckString(key); f != "" {
		return f
	}
	lower := strings.ToLower(key)
	// The domain is all of a key without a slash: keys of the form
	// scopes.authorization.example.org are in use too.
	domain, _, _ := strings.Cut(lower, "/")
	domain = strings.TrimSuffix(strings.TrimSpace(domain), ".")
	switch {
	case domain == "kubernetes.io", strings.HasSuffix(domain, ".kubernetes.io"),
		domain == "k8s.io", strings.HasSuffix(domain, ".k8s.io"):
		return reservedKey
	case domain == v1alpha1.GroupVersion.Group:
		return ownKey
	case lower != key:
		return upperCaseKey
	case strings.ContainsFunc(key, unicode.IsSpace):
		return spaceInKey
	}
	return ""
}

// CheckString returns the fault that any string of an identity may have, "" if it has
// none.
func CheckString(s string) Fault {
	if len(s) > maxNameBytes {
		return tooLong
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return checkWide(s[i:])
		case c < ' ' || c == 0x7f:
			return control
		}
	}
	return ""
}

// checkWide is CheckString for strings beyond ASCII.
func checkWide(s string) Fault {
	if !utf8.ValidString(s) {
		return notUTF8
	}
	for _, r := range s {
		if r == utf8.RuneError {
			return replaced
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || invisible(r) {
			return control
		}
	}
	return ""
}

// The joiners, which are invisible.
const nonJoiner, joiner = '\u200c', '\u200d'

// invisible reports whether a character is invisible, or changes how its neighbours are
// shown. The joiners are excepted: they are part of the spelling in several scripts.
func invisible(r rune) bool {
	return unseen(r) && r != nonJoiner && r != joiner
}

// unseen is invisible including the joiners.
func unseen(r rune) bool {
	const emptyBraille = '\u2800'
	return r >= utf8.RuneSelf && // which is most names, and unicode.In is slow
		(r == emptyBraille || unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point))
}

// isReserved reports whether a name begins with "system:" to a reader.
func isReserved(name string) bool { return readsAs(name, "system:") }

// IsBreakGlass reports whether a group is, or reads like, the break-glass group.
func IsBreakGlass(group string) bool {
	return len(group) <= maxNameBytes && readsAs(group, v1alpha1.BreakGlassGroup)
}

// readsAs reports whether a name begins with a prefix, in lower case, to a reader:
// whatever the case, and whatever white space or invisible characters are before it or in
// it.
func readsAs(name, prefix string) bool {
	rest := prefix
	for _, r := range name {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unseen(r) {
			continue
		}
		// By way of upper case, so that the long s (U+017F) folds as well.
		if unicode.ToLower(unicode.ToUpper(r)) != rune(rest[0]) {
			return false
		}
		if rest = rest[1:]; rest == "" {
			return true
		}
	}
	return false
}

// Quote quotes a value for a message, in printable ASCII, and cuts a very long one.
func Quote(s string) string {
	const limit = 64
	if len(s) <= limit {
		return fmt.Sprintf("%+q", s)
	}
	return fmt.Sprintf("%+q… (%d bytes)", s[:limit], len(s))
}
