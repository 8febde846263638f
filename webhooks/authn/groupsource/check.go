package groupsource

import (
	"cmp"
	"errors"
	"fmt"
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
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Defaults of a configuration.
const (
	DefaultTimeout      = 3 * time.Second
	DefaultCacheTTL     = 5 * time.Minute
	DefaultOutageTTL    = time.Hour
	DefaultMaxGroups    = 500
	DefaultMaxRequests  = 128
	DefaultUser         = "claims.sub"
	defaultGraphUser    = "claims.oid"
	defaultGroups       = "answer.groups"
	defaultClaims       = "has(answer.groups) ? answer.groups : []"
	DefaultNameProperty = "id"
	// DefaultGraphURL is Microsoft Graph of the global cloud.
	DefaultGraphURL = "https://graph.microsoft.com/v1.0"
)

// The bounds of a configuration. A token review has eight seconds: sources must leave time
// for the rest of it.
const (
	MaxSources   = 8
	maxTotalTime = 7 * time.Second
	leastTimeout = 100 * time.Millisecond
	leastTTL     = 10 * time.Second
	maxTTL       = time.Hour
	maxOutageTTL = 24 * time.Hour
	maxMaxGroups = 10000
	maxRequests  = 1000
)

// Timeout returns the maximum duration of one look-up.
func Timeout(c *v1alpha1.GroupSource) time.Duration { return durationOr(c.Timeout, DefaultTimeout) }

// CacheTTL returns for how long an answer is used.
func CacheTTL(c *v1alpha1.GroupSource) time.Duration { return durationOr(c.CacheTTL, DefaultCacheTTL) }

// OutageTTL returns for how long an answer is used while the source does not answer.
func OutageTTL(c *v1alpha1.GroupSource) time.Duration {
	return durationOr(c.OutageTTL, max(DefaultOutageTTL, CacheTTL(c)))
}

func durationOr(d *metav1.Duration, usual time.Duration) time.Duration {
	if d == nil {
		return usual
	}
	return d.Duration
}

// UserExpression returns the CEL expression that results in the user to look up.
func UserExpression(c *v1alpha1.GroupSource) string {
	if c.Graph != nil {
		return cmp.Or(c.User, defaultGraphUser)
	}
	return cmp.Or(c.User, DefaultUser)
}

// GroupsExpression returns the CEL expression that results in the groups of an answer.
func GroupsExpression(c *v1alpha1.GroupSource) string {
	if c.UserInfo != nil {
		return cmp.Or(c.Groups, defaultClaims)
	}
	return cmp.Or(c.Groups, defaultGroups)
}

// CheckAll returns the errors of the sources of an issuer, with paths below the issuer. The
// names of directories with a groupSearch are given, and those without.
func CheckAll(sources []v1alpha1.GroupSource, withGroups, without []string) diagnostic.List {
	c := &checker{withGroups: withGroups, without: without}
	if len(sources) > MaxSources {
		c.add("groupSources", fmt.Sprintf("there are %d, more than %d", len(sources), MaxSources), "")
	}
	var total time.Duration
	for i := range sources {
		c.path = fmt.Sprintf("groupSources[%d]", i)
		c.source(&sources[i])
		if slices.ContainsFunc(sources[:i], func(s v1alpha1.GroupSource) bool { return s.Name == sources[i].Name }) {
			c.add("name", fmt.Sprintf("%s is already the name of another source", guard.Quote(sources[i].Name)), "")
		}
		total += Timeout(&sources[i])
	}
	if c.path = ""; len(sources) > 1 && total > maxTotalTime {
		c.add("groupSources", fmt.Sprintf("the timeouts are %s together, more than %s, which is what a token review has", total, maxTotalTime), "the default is "+DefaultTimeout.String()+" each: set timeout")
	}
	return c.list
}

type checker struct {
	list                diagnostic.List
	path                string
	withGroups, without []string
}

func (c *checker) report(severity diagnostic.Severity, field, message, hint string) {
	if c.path != "" {
		field = strings.TrimSuffix(c.path+"."+field, ".")
	}
	c.list = append(c.list, diagnostic.Diagnostic{Severity: severity, Field: field, Message: message, Hint: hint})
}

func (c *checker) add(field, message, hint string) { c.report(diagnostic.Error, field, message, hint) }

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (c *checker) source(s *v1alpha1.GroupSource) {
	if !label.MatchString(s.Name) {
		c.add("name", guard.Quote(s.Name)+` is not a DNS-1123 label: 1 to 63 lower-case letters, digits and "-"`, "")
	} else if s.Name == TokenOrigin {
		c.add("name", guard.Quote(s.Name)+" stands for the token itself", "give the source another name")
	}
	kinds := 0
	for _, set := range []bool{s.UserInfo != nil, s.LDAP != nil, s.Graph != nil, s.HTTP != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		c.add("", fmt.Sprintf("has %d of userInfo, ldap, graph and http, must have one", kinds), "")
	}
	if s.UserInfo != nil {
		c.url("userInfo.url", s.UserInfo.URL)
	}
	c.ldap(s.LDAP)
	c.graph(s.Graph)
	c.http(s.HTTP)
	c.expressions(s)
	if s.CertificateAuthority != "" {
		if _, err := pemcert.Parse([]byte(s.CertificateAuthority)); err != nil {
			c.add("certificateAuthority", err.Error(), "this field contains the CA certificates in PEM, not the path of a file")
		}
	}
	c.oneOf("ask", string(s.Ask), string(v1alpha1.AskAlways), string(v1alpha1.AskOnOverage))
	c.oneOf("onUnknown", string(s.OnUnknown), string(v1alpha1.OnUnknownFail), string(v1alpha1.OnUnknownUseToken))
	c.prefixes(s)
	c.duration("timeout", Timeout(s), leastTimeout, maxTotalTime)
	c.duration("cacheTTL", CacheTTL(s), leastTTL, maxTTL)
	c.duration("outageTTL", OutageTTL(s), leastTTL, maxOutageTTL)
	if OutageTTL(s) < CacheTTL(s) {
		c.add("outageTTL", fmt.Sprintf("%q is less than cacheTTL, %q", OutageTTL(s), CacheTTL(s)), "")
	}
	c.limit("maxGroups", s.MaxGroups, maxMaxGroups)
	c.limit("maxRequests", s.MaxRequests, maxRequests)
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
		c.report(diagnostic.Warning, "groupsPrefix", "the groups have neither a prefix nor a requiredPrefix: whoever can name a group in this source can give any group that a role is bound to",
			`write groupsPrefix: "`+s.Name+`:"`)
	}
}

