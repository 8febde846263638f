package groupsource

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// The bounds of a configuration. A token review has eight seconds: sources must leave time
// for the rest of it.
const (
	maxSources   = 8
	maxTotalTime = 7 * time.Second
	leastTimeout = 100 * time.Millisecond
	leastTTL     = 10 * time.Second
	maxTTL       = time.Hour
	maxOutageTTL = 24 * time.Hour
	maxMaxGroups = 10000
	maxRequests  = 1000
)

const (
	// TokenOrigin is the origin of groups of the token itself, and no name of a source.
	TokenOrigin = "token"
	// DefaultUser is the usual expression for the user to look up.
	DefaultUser    = "claims.sub"
	defaultTimeout = 3 * time.Second
)

// Complete returns a copy of a source that has the defaults of its kind.
func Complete(given *v1alpha1.GroupSource) *v1alpha1.GroupSource {
	s := given.DeepCopy()
	text := func(to *string, usual string) { *to = cmp.Or(*to, usual) }
	duration := func(to **metav1.Duration, usual time.Duration) { *to = cmp.Or(*to, &metav1.Duration{Duration: usual}) }
	duration(&s.Timeout, defaultTimeout)
	duration(&s.CacheTTL, 5*time.Minute)
	duration(&s.OutageTTL, max(time.Hour, s.CacheTTL.Duration))
	s.MaxGroups, s.MaxRequests = cmp.Or(s.MaxGroups, 500), cmp.Or(s.MaxRequests, 128)
	s.Ask, s.OnUnknown = cmp.Or(s.Ask, v1alpha1.AskAlways), cmp.Or(s.OnUnknown, v1alpha1.OnUnknownFail)
	switch {
	case s.UserInfo != nil:
		text(&s.Groups, "has(answer.groups) ? answer.groups : []")
		return s
	case s.Graph != nil:
		text(&s.User, "claims.oid")
		text(&s.Graph.NameProperty, "id")
		text(&s.Graph.URL, "https://graph.microsoft.com/v1.0")
		text(&s.Graph.TokenURL, "https://login.microsoftonline.com/"+s.Graph.TenantID+"/oauth2/v2.0/token")
	case s.HTTP != nil:
		text(&s.Groups, "answer.groups")
		text(&s.HTTP.Method, "GET")
	}
	text(&s.User, DefaultUser)
	return s
}

// CheckAll returns the errors of the sources of an issuer, with paths below the issuer. The
// directories are those of the configuration, and whether each has a groupSearch.
func CheckAll(sources []v1alpha1.GroupSource, directories map[string]bool) diagnostic.List {
	c := &checker{directories: directories}
	if len(sources) > maxSources {
		c.add("groupSources", fmt.Sprintf("there are %d, more than %d", len(sources), maxSources), "")
	}
	var total time.Duration
	for i := range sources {
		c.path = fmt.Sprintf("groupSources[%d]", i)
		one := Complete(&sources[i])
		c.source(one)
		if slices.ContainsFunc(sources[:i], func(s v1alpha1.GroupSource) bool { return s.Name == one.Name }) {
			c.add("name", guard.Quote(one.Name)+" is already the name of another source", "")
		}
		total += one.Timeout.Duration
	}
	if c.path = ""; len(sources) > 1 && total > maxTotalTime {
		c.add("groupSources", fmt.Sprintf("the timeouts are %s together, more than %s, which is what a token review has", total, maxTotalTime), "the default is "+defaultTimeout.String()+" each: set timeout")
	}
	return c.list
}

type checker struct {
	list        diagnostic.List
	path        string
	directories map[string]bool
}

func (c *checker) report(severity diagnostic.Severity, field, message, hint string) {
	if c.path != "" {
		field = strings.TrimSuffix(c.path+"."+field, ".")
	}
	c.list = append(c.list, diagnostic.Diagnostic{Severity: severity, Field: field, Message: message, Hint: hint})
}

