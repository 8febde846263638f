package ldap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	goldap "github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// today is when accounts are looked at that expire.
func today() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// fakeConfig is the configuration of a directory of fakes.
func fakeConfig(fakes ...*fake) *v1alpha1.Directory {
	c := config()
	for _, f := range fakes {
		c.Servers = append(c.Servers, f.url)
		c.CertificateAuthority += f.authority
	}
	return c
}

// ofFakes is a directory of fakes, today.
func ofFakes(t *testing.T, fakes ...*fake) *ldap.Directory {
	t.Helper()
	c := fakeConfig(fakes...)
	c.UserSearch.UIDAttribute = "objectGUID"
	return openAt(t, c, today)
}

// TestBindResults has every result of a bind mean what it means.
func TestBindResults(t *testing.T) {
	t.Parallel()
	// As Active Directory writes it.
	const data = "80090308: LdapErr: DSID-0C09042F, comment: AcceptSecurityContext error, data %s, v4563\x00"
	for name, test := range map[string]struct {
		code       uint16
		diagnostic string
		wrong      bool
		want       string
	}{
		"wrong password":        {goldap.LDAPResultInvalidCredentials, "", true, "wrong password"},
		"AD, wrong password":    {goldap.LDAPResultInvalidCredentials, fmt.Sprintf(data, "52e"), true, "wrong password"},
		"AD, no such user":      {goldap.LDAPResultInvalidCredentials, fmt.Sprintf(data, "525"), true, "data 525"},
		"AD, unknown":           {goldap.LDAPResultInvalidCredentials, fmt.Sprintf(data, "7AB"), true, "data 7ab"},
		"the password itself":   {goldap.LDAPResultInvalidCredentials, "bad: " + password, true, "wrong password"},
		"locked by policy":      {goldap.LDAPResultConstraintViolation, password, true, "result 19"},
		"no password":           {goldap.LDAPResultInappropriateAuthentication, "", true, "result 48"},
		"gone":                  {goldap.LDAPResultNoSuchObject, "", true, "result 32"},
		"unwilling":             {goldap.LDAPResultUnwillingToPerform, password, true, "result 53"},
		"busy":                  {goldap.LDAPResultBusy, password, false, "result 51"},
		"unavailable":           {goldap.LDAPResultUnavailable, "", false, "result 52"},
		"referral":              {goldap.LDAPResultReferral, "", true, "result 10"},
		"operations error":      {goldap.LDAPResultOperationsError, "", true, "result 1 "},
		"other":                 {goldap.LDAPResultOther, fmt.Sprintf(data, "52e"), true, "result 80"},
		"strong authentication": {goldap.LDAPResultStrongAuthRequired, "", true, "result 8 "},
		"in progress":           {goldap.LDAPResultSaslBindInProgress, "", true, "result 14"},
		"unknown":               {190, "", true, "result 190"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fakeConn, m message) { f.result(m, test.code, test.diagnostic) })
			d := ofFakes(t, f)
			err := d.Verify(t.Context(), &authn.Account{DN: janeDN}, password)
			if errors.Is(err, authn.ErrWrongPassword) != test.wrong || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			// A server that is busy or unavailable has not evaluated the password.
			looked := test.code != goldap.LDAPResultBusy && test.code != goldap.LDAPResultUnavailable
			if errors.Is(err, authn.ErrPasswordSent) != (looked && !test.wrong) {
				t.Errorf("the attempt is not counted as it should be: %v", err)
			}
			nobody := d.Verify(t.Context(), nil, password)
			if errors.Is(nobody, authn.ErrWrongPassword) != looked || nobody == nil {
				t.Errorf("for nobody: %v", nobody)
			}
			if strings.Contains(err.Error(), password) || strings.Contains(nobody.Error(), password) {
				t.Errorf("the error shows the password: %v, %v", err, nobody)
			}
		})
	}
}

// TestNobodySucceeds is a server that says yes to whoever asks.
func TestNobodySucceeds(t *testing.T) {
	t.Parallel()
	f := newFake(t, (*fakeConn).answerLikeAServer)
	err := ofFakes(t, f).Verify(t.Context(), nil, password)
	if !errors.Is(err, authn.ErrWrongPassword) {
		t.Errorf("nobody's password: %v", err)
	}
}

