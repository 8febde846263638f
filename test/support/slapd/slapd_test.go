package slapd_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
)

const people = `dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: uid=jane,dc=example,dc=org
objectClass: inetOrgPerson
uid: jane
cn: Jane
sn: Doe
userPassword: correct horse
`

func trust(t *testing.T, s *slapd.Server) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(s.CertificateAuthority)) {
		t.Fatal("no certificate in the authority's PEM")
	}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

func TestServer(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: people})
	encrypted, err := ldap.DialURL(s.TLS, ldap.DialWithTLSConfig(trust(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	defer encrypted.Close() //nolint:errcheck // the test is over
	err = encrypted.Bind("uid=jane,dc=example,dc=org", "correct horse")
	if err != nil {
		t.Error(err)
	}
	err = encrypted.Bind("uid=jane,dc=example,dc=org", "wrong")
	if !ldap.IsErrorWithCode(err, ldap.LDAPResultInvalidCredentials) {
		t.Errorf("a wrong password: %v", err)
	}
	started, err := ldap.DialURL(s.Plain)
	if err != nil {
		t.Fatal(err)
	}
	defer started.Close() //nolint:errcheck // the test is over
	err = started.StartTLS(trust(t, s))
	if err != nil {
		t.Error(err)
	}
	if want := `BIND dn="uid=jane,dc=example,dc=org"`; !strings.Contains(s.Log(), want) {
		t.Errorf("the log has no %s", want)
	}
}

// TestOutages stops, starts and suspends a server, which keeps its ports and its
// entries.
func TestOutages(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: people})
	modify := ldap.NewModifyRequest("uid=jane,dc=example,dc=org", nil)
	modify.Replace("sn", []string{"Roe"})
	err := s.Admin().Modify(modify)
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Stop()
	_, err = ldap.DialURL(s.Plain)
	if err == nil {
		t.Error("a stopped server takes connections")
	}
	s.Start()
	c := s.Admin()
	if got := surname(t, c); got != "Roe" {
		t.Errorf("after a restart, sn is %q", got)
	}
	s.Pause()
	c.SetTimeout(100 * time.Millisecond)
	err = c.Bind(s.AdminDN, s.AdminPassword)
	if err == nil {
		t.Error("a suspended server answers")
	}
	s.Resume()
	if got := surname(t, s.Admin()); got != "Roe" {
		t.Errorf("after a pause, sn is %q", got)
	}
	s.Pause() // A suspended server is stopped with the test all the same.
}

func surname(t *testing.T, c *ldap.Conn) string {
	t.Helper()
	found, err := c.Search(&ldap.SearchRequest{
		BaseDN: "uid=jane,dc=example,dc=org", Scope: ldap.ScopeBaseObject, Filter: "(objectClass=*)", Attributes: []string{"sn"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return found.Entries[0].GetAttributeValue("sn")
}

func TestNoAnonymous(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: people, NoAnonymous: true})
	c, err := ldap.DialURL(s.Plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	_, err = c.Search(&ldap.SearchRequest{BaseDN: s.Suffix, Scope: ldap.ScopeWholeSubtree, Filter: "(objectClass=*)"})
	if !ldap.IsErrorAnyOf(err, ldap.LDAPResultUnwillingToPerform, ldap.LDAPResultStrongAuthRequired) {
		t.Errorf("an anonymous search: %v", err)
	}
	if got := surname(t, s.Admin()); got != "Doe" {
		t.Errorf("sn is %q", got)
	}
}