func (c *checker) add(field, message, hint string) { c.report(diagnostic.Error, field, message, hint) }

func (c *checker) warn(field, message, hint string) {
	c.report(diagnostic.Warning, field, message, hint)
}

var (
	label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// directoryID is what Microsoft's identifiers consist of: they become parts of URLs.
	directoryID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,252}$`)
)

// source checks a source that has its defaults.
func (c *checker) source(s *v1alpha1.GroupSource) {
	kinds := 0
	for _, set := range []bool{s.UserInfo != nil, s.LDAP != nil, s.Graph != nil, s.HTTP != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case !label.MatchString(s.Name):
		c.add("name", guard.Quote(s.Name)+` is not a DNS-1123 label: 1 to 63 lower-case letters, digits and "-"`, "")
	case s.Name == TokenOrigin:
		c.add("name", guard.Quote(s.Name)+" stands for the token itself", "give the source another name")
	}
	if kinds != 1 {
		c.add("", fmt.Sprintf("has %d of userInfo, ldap, graph and http, must have one", kinds), "")
	}
	if s.CertificateAuthority != "" {
		if _, err := pemcert.Parse([]byte(s.CertificateAuthority)); err != nil {
			c.add("certificateAuthority", err.Error(), "this field contains the CA certificates in PEM, not the path of a file")
		}
	}
	c.oneOf("ask", string(s.Ask), string(v1alpha1.AskAlways), string(v1alpha1.AskOnOverage))
	c.oneOf("onUnknown", string(s.OnUnknown), string(v1alpha1.OnUnknownFail), string(v1alpha1.OnUnknownUseToken))
	c.duration("timeout", s.Timeout.Duration, leastTimeout, maxTotalTime)
	c.duration("cacheTTL", s.CacheTTL.Duration, leastTTL, maxTTL)
	c.duration("outageTTL", s.OutageTTL.Duration, leastTTL, maxOutageTTL)
	if s.OutageTTL.Duration < s.CacheTTL.Duration {
		c.add("outageTTL", fmt.Sprintf("%q is less than cacheTTL, %q", s.OutageTTL.Duration, s.CacheTTL.Duration), "")
	}
	c.number("maxGroups", s.MaxGroups, maxMaxGroups)
	c.number("maxRequests", s.MaxRequests, maxRequests)
	c.prefixes(s)
	c.expressions(s)
	if s.UserInfo != nil {
		c.url("userInfo.url", s.UserInfo.URL)
	}
	c.ldap(s.LDAP)
	c.graph(s.Graph)
	c.http(s.HTTP)
}

func (c *checker) oneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.add(field, guard.Quote(value)+" must be one of "+strings.Join(allowed, ", "), diagnostic.DidYouMean(value, allowed...))
	}
}

func (c *checker) duration(field string, got, least, most time.Duration) {
	if got < least || got > most {
		c.add(field, fmt.Sprintf("%q must be from %s to %s", got, least, most), "")
	}
}

func (c *checker) number(field string, got, most int) {
	if got < 1 || got > most {
		c.add(field, fmt.Sprintf("%d must be from 1 to %d", got, most), "omit it for the default")
	}
}

func (c *checker) url(field, text string) {
	if _, err := ParseURL(text); err != nil {
		shown := guard.Quote(text)
		if strings.Contains(text, "@") {
			shown = "the URL (not shown, it may contain a password)"
		}
		c.add(field, shown+": "+err.Error(), `write "https://HOST[:PORT]/PATH"`)
	}
}

// prefixes checks the prefixes of names: the guard must not reject all of them.
func (c *checker) prefixes(s *v1alpha1.GroupSource) {
	given := ""
	if s.GroupsPrefix != nil {
		given = *s.GroupsPrefix
	}
	for _, one := range []struct{ field, prefix string }{{"groupsPrefix", given}, {"requiredPrefix", s.RequiredPrefix}} {
		if f := guard.CheckName(one.prefix + "x"); f != "" {
			c.add(one.field, guard.Quote(one.prefix)+": the identity guard rejects every name with this prefix: it "+string(f), "")
		}
	}
	if s.GroupsPrefix != nil && !strings.HasPrefix(given, s.RequiredPrefix) && !strings.HasPrefix(s.RequiredPrefix, given) {
		c.add("requiredPrefix", fmt.Sprintf("%s is required, but every group of this source begins with %s", guard.Quote(s.RequiredPrefix), guard.Quote(given)), "")
	}
	if given == "" && s.RequiredPrefix == "" && s.LDAP == nil {
		c.warn("groupsPrefix", "the groups have neither a prefix nor a requiredPrefix: whoever can name a group in this source can give any group that a role is bound to",
			`write groupsPrefix: "`+s.Name+`:"`)
	}
}

func (c *checker) ldap(s *v1alpha1.LDAPGroups) {
	if s == nil {
		return
	}
	switch hasGroups, ok := c.directories[s.Directory]; {
	case !ok:
		c.add("ldap.directory", guard.Quote(s.Directory)+" is not the name of a directory", diagnostic.DidYouMean(s.Directory, slices.Sorted(maps.Keys(c.directories))...))
	case !hasGroups:
		c.add("ldap.directory", guard.Quote(s.Directory)+" has no groupSearch, so its users have no groups", "")
	}
}

func (c *checker) graph(s *v1alpha1.GraphGroups) {
	if s == nil {
		return
	}
	c.oneOf("graph.nameProperty", s.NameProperty, "id", "displayName")
	c.url("graph.tokenURL", s.TokenURL)
	c.url("graph.url", s.URL)
	for _, one := range [][2]string{{"graph.tenantID", s.TenantID}, {"graph.clientID", s.ClientID}} {
		if !directoryID.MatchString(one[1]) {
			c.add(one[0], guard.Quote(one[1])+" is not the id of a tenant or an application", "")
		}
	}
	if s.ClientSecretFile == "" {
		c.add("graph.clientSecretFile", "is missing", "")
	}
	if s.NameProperty == "displayName" {
		c.warn("graph.nameProperty", "several groups can have the same displayName, and the owners of a group can change it", `use "id"`)
	}
}

func (c *checker) http(s *v1alpha1.HTTPGroups) {
	if s == nil {
		return
	}
	c.oneOf("http.method", s.Method, "GET", "POST")
	c.url("http.url", s.URL)
	switch {
	case (s.ClientCertificateFile == "") != (s.ClientKeyFile == ""):
		c.add("http.clientKeyFile", "clientCertificateFile and clientKeyFile belong together", "")
	case s.ClientCertificateFile == "" && s.TokenFile == "":
		c.warn("http", "the service is asked without a credential", "set tokenFile, or clientCertificateFile and clientKeyFile")
	}
}

// expressions checks both expressions, and the fields that do not go with the kind.
func (c *checker) expressions(s *v1alpha1.GroupSource) {
	json := s.UserInfo != nil || s.HTTP != nil
	switch _, err := CompileMapping(s.Groups); {
	case !json && s.Groups != "":
		c.add("groups", "is for userInfo and http", "")
	case json && err != nil:
		c.add("groups", guard.Quote(s.Groups)+" "+truncate.Bytes(err.Error(), 500), `the variable is answer: "answer.groups.map(g, g.name)"`)
	}
	switch _, err := jwt.CompileClaimExpression(s.User); {
	case s.UserInfo != nil && s.User != "":
		c.add("user", "does not go with userInfo, which knows the user by the token", "")
	case s.UserInfo == nil && err != nil:
		c.add("user", guard.Quote(s.User)+" "+truncate.Bytes(err.Error(), 500), `the variable is claims: "claims.sub"`)
	}
}

var errURL = errors.New("must be the URL of an https server, without a user, a query or a fragment")

// ParseURL parses the URL of a source. The error does not quote it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(text, "?#") {
		return nil, errURL
	}
	return u, nil
}