// TestPasswordSent counts a password that a server may have looked at, whatever came
// of it, and no other one.
func TestPasswordSent(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.CancelFunc, *fakeConn, message){
		"the caller leaves": func(leave context.CancelFunc, f *fakeConn, _ message) { leave(); f.hang() },
		"hangs up":          func(_ context.CancelFunc, f *fakeConn, _ message) { _ = f.Close() },
		"another's answer":  func(_ context.CancelFunc, f *fakeConn, m message) { m.id += 7; f.answerLikeAServer(m); _ = f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, account := range []*authn.Account{{DN: janeDN}, nil} {
				ctx, cancel := context.WithCancel(t.Context())
				f := newFake(t, func(f *fakeConn, m message) { answer(cancel, f, m) })
				err := ofFakes(t, f).Verify(ctx, account, password)
				cancel()
				if !isUnknown(err) || !errors.Is(err, authn.ErrPasswordSent) || strings.Contains(err.Error(), password) {
					t.Errorf("of %+v: %v", account, err)
				}
			}
		})
	}
	gone := newFake(t, (*fakeConn).answerLikeAServer)
	_ = gone.listener.Close()
	err := ofFakes(t, gone).Verify(t.Context(), &authn.Account{DN: janeDN}, password)
	if !isUnknown(err) || errors.Is(err, authn.ErrPasswordSent) {
		t.Errorf("a password that was not sent: %v", err)
	}
}

// TestUnavailable goes on to the next server when one says that it cannot, for
// searches and for passwords.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]uint16{"busy": goldap.LDAPResultBusy, "unavailable": goldap.LDAPResultUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := newFake(t, func(f *fakeConn, m message) { f.result(m, code, "") })
			good := newFake(t, (*fakeConn).answerLikeAServer)
			d := ofFakes(t, bad, good)
			err := d.Verify(t.Context(), &authn.Account{DN: janeDN}, password)
			if err != nil {
				t.Errorf("the password: %v", err)
			}
			_, err = ofFakes(t, bad, good).Find(t.Context(), "jane")
			if !errors.Is(err, authn.ErrNoAccount) {
				t.Errorf("the search: %v", err)
			}
			if got := d.Servers(); got[0].Failures != 1 || !got[0].PassedOver || got[1].Failures != 0 {
				t.Errorf("the numbers are %+v", got)
			}
		})
	}
}

