package ldapconfig

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-ldap/ldap/v3"
	"golang.org/x/text/unicode/norm"
)

var errEmptyDN = errors.New("it is empty")

// NormalDN returns the one form of a DN (RFC 4514) that all its spellings have,
// as far as the comparison rules of RFC 4517 and 4518 for names make them one:
// without regard to case, order within an RDN, kind of escape, compatibility forms
// of characters and runs of spaces. Where servers do not agree on whether two texts
// are one, such as with and without a dot on the i, they are two here: those may be
// the names of two entries.
func NormalDN(text string) (string, error) {
	dn, err := parseDN(text)
	if err != nil {
		return "", err
	}
	for _, rdn := range dn.RDNs {
		for _, attribute := range rdn.Attributes {
			attribute.Type = strings.ToLower(attribute.Type)
			// What is not text is compared byte by byte.
			if utf8.ValidString(attribute.Value) {
				attribute.Value = singleSpaces(fold(attribute.Value))
			}
		}
	}
	return dn.String(), nil
}

// parseDN parses a DN that is not empty.
func parseDN(text string) (*ldap.DN, error) {
	dn, err := ldap.ParseDN(text)
	if err != nil {
		return nil, err
	}
	if len(dn.RDNs) == 0 {
		return nil, errEmptyDN
	}
	for _, rdn := range dn.RDNs {
		for _, attribute := range rdn.Attributes {
			if !isAttribute(attribute.Type) || strings.Contains(attribute.Type, ";") {
				return nil, fmt.Errorf("%s is not a name: %w", Quote(attribute.Type), errNotAttribute)
			}
		}
	}
	return dn, nil
}

// fold makes all texts one that differ in case or in the form of characters alone.
// Both can lead to the other.
func fold(text string) string {
	return norm.NFKC.String(strings.Map(lower, norm.NFKC.String(text)))
}

// lower returns the lower case of a character whose lower case has no other upper case. A
// capital I with a dot stays what it is, because i is that of I.
func lower(r rune) rune {
	if small := unicode.ToLower(r); unicode.ToUpper(small) == r {
		return small
	}
	return r
}

// singleSpaces removes the spaces that comparisons do not look at.
func singleSpaces(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
}
