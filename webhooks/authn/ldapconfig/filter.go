package ldapconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"
)

// placeholder stands for the escaped value in a filter.
const placeholder = "{}"

// matchingRuleInChain is LDAP_MATCHING_RULE_IN_CHAIN of Active Directory.
const matchingRuleInChain = "1.2.840.113556.1.4.1941"

// FillFilter puts a value into a filter. Whatever the value is, it is compared and
// nothing else: RFC 4515 escapes all that could end it or mean something.
func FillFilter(filter, value string) string {
	return strings.ReplaceAll(filter, placeholder, ldap.EscapeFilter(value))
}

// filterUse is how a filter uses its placeholder.
type filterUse struct {
	// values is how many values it is in, and inChain how many of these are
	// compared by Active Directory's in-chain rule.
	values, inChain int
	// attributes are those that are compared with a value that has it.
	attributes []string
}

// compares reports whether an attribute is compared with what {} stands for.
func (u *filterUse) compares(attribute string) bool {
	return slices.ContainsFunc(u.attributes, func(name string) bool { return strings.EqualFold(name, attribute) })
}

var (
	errPlaceholderElsewhere = errors.New(`{} must be in a value that is compared for equality, such as "uid={}"`)
	errPlaceholderNegated   = errors.New("{} must not be in a negation, which would match all other entries")
	errNoPlaceholder        = errors.New("it has no {}, so it would find the same entries for every user")
	errNotAttribute         = errors.New("attribute names have letters, digits and dashes")
	errDN                   = errors.New("is not an attribute")
	errTooDeep              = fmt.Errorf("it is nested deeper than %d", maxFilterDepth)
)

const maxFilterDepth = 32

// parseFilter checks a filter that is to be filled.
func parseFilter(filter string) (filterUse, error) {
	var use filterUse
	// The parser recurses with the filter.
	if depth := strings.Count(filter, "("); depth > 1000 {
		return use, errTooDeep
	}
	packet, err := ldap.CompileFilter(filter)
	if err != nil {
		var detailed *ldap.Error
		if errors.As(err, &detailed) && detailed.Err != nil {
			err = detailed.Err
		}
		return use, fmt.Errorf("not an LDAP filter: %s", strings.TrimPrefix(err.Error(), "ldap: "))
	}
	err = use.walk(packet, 0, false)
	if err != nil {
		return use, err
	}
	switch count := strings.Count(filter, placeholder); {
	case count == 0 && use.values == 0:
		return use, errNoPlaceholder
	case count != use.values:
		return use, errPlaceholderElsewhere
	}
	return use, nil
}

func (u *filterUse) walk(packet *ber.Packet, depth int, negated bool) error {
	if depth > maxFilterDepth {
		return errTooDeep
	}
	switch uint64(packet.Tag) {
	case ldap.FilterAnd, ldap.FilterOr, ldap.FilterNot:
		for _, child := range packet.Children {
			err := u.walk(child, depth+1, negated || packet.Tag == ldap.FilterNot)
			if err != nil {
				return err
			}
		}
		return nil
	case ldap.FilterPresent:
		return u.part("", ber.DecodeString(packet.Data.Bytes()), "", negated, false)
	case ldap.FilterExtensibleMatch:
		var attribute, rule, value string
		for _, child := range packet.Children {
			text := ber.DecodeString(child.Data.Bytes())
			switch uint64(child.Tag) {
			case ldap.MatchingRuleAssertionMatchingRule:
				rule = text
			case ldap.MatchingRuleAssertionType:
				attribute = text
			case ldap.MatchingRuleAssertionMatchValue:
				value = text
			}
		}
		return u.part(rule, attribute, value, negated, true)
	case ldap.FilterEqualityMatch:
		return u.part("", ber.DecodeString(packet.Children[0].Data.Bytes()), ber.DecodeString(packet.Children[1].Data.Bytes()), negated, true)
	default:
		// Substrings, order and likeness: a part of a name, or a name like another,
		// must not find an account.
		return u.part("", ber.DecodeString(packet.Children[0].Data.Bytes()), "", negated, false)
	}
}

// part looks at one comparison. What it does not count, parseFilter misses.
func (u *filterUse) part(rule, attribute, value string, negated, equality bool) error {
	if attribute == "" && rule == "" || attribute != "" && !isAttribute(attribute) || rule != "" && !isAttribute(rule) {
		return fmt.Errorf("%s is not a name: %w", Quote(attribute+rule), errNotAttribute)
	}
	if isDN(attribute) {
		return fmt.Errorf("%s %w", Quote(attribute), errDN)
	}
	count := strings.Count(value, placeholder)
	switch {
	case count > 0 && negated:
		return errPlaceholderNegated
	case equality:
		u.values += count
		if count > 0 {
			u.attributes = append(u.attributes, attribute)
		}
	}
	if rule == matchingRuleInChain {
		u.inChain += count
	}
	return nil
}