// TestActiveDirectoryEntries has entries that OpenLDAP has not.
func TestActiveDirectoryEntries(t *testing.T) {
	t.Parallel()
	// In 100 nanoseconds since 1601.
	const (
		justOver = "134116992000000000"
		notYet   = "134116992000000001"
		never    = "9223372036854775807"
	)
	const guid = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\xff"
	with := func(more ...string) map[string][]string {
		attributes := map[string][]string{"UID": {"Jane"}, "objectGUID": {guid}}
		for i := 0; i < len(more); i += 2 {
			attributes[more[i]] = append(attributes[more[i]], more[i+1])
		}
		return attributes
	}
	for name, test := range map[string]struct {
		dn         string
		attributes map[string][]string
		uid        string
		want       string
	}{
		"GUID":             {janeDN, with(), "0102030405060708090a0b0c0d0e0fff", ""},
		"GUID of letters":  {janeDN, map[string][]string{"uid": {"Jane"}, "objectGUID": {"abcdefghijklmnop"}}, "6162636465666768696a6b6c6d6e6f70", ""},
		"enabled":          {janeDN, with("userAccountControl", "512", "nsAccountLock", "FALSE"), "0102030405060708090a0b0c0d0e0fff", ""},
		"disabled":         {janeDN, with("userAccountControl", "514"), "", `userAccountControl is "514"`},
		"disabled, odd":    {janeDN, with("useraccountcontrol", "66050"), "", `userAccountControl is "66050"`},
		"no number":        {janeDN, with("userAccountControl", "x"), "", `userAccountControl is "x"`},
		"never expires":    {janeDN, with("accountExpires", "0"), "0102030405060708090a0b0c0d0e0fff", ""},
		"never did expire": {janeDN, with("accountExpires", never), "0102030405060708090a0b0c0d0e0fff", ""},
		"expires soon":     {janeDN, with("accountExpires", notYet), "0102030405060708090a0b0c0d0e0fff", ""},
		"expires now":      {janeDN, with("accountexpires", justOver), "", "accountExpires is 2026-01-01T00:00:00Z"},
		"expired long ago": {janeDN, with("accountExpires", "1"), "", "accountExpires is 1601-01-01T00:00:00Z"},
		"expires oddly":    {janeDN, with("accountExpires", "never"), "", `accountExpires is "never"`},
		"locked, FreeIPA":  {janeDN, with("nsAccountLock", "true"), "", `nsAccountLock is "true"`},
		"two user names":   {janeDN, with("uid", "Jane2", "UID", "Jane3"), "", "must have one"},
		"empty user name":  {janeDN, map[string][]string{"uid": {""}, "objectGUID": {guid}}, "", "must have one"},
		"user name option": {janeDN, map[string][]string{"uid;lang-en": {"Jane"}, "objectGUID": {guid}}, "", `0 values of attribute "uid"`},
		"no DN":            {"", with(), "", "it is empty"},
		"broken DN":        {"jane", with(), "", "cannot be parsed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fakeConn, m message) {
				if m.operation == searchRequest {
					f.entry(m, test.dn, test.attributes)
				}
				f.answerLikeAServer(m)
			})
			account, err := ofFakes(t, f).Find(t.Context(), "jane")
			if test.want != "" {
				if !errors.Is(err, authn.ErrNoAccount) || !strings.Contains(err.Error(), test.want) || account != nil {
					t.Errorf("jane is %+v, %v, want an error with %s", account, err, test.want)
				}
				return
			}
			if err != nil || account.User.UID != test.uid || account.User.Username != "Jane" {
				t.Errorf("jane is %+v, %v", account, err)
			}
		})
	}
}

// TestSeveralOfALimitedServer has a server return one of several entries: it is no
// account, as without that limit.
func TestSeveralOfALimitedServer(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(f *fakeConn, m message) {
		if m.operation != searchRequest {
			f.answerLikeAServer(m)
			return
		}
		f.entry(m, janeDN, map[string][]string{"uid": {"jane"}, "objectGUID": {"x"}})
		f.result(m, goldap.LDAPResultSizeLimitExceeded, "")
	})
	account, err := ofFakes(t, f).Find(t.Context(), "jane")
	if !errors.Is(err, authn.ErrNoAccount) || !strings.Contains(err.Error(), "several") || account != nil {
		t.Errorf("jane is %+v, %v, want no account", account, err)
	}
}

// TestKeys names entries by what different servers have for it.
func TestKeys(t *testing.T) {
	t.Parallel()
	const (
		uuid   = "597ae2f6-16a6-1027-98f4-d28b5365dc14"
		unique = "a2b33229-6e3b11ea-8de0c78c-83e27eda"
		guid   = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\xff"
	)
	for name, test := range map[string]struct {
		dn   string
		ids  map[string][]string
		want string
	}{
		"OpenLDAP":           {janeDN, map[string][]string{"entryUUID": {uuid}}, "entryuuid:" + uuid},
		"other spelling":     {"UID=JANE", map[string][]string{"ENTRYUUID": {strings.ToUpper(uuid)}}, "entryuuid:" + uuid},
		"389":                {janeDN, map[string][]string{"nsuniqueid": {unique}}, "nsuniqueid:" + unique},
		"389, later version": {janeDN, map[string][]string{"entryUUID": {uuid}, "nsUniqueId": {unique}}, "nsuniqueid:" + unique},
		"Active Directory":   {janeDN, map[string][]string{"objectGUID": {guid}}, "objectguid:0102030405060708090a0b0c0d0e0fff"},
		"copied from there":  {janeDN, map[string][]string{"objectGUID": {guid}, "entryUUID": {uuid}}, "entryuuid:" + uuid},
		"two ids":            {janeDN, map[string][]string{"entryUUID": {uuid, unique}, "objectGUID": {guid}}, "objectguid:0102030405060708090a0b0c0d0e0fff"},
		"no id":              {"UID=Jane, OU=People,dc=example,dc=org", nil, janeDN},
		"empty id":           {janeDN, map[string][]string{"entryUUID": {""}}, janeDN},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(f *fakeConn, m message) {
				if m.operation == searchRequest {
					attributes := map[string][]string{"uid": {"jane"}}
					maps.Copy(attributes, test.ids)
					f.entry(m, test.dn, attributes)
				}
				f.answerLikeAServer(m)
			})
			account := mustFind(t, open(t, fakeConfig(f)), "jane")
			if account.Key != test.want || account.DN != test.dn {
				t.Errorf("jane is %+v, want the key %q", account, test.want)
			}
		})
	}
}

