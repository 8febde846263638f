package ldap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// sound is a configuration without errors.
func sound() *v1alpha1.Directory {
	c := config()
	c.Servers = []string{"ldaps://ldap.example.org"}
	return c
}

// TestCheckMistakes makes one mistake at a time. The first diagnostic is for it.
func TestCheckMistakes(t *testing.T) {
	t.Parallel()
	const chain = "(member:1.2.840.113556.1.4.1941:={})"
	for name, test := range map[string]struct {
		change func(*v1alpha1.Directory)
		field  string
		want   string
	}{
		"no server":           {func(c *v1alpha1.Directory) { c.Servers = nil }, "servers", "is missing"},
		"many servers":        {func(c *v1alpha1.Directory) { c.Servers = list("ldaps://h%d", 17) }, "servers", "more than 16"},
		"other scheme":        {func(c *v1alpha1.Directory) { c.Servers = []string{"https://ldap.example.org"} }, "servers[0]", "must be ldaps or ldap"},
		"socket":              {func(c *v1alpha1.Directory) { c.Servers = []string{"ldapi:///"} }, "servers[0]", "must be ldaps or ldap"},
		"datagrams":           {func(c *v1alpha1.Directory) { c.Servers = []string{"cldap://h"} }, "servers[0]", "must be ldaps or ldap"},
		"no scheme":           {func(c *v1alpha1.Directory) { c.Servers = []string{"ldap.example.org"} }, "servers[0]", "must be ldaps or ldap"},
		"host and port":       {func(c *v1alpha1.Directory) { c.Servers = []string{"h:636"} }, "servers[0]", "must be ldaps or ldap"},
		"the host is missing": {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://:636"} }, "servers[0]", "the host is missing"},
		"port 0":              {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h:0"} }, "servers[0]", "port"},
		"large port":          {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h:65536"} }, "servers[0]", "port"},
		"empty port":          {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h:"} }, "servers[0]", "port"},
		"named port":          {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h:ldaps"} }, "servers[0]", "not a URL"},
		"base in URL":         {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h/dc=example"} }, "servers[0]", "only scheme, host and port"},
		"query":               {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h?uid"} }, "servers[0]", "only scheme, host and port"},
		"fragment":            {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://h#"} }, "servers[0]", "only scheme, host and port"},
		"password in URL":     {func(c *v1alpha1.Directory) { c.Servers = []string{"ldaps://cn=x:secret@h"} }, "servers[0]", "only scheme, host and port"},
		"second, same":        {func(c *v1alpha1.Directory) { c.Servers = append(c.Servers, "ldaps://LDAP.example.org:636/") }, "servers[1]", "same as servers[0]"},
		"CA's path":           {func(c *v1alpha1.Directory) { c.CertificateAuthority = "/etc/ssl/ca.pem" }, "certificateAuthority", "no PEM certificate"},
		"a key": {func(c *v1alpha1.Directory) {
			c.CertificateAuthority = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
		}, "certificateAuthority", `of type "PRIVATE KEY"`},
		"no certificate": {func(c *v1alpha1.Directory) {
			c.CertificateAuthority = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n"
		}, "certificateAuthority", "certificate 1 cannot be parsed"},
		"password only":   {func(c *v1alpha1.Directory) { c.BindDN = "" }, "bindDN", "is missing"},
		"no password":     {func(c *v1alpha1.Directory) { c.BindPasswordFile = "" }, "bindPasswordFile", "is missing"},
		"bind name":       {func(c *v1alpha1.Directory) { c.BindDN = "search@example.org" }, "bindDN", "not a DN"},
		"no base":         {func(c *v1alpha1.Directory) { c.UserSearch.BaseDN = "" }, "userSearch.baseDN", "is missing"},
		"domain for base": {func(c *v1alpha1.Directory) { c.UserSearch.BaseDN = "example.org" }, "userSearch.baseDN", "not a DN"},
		"half a base":     {func(c *v1alpha1.Directory) { c.UserSearch.BaseDN = "ou=people,example" }, "userSearch.baseDN", "not a DN"},
		"odd type":        {func(c *v1alpha1.Directory) { c.UserSearch.BaseDN = "o u=people" }, "userSearch.baseDN", `"o u" is not a name`},
		"no filter":       {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "" }, "userSearch.filter", "is missing"},
		"bare filter":     {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "uid={}" }, "userSearch.filter", "not an LDAP filter"},
		"open filter":     {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid={}" }, "userSearch.filter", "not an LDAP filter"},
		"too closed":      {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid={}))" }, "userSearch.filter", "not an LDAP filter"},
		"no placeholder":  {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid=%s)" }, "userSearch.filter", "it has no {}"},
		"attribute":       {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "({}=jane)" }, "userSearch.filter", `"{}" is not a name`},
		"presence":        {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "({}=*)" }, "userSearch.filter", `"{}" is not a name`},
		"rule":            {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid:{}:=jane)" }, "userSearch.filter", `is not a name`},
		"beginning":       {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid={}*)" }, "userSearch.filter", "equality"},
		"somewhere":       {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(&(uid={})(cn=*{}*))" }, "userSearch.filter", "equality"},
		"greater":         {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid>={})" }, "userSearch.filter", "equality"},
		"alike":           {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid~={})" }, "userSearch.filter", "equality"},
		"escaped":         {func(c *v1alpha1.Directory) { c.UserSearch.Filter = `(uid=\7b\7d)` }, "userSearch.filter", "equality"},
		"negation":        {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(!(|(uid={})(cn=x)))" }, "userSearch.filter", "negation"},
		"deep": {func(c *v1alpha1.Directory) {
			c.UserSearch.Filter = strings.Repeat("(!", 40) + "(uid={})" + strings.Repeat(")", 40)
		}, "userSearch.filter", "nested deeper"},
		"very deep":         {func(c *v1alpha1.Directory) { c.UserSearch.Filter = strings.Repeat("(!", 1e6) }, "userSearch.filter", "nested deeper"},
		"no user name":      {func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "" }, "userSearch.usernameAttribute", "is missing"},
		"all attributes":    {func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "*" }, "userSearch.usernameAttribute", `"*" is not a name`},
		"user name's space": {func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "uid " }, "userSearch.usernameAttribute", `"uid " is not a name`},
		"uid":               {func(c *v1alpha1.Directory) { c.UserSearch.UIDAttribute = "+" }, "userSearch.uidAttribute", `"+" is not a name`},
		"extra's domain": {func(c *v1alpha1.Directory) {
			c.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "department", Attribute: "ou"}}
		}, "userSearch.extra[0].key", "must be a lower-case key"},
		"extra's case": {func(c *v1alpha1.Directory) {
			c.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "example.org/OU", Attribute: "ou"}}
		}, "userSearch.extra[0].key", "must be a lower-case key"},
		"extra twice": {func(c *v1alpha1.Directory) {
			c.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "e.org/a", Attribute: "ou"}, {Key: "e.org/a", Attribute: "o"}}
		}, "userSearch.extra[1].key", "extra[0] too"},
		"extra's attribute":        {func(c *v1alpha1.Directory) { c.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "e.org/a"}} }, "userSearch.extra[0].attribute", "is missing"},
		"groups' base":             {func(c *v1alpha1.Directory) { c.GroupSearch.BaseDN = "" }, "groupSearch.baseDN", "is missing"},
		"groups' filter":           {func(c *v1alpha1.Directory) { c.GroupSearch.Filter = "(objectClass=group)" }, "groupSearch.filter", "it has no {}"},
		"dn":                       {func(c *v1alpha1.Directory) { c.GroupSearch.MemberValue = "DN" }, "groupSearch.memberValue", "not an attribute"},
		"dn as the name of groups": {func(c *v1alpha1.Directory) { c.GroupSearch.NameAttribute = "DN" }, "groupSearch.nameAttribute", `"DN" is not an attribute`},
		"dn as the user name":      {func(c *v1alpha1.Directory) { c.UserSearch.UsernameAttribute = "Dn" }, "userSearch.usernameAttribute", `"Dn" is not an attribute`},
		"dn as the uid":            {func(c *v1alpha1.Directory) { c.UserSearch.UIDAttribute = "dn" }, "userSearch.uidAttribute", `"dn" is not an attribute`},
		"dn in a language":         {func(c *v1alpha1.Directory) { c.UserSearch.UIDAttribute = "dn;lang-en" }, "userSearch.uidAttribute", "is not an attribute"},
		"dn as extra": {func(c *v1alpha1.Directory) {
			c.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "e.org/a", Attribute: "dn"}}
		}, "userSearch.extra[0].attribute", "is not an attribute"},
		"dn in a filter":           {func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(|(uid={})(dn={}))" }, "userSearch.filter", `"dn" is not an attribute`},
		"dn of groups in a filter": {func(c *v1alpha1.Directory) { c.GroupSearch.Filter = "(&(dn=*)(member={}))" }, "groupSearch.filter", `"dn" is not an attribute`},
		"member":                   {func(c *v1alpha1.Directory) { c.GroupSearch.MemberValue = "a b" }, "groupSearch.memberValue", "not a name"},
		"groups' name":             {func(c *v1alpha1.Directory) { c.GroupSearch.NameAttribute = "cn,ou" }, "groupSearch.nameAttribute", "not a name"},
		"nesting":                  {func(c *v1alpha1.Directory) { c.GroupSearch.Nesting = "recursive" }, "groupSearch.nesting", "must be one of None, Recursive, ActiveDirectory"},
		"not in chain":             {func(c *v1alpha1.Directory) { c.GroupSearch.Nesting = v1alpha1.NestingActiveDirectory }, "groupSearch.filter", "in-chain rule"},
		"chain's member": {func(c *v1alpha1.Directory) {
			c.GroupSearch.Nesting, c.GroupSearch.Filter, c.GroupSearch.MemberValue = v1alpha1.NestingActiveDirectory, chain, "uid"
		}, "groupSearch.memberValue", "in-chain rule"},
		"negative groups": {func(c *v1alpha1.Directory) { c.GroupSearch.MaxGroups = -1 }, "groupSearch.maxGroups", "-1 must be from 1 to 10000"},
		"all groups":      {func(c *v1alpha1.Directory) { c.GroupSearch.MaxGroups = 10001 }, "groupSearch.maxGroups", "10001"},
		"no time":         {func(c *v1alpha1.Directory) { within(c, 0) }, "timeout", `"0s" is not between`},
		"all the time":    {func(c *v1alpha1.Directory) { within(c, time.Hour) }, "timeout", `"1h0m0s" is not between`},
		"connections":     {func(c *v1alpha1.Directory) { c.MaxConnections = -1 }, "maxConnections", "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sound()
			test.change(c)
			found := ldapconfig.Check(c)
			if len(found) != 1 || found[0].Field != test.field || !strings.Contains(found[0].Message, test.want) || found[0].Severity != diagnostic.Error {
				t.Errorf("found is %+v, want %s at %s", found, test.want, test.field)
			}
			if text := found.Error(); strings.Contains(text, "secret") || strings.Contains(text, "c2VjcmV0") || len(text) > 1000 {
				t.Errorf("the finding is long or shows a secret: %s", text)
			}
			_, err := ldap.New(ldap.Options{Config: c, BindPassword: "x"})
			if err == nil {
				t.Error("a Directory is made of it")
			}
		})
	}
}

