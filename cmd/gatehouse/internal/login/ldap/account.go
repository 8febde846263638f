package ldap

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-ldap/ldap/v3"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
)

// find searches the account of a name.
func (d *Directory) find(ctx context.Context, c *connection, name string) (*authn.Account, error) {
	search := &d.options.Config.UserSearch
	// Two are enough to know that there is not one.
	result, err := c.search(ctx, &ldap.SearchRequest{
		BaseDN: search.BaseDN, Filter: ldapconfig.FillFilter(search.Filter, name), Attributes: d.userAttributes(), SizeLimit: 2,
	})
	code, _ := resultCode(err)
	// A server with a smaller limit than ours returns one of several.
	cut := code == ldap.LDAPResultSizeLimitExceeded && result != nil && len(result.Entries) > 0
	if err != nil && !cut {
		return nil, c.server.failure(ctx, "search a user", err)
	}
	switch {
	case len(result.Entries) > 1:
		return nil, fmt.Errorf("%w: it has several, %s and %s", authn.ErrNoAccount, ldapconfig.Quote(result.Entries[0].DN), ldapconfig.Quote(result.Entries[1].DN))
	case cut:
		return nil, fmt.Errorf("%w: it has several, %s and others", authn.ErrNoAccount, ldapconfig.Quote(result.Entries[0].DN))
	case len(result.Entries) == 0:
		return nil, authn.ErrNoAccount
	}
	entry := result.Entries[0]
	if why := disabled(entry, d.now()); why != "" {
		return nil, fmt.Errorf("%w: %s is disabled: %s", authn.ErrNoAccount, ldapconfig.Quote(entry.DN), why)
	}
	account, err := d.account(entry)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.server.address.URL, err)
	}
	return account, nil
}

// userAttributes returns the attributes to ask for. Each is named, because servers
// leave some out when all are requested.
func (d *Directory) userAttributes() []string {
	config := d.options.Config
	names := []string{config.UserSearch.UsernameAttribute}
	if name := config.UserSearch.UIDAttribute; name != "" {
		names = append(names, name)
	}
	for _, extra := range config.UserSearch.Extra {
		names = append(names, extra.Attribute)
	}
	if config.GroupSearch != nil && config.GroupSearch.MemberValue != "" {
		names = append(names, config.GroupSearch.MemberValue)
	}
	names = append(names, permanentIDs()...)
	return unique(append(names, attributeAccountControl, attributeAccountExpires, attributeAccountLock, attributeLockedTime))
}

// unique returns names of attributes without those that differ in case alone.
func unique(names []string) []string {
	var kept []string
	for _, name := range names {
		if !slices.ContainsFunc(kept, func(other string) bool { return strings.EqualFold(other, name) }) {
			kept = append(kept, name)
		}
	}
	return kept
}

// account makes an account of an entry. An entry without what an account has to
// have is none, and its name is answered like one that nobody has: an error would
// tell that there is such an entry.
func (d *Directory) account(entry *ldap.Entry) (*authn.Account, error) {
	config := d.options.Config
	key, err := keyOf(entry)
	if err != nil {
		return nil, fmt.Errorf("%w: the DN of an entry, %s, cannot be parsed: %w", authn.ErrNoAccount, ldapconfig.Quote(entry.DN), err)
	}
	account := &authn.Account{Key: key, DN: entry.DN, Member: entry.DN}
	account.User.Username, err = required(entry, config.UserSearch.UsernameAttribute)
	if err != nil {
		return nil, err
	}
	if name := config.UserSearch.UIDAttribute; name != "" {
		uid, err := required(entry, name)
		if err != nil {
			return nil, err
		}
		account.User.UID = text(name, uid)
	}
	for _, extra := range config.UserSearch.Extra {
		var values authenticationv1.ExtraValue
		for _, value := range valuesOf(entry, extra.Attribute) {
			values = append(values, text(extra.Attribute, value))
		}
		if len(values) == 0 {
			continue
		}
		// An attribute is a set: servers return it in any order.
		slices.Sort(values)
		if account.User.Extra == nil {
			account.User.Extra = map[string]authenticationv1.ExtraValue{}
		}
		account.User.Extra[extra.Key] = slices.Compact(values)
	}
	if config.GroupSearch != nil && config.GroupSearch.MemberValue != "" {
		account.Member, err = required(entry, config.GroupSearch.MemberValue)
		if err != nil {
			return nil, err
		}
	}
	return account, nil
}

// valuesOf returns the values of an attribute, in whatever case and however often
// the server names it.
func valuesOf(entry *ldap.Entry, name string) []string {
	var values []string
	for _, attribute := range entry.Attributes {
		if strings.EqualFold(attribute.Name, name) {
			values = append(values, attribute.Values...)
		}
	}
	return values
}

