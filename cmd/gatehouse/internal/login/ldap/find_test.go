package ldap_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	goldap "github.com/go-ldap/ldap/v3"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// TestNames tries what people and attackers type for a name. Whatever it is, one
// account has one user name and one key.
func TestNames(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	byUID := open(t, config(s))
	byName := config(s)
	byName.UserSearch.Filter = "(|(cn={})(uid={}))"
	byEither := open(t, byName)
	jane := &authn.Account{Key: janeKey, DN: janeDN, Member: janeDN, User: authenticationv1.UserInfo{Username: "jane"}}

	for name, typed := range map[string]string{
		"the name": "jane", "upper case": "JANE", "mixed case": "jAnE", "wide letters": "ｊａｎｅ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account, err := byUID.Find(t.Context(), typed)
			if err != nil || !reflect.DeepEqual(account, jane) {
				t.Errorf("%q is %+v, %v", typed, account, err)
			}
		})
	}
	for name, typed := range map[string]string{
		"two spaces": "Jane  Doe", "case and spaces": "jane    DOE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account, err := byEither.Find(t.Context(), typed)
			if err != nil || !reflect.DeepEqual(account, jane) {
				t.Errorf("%q is %+v, %v", typed, account, err)
			}
		})
	}
	t.Run("a name with special characters", func(t *testing.T) {
		t.Parallel()
		account, err := byEither.Find(t.Context(), `John (Johnny) * \ Roe`)
		if err != nil || account.User.Username != "john" {
			t.Errorf("John is %+v, %v", account, err)
		}
	})

	for name, typed := range map[string]string{
		"nothing": "", "unknown": "nobody", "star": "*", "prefix and star": "j*", "star in between": "j*e",
		"closes the value": "*)(uid=jane", "closes the filter": "jane)(objectClass=*", "or": "jane)(|(uid=*", "ends the filter": "jane))(|(uid=*",
		"everything": "*)(objectClass=*))(|(objectClass=*", "negation": "x)(!(uid=x", "escaped star": `\2a`, "escaped letter": `jan\65`,
		"NUL behind": "jane\x00", "NUL within": "ja\x00ne", "NUL and more": "jane\x00)(uid=*", "line feed": "jane\n", "escape": "\x1b[1mjane",
		"space before": " jane", "space behind": "jane ", "no-break space": "\u00a0jane", "tab": "jane\t", "spaces only": "   ",
		"not UTF-8": "jane\xff", "overlong": "j\xc1\xa1ne", "a DN": janeDN, "placeholder": "{}", "comma": "jane,ou=people",
		"too long": "jane" + strings.Repeat("x", 300), "spaces within": "ja ne", "soft hyphen": "ja\u00adne",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, d := range []authn.Directory{byUID, byEither} {
				account, err := d.Find(t.Context(), typed)
				if !errors.Is(err, authn.ErrNoAccount) || account != nil {
					t.Errorf("%q is %+v, %v, want no account", typed, account, err)
				}
			}
		})
	}
}

// TestNamesNotAsked keeps what no account can have from the server.
func TestNamesNotAsked(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	d := open(t, config(s))
	for _, typed := range []string{"", " jane", "jane ", "jane\x00", "ja\x00ne", "jane\xff", "jane\n", strings.Repeat("j", 257)} {
		_, err := d.Find(t.Context(), typed)
		if !errors.Is(err, authn.ErrNoAccount) {
			t.Errorf("%q: %v", typed, err)
		}
	}
	if log := s.Log(); strings.Contains(log, "ACCEPT") {
		t.Errorf("the server was asked:\n%s", log)
	}
}

func TestSeveralAccounts(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	for name, filter := range map[string]string{"two": "(cn={})", "all, over the size limit": "(|(cn={})(objectClass=inetOrgPerson))"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			c.UserSearch.Filter = filter
			account, err := open(t, c).Find(t.Context(), "dave")
			if !errors.Is(err, authn.ErrNoAccount) || account != nil || !strings.Contains(err.Error(), "several") {
				t.Errorf("dave is %+v, %v", account, err)
			}
			if strings.Contains(err.Error(), `"dave"`) {
				t.Errorf("the error shows what was typed: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		if got := count(s, `SEARCH RESULT .* nentries=[3-9]`); got > 0 {
			t.Errorf("%d searches return more entries than tell that there are several", got)
		}
	})
}