// TestCheckSound accepts what is right.
func TestCheckSound(t *testing.T) {
	t.Parallel()
	authority, err := cluster.NewAuthority("directory")
	if err != nil {
		t.Fatal(err)
	}
	pem := string(authority.CertPEM())
	for name, change := range map[string]func(*v1alpha1.Directory){
		"as it is":  func(*v1alpha1.Directory) {},
		"anonymous": func(c *v1alpha1.Directory) { c.BindDN, c.BindPasswordFile = "", "" },
		"no groups": func(c *v1alpha1.Directory) { c.GroupSearch = nil },
		"servers": func(c *v1alpha1.Directory) {
			c.Servers = []string{"ldap://H:1", "ldaps://[2001:db8::1]:65535", "ldaps://192.0.2.1/", "ldap://h"}
		},
		"both ports": func(c *v1alpha1.Directory) { c.Servers = []string{"ldap://h", "ldaps://h"} },
		"CAs": func(c *v1alpha1.Directory) {
			c.CertificateAuthority = "# ours\n" + pem + "\n# and again\n" + pem + "\n"
		},
		"several": func(c *v1alpha1.Directory) {
			c.UserSearch.Filter = "(&(objectClass=person)(|(uid={})(mail={}))(!(employeeType=bot*)))"
		},
		"part": func(c *v1alpha1.Directory) {
			c.UserSearch.Filter, c.UserSearch.UsernameAttribute = "(mail={}@example.org)", "Mail"
		},
		"rule": func(c *v1alpha1.Directory) { c.UserSearch.Filter = "(uid:caseExactMatch:={})" },
		"OID": func(c *v1alpha1.Directory) {
			c.UserSearch.UsernameAttribute = "0.9.2342.19200300.100.1.1"
			c.UserSearch.Filter = "(0.9.2342.19200300.100.1.1={})"
		},
		"option": func(c *v1alpha1.Directory) {
			c.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "example.org/name", Attribute: "cn;lang-en"}}
		},
		"Active Directory": func(c *v1alpha1.Directory) {
			c.UserSearch.Filter = "(&(objectCategory=person)(sAMAccountName={})(!(userAccountControl:1.2.840.113556.1.4.803:=2)))"
			c.UserSearch.UsernameAttribute = "samAccountName"
			c.GroupSearch.Filter = "(&(objectClass=group)(member:1.2.840.113556.1.4.1941:={}))"
			c.GroupSearch.Nesting, c.GroupSearch.MemberValue = v1alpha1.NestingActiveDirectory, "distinguishedName"
		},
		"limits": func(c *v1alpha1.Directory) {
			c.MaxConnections, c.GroupSearch.MaxGroups = 1, 10000
			within(c, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sound()
			change(c)
			if found := ldapconfig.Check(c); len(found) > 0 {
				t.Errorf("found is %v", found)
			}
		})
	}
}