func (c *checker) oneOf(field, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		c.add(field, fmt.Sprintf("%s must be one of %s", guard.Quote(value), strings.Join(allowed, ", ")), diagnostic.DidYouMean(value, allowed...))
	}
}

func (c *checker) duration(field string, got, least, most time.Duration) {
	if got < least || got > most {
		c.add(field, fmt.Sprintf("%q must be from %s to %s", got, least, most), "")
	}
}

func (c *checker) limit(field string, value, most int) {
	if value < 0 || value > most {
		c.add(field, fmt.Sprintf("%d must be from 1 to %d", value, most), "omit it for the default")
	}
}

func (c *checker) ldap(s *v1alpha1.LDAPGroups) {
	switch {
	case s == nil || slices.Contains(c.withGroups, s.Directory):
	case slices.Contains(c.without, s.Directory):
		c.add("ldap.directory", guard.Quote(s.Directory)+" has no groupSearch, so its users have no groups", "")
	default:
		c.add("ldap.directory", guard.Quote(s.Directory)+" is not the name of a directory", diagnostic.DidYouMean(s.Directory, c.withGroups...))
	}
}

// directoryID is what Microsoft's identifiers consist of: they become parts of URLs.
var directoryID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,252}$`)

func (c *checker) graph(s *v1alpha1.GraphGroups) {
	if s == nil {
		return
	}
	for _, one := range []struct{ field, value string }{{"graph.tenantID", s.TenantID}, {"graph.clientID", s.ClientID}} {
		if !directoryID.MatchString(one.value) {
			c.add(one.field, guard.Quote(one.value)+" is not the id of a tenant or an application", "")
		}
	}
	if s.ClientSecretFile == "" {
		c.add("graph.clientSecretFile", "is missing", "")
	}
	if s.NameProperty != "" && !isGraphProperty(s.NameProperty) {
		c.oneOf("graph.nameProperty", s.NameProperty, graphProperties()...)
	}
	if s.NameProperty == "displayName" {
		c.report(diagnostic.Warning, "graph.nameProperty", "several groups can have the same displayName, and the owners of a group can change it", `use "id"`)
	}
	for _, one := range []struct{ field, value string }{{"graph.tokenURL", s.TokenURL}, {"graph.url", s.URL}} {
		if one.value != "" {
			c.url(one.field, one.value)
		}
	}
}

func (c *checker) http(s *v1alpha1.HTTPGroups) {
	if s == nil {
		return
	}
	c.url("http.url", s.URL)
	c.oneOf("http.method", s.Method, "GET", "POST")
	switch {
	case (s.ClientCertificateFile == "") != (s.ClientKeyFile == ""):
		c.add("http.clientKeyFile", "clientCertificateFile and clientKeyFile belong together", "")
	case s.ClientCertificateFile == "" && s.TokenFile == "":
		c.report(diagnostic.Warning, "http", "the service is asked without a credential", "set tokenFile, or clientCertificateFile and clientKeyFile")
	}
}

// expressions checks both expressions, and the fields that do not go with the kind.
func (c *checker) expressions(s *v1alpha1.GroupSource) {
	json := s.UserInfo != nil || s.HTTP != nil
	switch _, err := CompileMapping(GroupsExpression(s)); {
	case s.Groups != "" && !json:
		c.add("groups", "is for userInfo and http", "")
	case err != nil:
		c.add("groups", guard.Quote(s.Groups)+" "+truncate.Bytes(err.Error(), 500), `the variable is answer: "answer.groups.map(g, g.name)"`)
	}
	switch _, err := jwt.CompileClaimExpression(UserExpression(s)); {
	case s.User != "" && s.UserInfo != nil:
		c.add("user", "does not go with userInfo, which knows the user by the token", "")
	case err != nil:
		c.add("user", guard.Quote(s.User)+" "+truncate.Bytes(err.Error(), 500), `the variable is claims: "claims.sub"`)
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

var errURL = errors.New("must be the URL of an https server, without a user, a query or a fragment")

// ParseURL parses the URL of a source. The error does not quote it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(text, "?#") {
		return nil, errURL
	}
	return u, nil
}

// TokenOrigin is the origin of groups of the token itself, and no name of a source.
const TokenOrigin = "token"
