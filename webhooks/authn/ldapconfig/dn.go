package ldapconfig

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-ldap/ldap/v3"
)

var errEmptyDN = errors.New("it is empty")

// NormalDN returns the one form of a DN (RFC 4514) that its spellings have which differ in case, in the
// order within an RDN or in the kind of escape. Others are two DNs here.
func NormalDN(text string) (string, error) {
	dn, err := parseDN(text)
	if err != nil {
		return "", err
	}
	for _, rdn := range dn.RDNs {
		for _, attribute := range rdn.Attributes {
			attribute.Type = strings.ToLower(attribute.Type)
			if utf8.ValidString(attribute.Value) { // what is not text is compared byte by byte
				attribute.Value = strings.Map(lower, attribute.Value)
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

// lower returns the lower case of a character whose lower case has no other upper case. A
// capital I with a dot stays what it is, because i is that of I.
func lower(r rune) rune {
	if small := unicode.ToLower(r); unicode.ToUpper(small) == r {
		return small
	}
	return r
}
