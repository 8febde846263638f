package ldap_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	d := open(t, config(s))
	jane, nopass := mustFind(t, d, "jane"), mustFind(t, d, "nopass")
	err := d.Verify(t.Context(), jane, password)
	if err != nil {
		t.Errorf("the right password: %v", err)
	}
	for name, test := range map[string]struct {
		account *authn.Account
		typed   string
	}{
		"another password":      {jane, "not hers"},
		"another's password":    {jane, "another one"},
		"other case":            {jane, strings.ToUpper(password)},
		"a part":                {jane, password[:7]},
		"space behind":          {jane, password + " "},
		"entry without one":     {nopass, "anything"},
		"nobody":                {nil, password},
		"entry that went away":  {&authn.Account{DN: "uid=gone," + peopleDN}, password},
		"long":                  {jane, strings.Repeat(password, 1000)},
		"not UTF-8":             {jane, "\xff\xfe"},
		"search's own password": {jane, searchPwd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := d.Verify(t.Context(), test.account, test.typed)
			if !errors.Is(err, authn.ErrWrongPassword) {
				t.Errorf("%v, want a wrong password", err)
			}
			if strings.Contains(err.Error(), test.typed) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

// TestPasswordsNotSent keeps passwords from the server that it would take for no
// password, which is no proof of anything: CVE-2017-14623.
func TestPasswordsNotSent(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	d := open(t, config(s))
	jane := mustFind(t, d, "jane")
	before := count(s, "ACCEPT")
	for _, typed := range []string{"", "\x00", "\x00\x00\x00", "\x00" + password, password + "\x00"} {
		for _, account := range []*authn.Account{jane, nil} {
			err := d.Verify(t.Context(), account, typed)
			if !errors.Is(err, authn.ErrWrongPassword) {
				t.Errorf("%q: %v, want a wrong password", typed, err)
			}
		}
	}
	// An empty name would be an anonymous bind, whatever the password.
	err := d.Verify(t.Context(), &authn.Account{}, password)
	if !isUnknown(err) {
		t.Errorf("an account without a DN: %v", err)
	}
	if got := binds(s); !slices.Equal(got, []string{searchDN}) {
		t.Errorf("binds as %q", got)
	}
	if after := count(s, "ACCEPT"); after > before+1 {
		t.Errorf("%d connections for passwords that are not sent", after-before)
	}
}

// TestNobody has a bind for an account that is not there, with the same number of
// messages as for one that is.
func TestNobody(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	d := open(t, config(s))
	for range 2 {
		err := d.Verify(t.Context(), nil, "wrong")
		if !errors.Is(err, authn.ErrWrongPassword) {
			t.Errorf("nobody's password: %v", err)
		}
	}
	got := binds(s)
	if len(got) != 2 || got[0] != got[1] || !strings.HasSuffix(got[0], ","+peopleDN) || !strings.HasPrefix(got[0], "cn=gatehouse-") {
		t.Errorf("binds as %q", got)
	}
	other := open(t, config(s))
	_ = other.Verify(t.Context(), nil, "wrong")
	if last := binds(s); last[2] == got[0] {
		t.Errorf("two directories have the same nobody, who could be made: %s", last[2])
	}
}

// TestIdentities searches as the account that searches, whoever logs in in between,
// and binds as nobody else on a connection that searches.
func TestIdentities(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree + group("dev", janeDN)})
	d := open(t, config(s))
	for range 3 {
		jane := mustFind(t, d, "jane")
		err := d.Verify(t.Context(), jane, password)
		if err != nil {
			t.Fatal(err)
		}
		groups, err := d.Groups(t.Context(), jane)
		if err != nil || !slices.Equal(groups, []string{"dev"}) {
			t.Fatalf("groups are %q, %v", groups, err)
		}
	}
	if want := slices.Repeat([]string{searchDN, janeDN, searchDN}, 3); !slices.Equal(binds(s), want) {
		t.Errorf("binds as %q, want %q", binds(s), want)
	}
	if got := count(s, `op=[1-9]\d* BIND dn=".*" method`); got != 0 {
		t.Errorf("%d binds on connections that had one:\n%s", got, s.Log())
	}
}

// TestPasswordPolicy has a server with policies: what it refuses is a no.
func TestPasswordPolicy(t *testing.T) {
	t.Parallel()
	const policyDN = "cn=policy,dc=example,dc=org"
	s := slapd.New(t, slapd.Options{PasswordPolicy: policyDN, LDIF: tree + `
dn: ` + policyDN + `
objectClass: organizationalRole
objectClass: pwdPolicy
cn: policy
pwdAttribute: userPassword
pwdMustChange: TRUE
pwdLockout: TRUE
pwdMaxFailure: 3
`})
	d := open(t, config(s))
	jane := mustFind(t, d, "jane")
	err := d.Verify(t.Context(), jane, password)
	if err != nil {
		t.Fatal(err)
	}

	modify := goldap.NewModifyRequest(janeDN, nil)
	modify.Replace("pwdReset", []string{"TRUE"})
	err = s.Admin().Modify(modify)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Verify(t.Context(), jane, password)
	if !errors.Is(err, authn.ErrWrongPassword) || !strings.Contains(err.Error(), "must be changed") {
		t.Errorf("a password that must be changed first: %v", err)
	}

	john := mustFind(t, d, "john")
	for range 3 {
		err = d.Verify(t.Context(), john, "wrong")
		if !errors.Is(err, authn.ErrWrongPassword) {
			t.Errorf("a wrong password: %v", err)
		}
	}
	err = d.Verify(t.Context(), john, "another one")
	if !errors.Is(err, authn.ErrWrongPassword) {
		t.Errorf("a locked account: %v", err)
	}
	mustFind(t, d, "john") // A lock by wrong passwords ends no session.
}

// lock sets the time at which jane's account was locked.
func lock(t *testing.T, s *slapd.Server, when string) {
	t.Helper()
	modify := goldap.NewModifyRequest(janeDN, nil)
	modify.Replace("pwdAccountLockedTime", []string{when})
	err := s.Admin().Modify(modify)
	if err != nil {
		t.Fatal(err)
	}
}