// TestCheckWarnings has a directory used that may not be what was meant.
func TestCheckWarnings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.UserSearch){
		"another one is compared": func(s *v1alpha1.UserSearch) { s.Filter = "(&(objectClass=person)(mail={}))" },
		"compared with a text":    func(s *v1alpha1.UserSearch) { s.Filter = "(&(uid=jane)(mail={}))" },
		"only there":              func(s *v1alpha1.UserSearch) { s.Filter = "(&(uid=*)(mail={}))" },
		"part of the name":        func(s *v1alpha1.UserSearch) { s.UsernameAttribute = "ui" },
		"not an attribute":        func(s *v1alpha1.UserSearch) { s.Filter = "(:caseExactMatch:={})" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sound()
			change(&c.UserSearch)
			found := ldapconfig.Check(c)
			if len(found) != 1 || found[0].Severity != diagnostic.Warning || found[0].Field != "userSearch.usernameAttribute" ||
				!strings.Contains(found[0].Message, `"`+c.UserSearch.UsernameAttribute+`" is not compared with {}`) {
				t.Errorf("found is %+v", found)
			}
			open(t, c)
		})
	}
}

// TestCheckAll reports all mistakes at once, in the order of the fields.
func TestCheckAll(t *testing.T) {
	t.Parallel()
	c := &v1alpha1.Directory{
		Servers: []string{"x", "y"}, CertificateAuthority: "z", BindPasswordFile: "p", Timeout: &metav1.Duration{Duration: -1},
		MaxConnections: -1, GroupSearch: &v1alpha1.GroupSearch{MaxGroups: -1, Nesting: "x"},
	}
	var fields []string
	for range 2 {
		fields = nil
		for _, f := range ldapconfig.Check(c) {
			fields = append(fields, f.Field)
		}
	}
	want := "[servers[0] servers[1] certificateAuthority bindDN userSearch.baseDN userSearch.filter userSearch.usernameAttribute " +
		"groupSearch.baseDN groupSearch.filter groupSearch.nesting groupSearch.maxGroups timeout maxConnections]"
	if got := fmt.Sprint(fields); got != want {
		t.Errorf("findings are for %s, want %s", got, want)
	}
}

// TestBindPassword never leads to a bind that proves nothing.
func TestBindPassword(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]ldap.Options{
		"no password": {Config: sound()},
		"NUL":         {Config: sound(), BindPassword: "\x00secret"},
		"not a DN": {Config: func() *v1alpha1.Directory {
			c := sound()
			c.BindDN, c.BindPasswordFile = "", ""
			return c
		}(), BindPassword: "secret"},
	} {
		_, err := ldap.New(options)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSame tells a directory that can be kept from one that changed.
func TestSame(t *testing.T) {
	t.Parallel()
	d := open(t, sound())
	if !d.Same(ldap.Options{Config: sound(), BindPassword: searchPwd}) {
		t.Error("the same configuration is another one")
	}
	if d.Same(ldap.Options{Config: sound(), BindPassword: "new"}) {
		t.Error("a new password changes nothing")
	}
	changed := sound()
	changed.GroupSearch.MaxGroups = 7
	if d.Same(ldap.Options{Config: changed, BindPassword: searchPwd}) {
		t.Error("a new limit changes nothing")
	}
}