// permanentIDs returns the attributes by which servers name an entry for as long as it
// exists, and no other one after it. The first that an entry has counts.
//
// 389 Directory Server has nsUniqueId, and may be given entryUUID (RFC 4530) later.
// Active Directory's objectGUID comes last, because elsewhere it may be a copy.
func permanentIDs() []string { return []string{"nsUniqueId", "entryUUID", "objectGUID"} }

// keyOf returns the key of an entry's account. One of an id has a colon behind a
// name, which no DN has.
func keyOf(entry *ldap.Entry) (string, error) {
	dn, err := ldapconfig.NormalDN(entry.DN)
	if err != nil {
		return "", err
	}
	for _, name := range permanentIDs() {
		if values := valuesOf(entry, name); len(values) == 1 && values[0] != "" {
			return strings.ToLower(name + ":" + text(name, values[0])), nil
		}
	}
	return dn, nil
}

// single returns the one value of an attribute.
func single(entry *ldap.Entry, name string) (string, error) {
	values := valuesOf(entry, name)
	if len(values) != 1 || values[0] == "" {
		return "", fmt.Errorf("entry %s has %d values of attribute %s, and must have one that is not empty", ldapconfig.Quote(entry.DN), len(values), ldapconfig.Quote(name))
	}
	return values[0], nil
}

// required is single for what an account has to have.
func required(entry *ldap.Entry, name string) (string, error) {
	value, err := single(entry, name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", authn.ErrNoAccount, err)
	}
	return value, nil
}

// text returns a value as it can be shown. Active Directory's identifiers are
// binary whatever their bytes look like.
func text(attribute, value string) string {
	binary := strings.EqualFold(attribute, "objectGUID") || strings.EqualFold(attribute, "objectSid") ||
		strings.HasSuffix(strings.ToLower(attribute), ";binary")
	if binary || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return hex.EncodeToString([]byte(value))
	}
	return value
}

// The attributes by which directories disable an account.
const (
	// attributeAccountControl is Active Directory's, a sum of flags.
	attributeAccountControl = "userAccountControl"
	// attributeAccountExpires is Active Directory's too: when the account ends, in
	// 100 nanoseconds since 1601, or 0 or the largest number for never (MS-ADA1,
	// section 2.1).
	attributeAccountExpires = "accountExpires"
	// attributeAccountLock is that of 389 Directory Server and FreeIPA.
	attributeAccountLock = "nsAccountLock"
	// attributeLockedTime is that of OpenLDAP's password policies. Its other values
	// are locks by wrong passwords, which end by themselves and which anybody can
	// bring about: a login then fails by its password, a session goes on.
	attributeLockedTime = "pwdAccountLockedTime"
	lockedForGood       = "000001010000Z"
	// accountDisabled is ADS_UF_ACCOUNTDISABLE.
	accountDisabled = 0x2
)

// disabled returns why an entry is of an account that may not be used, if so. A bind
// would be refused; but a session that is renewed has none.
func disabled(entry *ldap.Entry, now time.Time) string {
	for _, value := range valuesOf(entry, attributeAccountControl) {
		flags, err := strconv.ParseInt(value, 10, 64)
		if err != nil || flags&accountDisabled != 0 {
			return attributeAccountControl + " is " + ldapconfig.Quote(value)
		}
	}
	for _, value := range valuesOf(entry, attributeAccountExpires) {
		ticks, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return attributeAccountExpires + " is " + ldapconfig.Quote(value)
		}
		if ends, ok := fileTime(ticks); ok && !now.Before(ends) {
			return attributeAccountExpires + " is " + ends.Format(time.RFC3339)
		}
	}
	for _, value := range valuesOf(entry, attributeAccountLock) {
		if !strings.EqualFold(value, "false") {
			return attributeAccountLock + " is " + ldapconfig.Quote(value)
		}
	}
	if slices.Contains(valuesOf(entry, attributeLockedTime), lockedForGood) {
		return attributeLockedTime + " is " + ldapconfig.Quote(lockedForGood)
	}
	return ""
}

// fileTime returns the moment of a Windows file time, unless it is 0 and stands for
// never. The largest one, which does too, is in the year 30828.
func fileTime(ticks int64) (moment time.Time, ok bool) {
	const (
		perSecond = int64(time.Second / 100)
		// unixEpoch is 1970, in seconds since 1601.
		unixEpoch = 11644473600
	)
	if ticks == 0 {
		return time.Time{}, false
	}
	return time.Unix(ticks/perSecond-unixEpoch, ticks%perSecond*100).UTC(), true
}