// TestLies are servers that answer as no server should. Nothing comes of it but an
// error, in time, and with little memory.
func TestLies(t *testing.T) {
	t.Parallel()
	onSearch := func(lie func(*fakeConn, message)) func(*fakeConn, message) {
		return func(f *fakeConn, m message) {
			if m.operation != searchRequest {
				f.answerLikeAServer(m)
				return
			}
			lie(f, m)
		}
	}
	// A message of 2 GiB that never ends, as an attacker would begin it.
	endless := func(f *fakeConn, _ message) {
		_, err := f.Write([]byte{0x30, 0x84, 0x7f, 0xff, 0xff, 0xff, 0x04, 0x84, 0x7f, 0xff, 0xff, 0x00})
		for chunk := make([]byte, 1<<16); err == nil; {
			_, err = f.Write(chunk)
		}
	}
	for name, test := range map[string]struct {
		lie  func(*fakeConn, message)
		want string
	}{
		"hangs up": {func(f *fakeConn, _ message) { _ = f.Close() }, "search"},
		"no LDAP": {func(f *fakeConn, _ message) {
			_, _ = f.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = f.Close()
		}, "search"},
		"another one's reply": {func(f *fakeConn, m message) { m.id += 7; f.answerLikeAServer(m); _ = f.Close() }, "search"},
		"endless":             {endless, "the response of the server is too large"},
		"referral":            {func(f *fakeConn, m message) { f.result(m, goldap.LDAPResultReferral, "") }, "a referral, which is not followed"},
		"size limit of one":   {func(f *fakeConn, m message) { f.result(m, goldap.LDAPResultSizeLimitExceeded, "") }, "only some of the entries"},
		"one entry and limit": {func(f *fakeConn, m message) {
			f.entry(m, janeDN, map[string][]string{"uid": {"jane"}, "objectGUID": {"x"}})
			f.result(m, goldap.LDAPResultTimeLimitExceeded, "")
		}, "result 3"},
		"long diagnostic": {func(f *fakeConn, m message) { f.result(m, goldap.LDAPResultOther, strings.Repeat("x\n", 10000)) }, "bytes more"},
		"success without a result": {func(f *fakeConn, m message) {
			f.send(m, ber.Encode(ber.ClassApplication, ber.TypeConstructed, 5, nil, ""))
		}, "search"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, onSearch(test.lie))
			d := ofFakes(t, f)
			account, err := d.Find(t.Context(), "jane")
			if !isUnknown(err) || account != nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 1000 {
				t.Errorf("jane is %+v, %v, want an error with %s", account, err, test.want)
			}
			if got := d.Servers()[0]; got.Open != 0 {
				t.Errorf("afterwards, the numbers are %+v", got)
			}
		})
	}
}

// TestEmptyPages does not ask forever for pages that have nothing.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(f *fakeConn, m message) {
		if m.operation != searchRequest {
			f.answerLikeAServer(m)
			return
		}
		paging := goldap.NewControlPaging(10)
		paging.SetCookie([]byte("more"))
		f.result(m, goldap.LDAPResultSuccess, "", paging)
	})
	c := fakeConfig(f)
	c.GroupSearch.Nesting = v1alpha1.NestingRecursive
	groups, err := open(t, c).Groups(t.Context(), &authn.Account{DN: janeDN, Member: janeDN})
	if !isUnknown(err) || groups != nil || !strings.Contains(err.Error(), "pages without entries") {
		t.Errorf("groups are %q, %v", groups, err)
	}
}