// TestAttributes makes users of entries.
func TestAttributes(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	full := v1alpha1.UserSearch{
		BaseDN: peopleDN, Filter: "(uid={})", UsernameAttribute: "CN", UIDAttribute: "employeenumber",
		Extra: []v1alpha1.ExtraAttribute{
			{Key: "example.org/department", Attribute: "departmentNumber"}, {Key: "example.org/phone", Attribute: "telephoneNumber"},
		},
	}
	c := config(s)
	c.UserSearch = full
	c.GroupSearch.MemberValue = "uid"
	account := mustFind(t, open(t, c), "jane")
	want := &authn.Account{Key: janeKey, DN: janeDN, Member: "jane", User: authenticationv1.UserInfo{
		Username: "Jane Doe", UID: "4711", Extra: map[string]authenticationv1.ExtraValue{"example.org/department": {"blue", "red"}},
	}}
	if !reflect.DeepEqual(account, want) {
		t.Errorf("jane is %+v, want %+v", account, want)
	}

	// These entries are no accounts. An error that is not a no would tell which names
	// there are.
	for name, test := range map[string]struct {
		who    string
		change func(*v1alpha1.Directory)
		want   string
	}{
		"no user name":          {"jane", func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "mail" }, `0 values of attribute "mail"`},
		"two user names":        {"jane", func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "departmentNumber" }, `2 values of attribute "departmentNumber"`},
		"no uid":                {"john", func(c *v1alpha1.Directory) { c.UserSearch.UIDAttribute = "employeeNumber" }, `0 values of attribute "employeeNumber"`},
		"two values of members": {"dave2", func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "sn"; c.GroupSearch.MemberValue = "uid" }, `2 values of attribute "uid"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			test.change(c)
			account, err := open(t, c).Find(t.Context(), test.who)
			if !errors.Is(err, authn.ErrNoAccount) || account != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the account is %+v, %v, want no account because of %s", account, err, test.want)
			}
		})
	}
}

// TestKey names an entry by what stays: not by its name, and not by where it is.
func TestKey(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	c := config(s)
	c.UserSearch.Filter = "(|(cn={})(uid={}))"
	d := open(t, c)
	if key := mustFind(t, d, "Jane Doe").Key; key != janeKey {
		t.Errorf("the key is %q, want %q", key, janeKey)
	}
	for _, name := range []string{"nsUniqueId", "entryUUID", "objectGUID"} {
		if count(s, `SRCH attr=(.* )?`+name+`\b`) == 0 {
			t.Errorf("%s is not asked for, and no server shows it unasked", name)
		}
	}

	admin := s.Admin()
	err := admin.ModifyDN(goldap.NewModifyDNRequest(janeDN, "uid=roe", true, ""))
	if err != nil {
		t.Fatal(err)
	}
	renamed := mustFind(t, d, "roe")
	if renamed.Key != janeKey || renamed.DN == janeDN {
		t.Errorf("after a rename, jane is %+v, want the key %q", renamed, janeKey)
	}

	add := goldap.NewAddRequest(janeDN, nil)
	add.Attribute("objectClass", []string{"inetOrgPerson"})
	add.Attribute("cn", []string{"Another Jane"})
	add.Attribute("sn", []string{"Another"})
	err = admin.Add(add)
	if err != nil {
		t.Fatal(err)
	}
	another := mustFind(t, d, "jane")
	if another.Key == janeKey || another.Key == "" || another.DN != janeDN {
		t.Errorf("a new entry of the same DN is %+v", another)
	}
}

// TestSearchMistakes are mistakes of the operator. None of them is a no.
func TestSearchMistakes(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree, NoAnonymous: true})
	for name, test := range map[string]struct {
		change func(*v1alpha1.Directory)
		want   string
	}{
		"base":      {func(c *v1alpha1.Directory) { c.UserSearch.BaseDN = "ou=persons,dc=example,dc=org" }, "see baseDN"},
		"suffix":    {func(c *v1alpha1.Directory) { c.UserSearch.BaseDN = "dc=example,dc=com" }, "see baseDN"},
		"password":  {func(c *v1alpha1.Directory) { c.BindDN = janeDN }, `bind as "` + janeDN + `"`},
		"anonymous": {func(c *v1alpha1.Directory) { c.BindDN, c.BindPasswordFile = "", "" }, "Unwilling To Perform"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			test.change(c)
			account, err := open(t, c).Find(t.Context(), "jane")
			if !isUnknown(err) || account != nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), s.TLS) {
				t.Errorf("jane is %+v, %v, want an error with %s", account, err, test.want)
			}
			if strings.Contains(err.Error(), searchPwd) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

// TestDisabled does not find an account that an administrator has locked for good,
// which a session that is renewed without a password would go on with.
func TestDisabled(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree, PasswordPolicy: "cn=policy,dc=example,dc=org"})
	d := open(t, config(s))
	mustFind(t, d, "jane")
	lock(t, s, "20200101000000Z")
	mustFind(t, d, "jane")
	lock(t, s, "000001010000Z")
	account, err := d.Find(t.Context(), "jane")
	if !errors.Is(err, authn.ErrNoAccount) || account != nil || !strings.Contains(err.Error(), "pwdAccountLockedTime") {
		t.Errorf("jane is %+v, %v", account, err)
	}
}
