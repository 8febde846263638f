package ldapconfig

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Check returns what is wrong with the configuration of a directory, in the order
// of its fields, and warnings of what may be. Field paths are relative to the
// directory: "servers[0]". It reads no file and asks nobody. What is left to others
// is what it shares with other sources of identities: the name and the prefixes.
func Check(config *v1alpha1.Directory) diagnostic.List {
	c := &checker{}
	c.servers(config.Servers)
	c.authority(config.CertificateAuthority)
	c.bind(config)
	c.userSearch(&config.UserSearch)
	if config.GroupSearch != nil {
		c.groupSearch(config.GroupSearch)
	}
	if timeout := Timeout(config); timeout < leastTimeout || timeout > maxTimeout {
		c.add("timeout", fmt.Sprintf("%q is not between %s and %s", timeout, leastTimeout, maxTimeout), "")
	}
	c.limit("maxConnections", config.MaxConnections, maxConnections)
	return c.list
}

type checker struct{ list diagnostic.List }

func (c *checker) add(field, message, hint string) {
	c.list = append(c.list, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: field, Message: message, Hint: hint})
}

func (c *checker) servers(servers []string) {
	const form = "write ldaps://HOST[:PORT], or ldap://HOST[:PORT] for StartTLS"
	if len(servers) == 0 {
		c.add("servers", "is missing", form)
	}
	if len(servers) > maxServers {
		c.add("servers", fmt.Sprintf("there are %d, more than %d", len(servers), maxServers), "")
		return
	}
	seen := map[string]int{}
	for i, text := range servers {
		field := fmt.Sprintf("servers[%d]", i)
		parsed, err := ParseServer(text)
		if err != nil {
			c.add(field, fmt.Sprintf("%s is not the URL of an LDAP server: %v", shownURL(text), err), form)
			continue
		}
		if before, ok := seen[parsed.Address]; ok {
			c.add(field, fmt.Sprintf("%s is the same as servers[%d]", Quote(text), before), "remove one")
			continue
		}
		seen[parsed.Address] = i
	}
}

// shownURL leaves out what may be a password.
func shownURL(text string) string {
	if strings.Contains(text, "@") {
		return "the URL (not shown, it may contain a password)"
	}
	return Quote(text)
}

// Server is the place of an LDAP server, and how to connect to it.
type Server struct {
	// URL is the text of the configuration, Host the name for the certificate, and Address the host and port to connect to.
	URL, Host, Address string
	StartTLS           bool
}

var (
	errScheme     = errors.New("the scheme must be ldaps or ldap")
	errHost       = errors.New("the host is missing")
	errPort       = errors.New("the port must be from 1 to 65535")
	errMoreThanIt = errors.New("only scheme, host and port are allowed")
	errNotURL     = errors.New("not a URL")
)

// ParseServer parses the URL of an LDAP server. The error does not quote the URL, which may contain a password.
func ParseServer(text string) (Server, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Server{}, errNotURL
	}
	// Their ports are registered with IANA.
	port := "636"
	switch parsed.Scheme {
	case "ldaps":
	case "ldap":
		port = "389"
	default:
		return Server{}, errScheme
	}
	if parsed.Opaque != "" || parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || strings.ContainsAny(text, "?#") {
		return Server{}, errMoreThanIt
	}
	host := strings.ToLower(parsed.Hostname())
	if host == "" || strings.ContainsAny(host, " \t\r\n\x00%") {
		return Server{}, errHost
	}
	if strings.HasSuffix(parsed.Host, ":") {
		return Server{}, errPort
	}
	if given := parsed.Port(); given != "" {
		number, err := strconv.ParseUint(given, 10, 16)
		if err != nil || number == 0 {
			return Server{}, errPort
		}
		port = strconv.FormatUint(number, 10)
	}
	return Server{URL: text, Host: host, Address: joinHostPort(host, port), StartTLS: parsed.Scheme == "ldap"}, nil
}

// joinHostPort is net.JoinHostPort.
func joinHostPort(host, port string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]:" + port
	}
	return host + ":" + port
}

func (c *checker) authority(text string) {
	if text == "" {
		return
	}
	if _, err := pemcert.Parse([]byte(text)); err != nil {
		c.add("certificateAuthority", err.Error(), "this field contains the CA certificates in PEM, not the path of a file")
	}
}

func (c *checker) bind(config *v1alpha1.Directory) {
	switch {
	case config.BindDN == "" && config.BindPasswordFile == "":
	case config.BindDN == "":
		c.add("bindDN", "is missing, but bindPasswordFile is set", "name the account that the password is for")
	default:
		c.dn("bindDN", config.BindDN)
		if config.BindPasswordFile == "" {
			c.add("bindPasswordFile", "is missing, but bindDN is set", "a bind without a password proves nothing")
		}
	}
}

func (c *checker) dn(field, text string) {
	_, err := parseDN(text)
	switch {
	case text == "":
		c.add(field, "is missing", `write a DN, "ou=people,dc=example,dc=org"`)
	case err != nil:
		c.add(field, fmt.Sprintf("%s is not a DN: %v", Quote(text), err), `write it as "ou=people,dc=example,dc=org"`)
	}
}

