package ldap_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

const (
	peopleDN  = "ou=people,dc=example,dc=org"
	groupsDN  = "ou=groups,dc=example,dc=org"
	janeDN    = "uid=jane," + peopleDN
	janeKey   = "entryuuid:5f6ad8ce-51b4-4b33-8f2a-7b3fbf3a1d10"
	password  = "correct horse, battery staple"
	searchDN  = "cn=search,dc=example,dc=org"
	searchPwd = "only for searches"
)

// tree is a directory with some people. Dave's and the other Dave's cn are one.
const tree = `dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: cn=search,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: search
userPassword: only for searches

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: uid=jane,ou=people,dc=example,dc=org
entryUUID: 5f6ad8ce-51b4-4b33-8f2a-7b3fbf3a1d10
objectClass: inetOrgPerson
uid: jane
cn: Jane Doe
sn: Doe
employeeNumber: 4711
departmentNumber: red
departmentNumber: blue
userPassword: correct horse, battery staple

dn: uid=john,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: john
cn: John (Johnny) * \ Roe
sn: Roe
userPassword: another one

dn: uid=dave,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: dave
cn: Dave
sn: One
userPassword: dave1

dn: uid=dave2,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: dave2
uid: dave-two
cn: dave
sn: Two
userPassword: dave2

dn: uid=nopass,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: nopass
cn: No Password
sn: Password
`

// group is an entry of a group. The name is as it is in a DN.
func group(name string, members ...string) string {
	plain := strings.NewReplacer(`\C3\A4`, "ä", `\\`, `\`, `\`, "").Replace(name)
	lines := []string{"", "dn: cn=" + name + "," + groupsDN, "objectClass: groupOfNames", "cn: " + plain}
	for _, member := range members {
		lines = append(lines, "member: "+member)
	}
	return strings.Join(lines, "\n") + "\n"
}

// config is what Gatehouse is told about servers that have the tree.
func config(servers ...*slapd.Server) *v1alpha1.Directory {
	made := &v1alpha1.Directory{
		Name: "staff", BindDN: searchDN, BindPasswordFile: "password", Timeout: &metav1.Duration{Duration: time.Minute},
		UserSearch: v1alpha1.UserSearch{
			BaseDN: peopleDN, Filter: "(&(objectClass=inetOrgPerson)(uid={}))", UsernameAttribute: "uid",
		},
		GroupSearch: &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: "(&(objectClass=groupOfNames)(member={}))"},
	}
	for _, s := range servers {
		made.Servers = append(made.Servers, s.TLS)
		made.CertificateAuthority += s.CertificateAuthority
	}
	return made
}

// open returns a Directory.
func open(t *testing.T, config *v1alpha1.Directory) *ldap.Directory {
	t.Helper()
	return openAt(t, config, nil)
}

// openAt is open with a clock.
func openAt(t *testing.T, config *v1alpha1.Directory, now func() time.Time) *ldap.Directory {
	t.Helper()
	options := ldap.Options{Config: config, Now: now}
	if config.BindDN != "" {
		options.BindPassword = searchPwd
	}
	d, err := ldap.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mustFind returns an account that is there.
func mustFind(t *testing.T, d *ldap.Directory, name string) *authn.Account {
	t.Helper()
	account, err := d.Find(t.Context(), name)
	if err != nil {
		t.Fatalf("find %q: %v", name, err)
	}
	return account
}

// eventuallyKnown asks until the directory can tell, whose timeout may be too short for a busy machine.
func eventuallyKnown(t *testing.T, d *ldap.Directory, name string) (*authn.Account, error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		account, err := d.Find(t.Context(), name)
		if !isUnknown(err) || time.Now().After(end) {
			return account, err
		}
	}
}

// isUnknown reports whether an error is neither a yes nor a no.
func isUnknown(err error) bool {
	return err != nil && !errors.Is(err, authn.ErrNoAccount) && !errors.Is(err, authn.ErrWrongPassword)
}

// binds returns the DNs as which binds were tried, in their order.
func binds(s *slapd.Server) []string {
	var dns []string
	for _, found := range regexp.MustCompile(`BIND dn="(.*)" method=128`).FindAllStringSubmatch(s.Log(), -1) {
		dns = append(dns, found[1])
	}
	return dns
}

func count(s *slapd.Server, pattern string) int {
	return len(regexp.MustCompile(pattern).FindAllString(s.Log(), -1))
}

func list(format string, n int) []string {
	made := make([]string, n)
	for i := range made {
		made[i] = fmt.Sprintf(format, i)
	}
	return made
}