func (c *checker) userSearch(search *v1alpha1.UserSearch) {
	c.dn("userSearch.baseDN", search.BaseDN)
	use, ok := c.filter("userSearch.filter", search.Filter, `write "(&(objectClass=person)(uid={}))", for Active Directory "(&(objectClass=user)(sAMAccountName={}))"`)
	c.required("userSearch.usernameAttribute", search.UsernameAttribute)
	if name := search.UsernameAttribute; ok && isAttribute(name) && !isDN(name) && !use.compares(name) {
		c.list = append(c.list, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Field: "userSearch.usernameAttribute",
			Message: fmt.Sprintf("%s is not compared with {} in the filter, so two entries with the same value would be one user", Quote(name)),
			Hint:    fmt.Sprintf("use the attribute that the filter compares, add %s to the filter, or make the attribute unique in the directory", Quote("("+name+"={})")),
		})
	}
	c.attribute("userSearch.uidAttribute", search.UIDAttribute, nameAttribute)
	seen := map[string]int{}
	for i, extra := range search.Extra {
		field := fmt.Sprintf("userSearch.extra[%d]", i)
		if !extraKey.MatchString(extra.Key) || len(extra.Key) > quoted {
			c.add(field+".key", fmt.Sprintf("%s must be a lower-case key with a domain", Quote(extra.Key)), `write "example.org/department"`)
		} else if before, ok := seen[extra.Key]; ok {
			c.add(field+".key", fmt.Sprintf("%s is the key of userSearch.extra[%d] too", Quote(extra.Key), before), "")
		} else {
			seen[extra.Key] = i
		}
		c.required(field+".attribute", extra.Attribute)
	}
}

// extraKey is what the API server's own configuration asks of a key: a domain
// and a path, in lower case, because other ones get lost in impersonation.
var extraKey = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[-a-z0-9._~/]+$`)

func (c *checker) groupSearch(search *v1alpha1.GroupSearch) {
	c.dn("groupSearch.baseDN", search.BaseDN)
	use, ok := c.filter("groupSearch.filter", search.Filter, `write "(&(objectClass=groupOfNames)(member={}))"`)
	c.attribute("groupSearch.memberValue", search.MemberValue, "omit it: the DN is the default")
	c.attribute("groupSearch.nameAttribute", search.NameAttribute, nameAttribute)
	switch search.Nesting {
	case "", v1alpha1.NestingNone, v1alpha1.NestingRecursive:
	case v1alpha1.NestingActiveDirectory:
		if ok && use.inChain == 0 {
			c.add("groupSearch.filter", fmt.Sprintf("%s does not compare {} with the in-chain rule, which nesting ActiveDirectory needs", Quote(search.Filter)),
				fmt.Sprintf("write \"(member:%s:={})\"", matchingRuleInChain))
		}
		if search.MemberValue != "" && !strings.EqualFold(search.MemberValue, "distinguishedName") {
			c.add("groupSearch.memberValue", fmt.Sprintf("%s cannot be used with the in-chain rule", Quote(search.MemberValue)), "omit it: the DN is the default")
		}
	default:
		nesting := string(search.Nesting)
		values := []string{string(v1alpha1.NestingNone), string(v1alpha1.NestingRecursive), string(v1alpha1.NestingActiveDirectory)}
		hint := ""
		if near, ok := diagnostic.Nearest(nesting, values...); ok {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		c.add("groupSearch.nesting", fmt.Sprintf("%s must be one of %s", Quote(nesting), strings.Join(values, ", ")), hint)
	}
	c.limit("groupSearch.maxGroups", search.MaxGroups, maxMaxGroups)
}

func (c *checker) filter(field, filter, hint string) (filterUse, bool) {
	if filter == "" {
		c.add(field, "is missing", hint)
		return filterUse{}, false
	}
	use, err := parseFilter(filter)
	if err != nil {
		c.add(field, fmt.Sprintf("%s cannot be used: %v", Quote(filter), err), hint)
	}
	return use, err == nil
}

// nameAttribute is the hint for a DN in place of an attribute.
const nameAttribute = "the DN is a part of the entry: name the attribute that has the value, such as cn; for the whole DN, distinguishedName in Active Directory and entryDN in others"

func (c *checker) required(field, name string) {
	if name == "" {
		c.add(field, "is missing", "")
	}
	c.attribute(field, name, nameAttribute)
}

// attribute checks the name of an attribute, if there is one.
func (c *checker) attribute(field, name, insteadOfDN string) {
	switch {
	case name == "":
	case isDN(name):
		c.add(field, fmt.Sprintf("%s %v", Quote(name), errDN), insteadOfDN)
	case !isAttribute(name):
		c.add(field, fmt.Sprintf("%s is not a name: %v", Quote(name), errNotAttribute), "")
	}
}

func (c *checker) limit(field string, value, most int) {
	if value < 0 || value > most {
		c.add(field, fmt.Sprintf("%d must be from 1 to %d", value, most), "omit it for the default")
	}
}
