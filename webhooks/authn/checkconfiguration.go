package authn

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// The bounds of settings about keys of issuers.
const (
	minKeyRefresh = 30 * time.Second
	maxKeyRefresh = 24 * time.Hour
	maxKeysAge    = 30 * 24 * time.Hour
	// minSecret is the length of a login key in bytes: as long as what it makes.
	minSecret = 32
)

// checkConfiguration checks our AuthenticationConfiguration, by itself and against the
// rest of the Spec.
func checkConfiguration(spec *Spec) diagnostic.List {
	c := spec.Configuration
	p := &configurationProblems{source: c.Source}
	p.checkJWT(spec)
	p.checkLogin(spec)
	p.checkGuard(spec)
	p.checkGrants(&c.Grants)
	return p.found
}

func (p *configurationProblems) checkGrants(c *v1alpha1.GrantsConfiguration) {
	if d := c.MaxDuration; d != nil {
		p.duration("grants.maxDuration", d.Duration, minGrantDuration, maxGrantDuration)
	}
	if d := c.Retain; d != nil {
		p.duration("grants.retain", d.Duration, minGrantRetain, maxGrantRetain)
	}
	switch c.OwnGrants {
	case "", v1alpha1.OwnGrantsAllow, v1alpha1.OwnGrantsDeny:
	default:
		p.error("grants.ownGrants", quote(string(c.OwnGrants))+" must be Allow or Deny", "")
	}
}

func (p *configurationProblems) checkJWT(spec *Spec) {
	c := &spec.Configuration.JWT
	if d := c.KeyRefreshInterval; d != nil {
		p.duration("jwt.keyRefreshInterval", d.Duration, minKeyRefresh, maxKeyRefresh)
	}
	if d := c.MaxKeyAge; d != nil {
		p.duration("jwt.maxKeyAge", d.Duration, minKeyRefresh, maxKeysAge)
		if r := c.KeyRefreshInterval; r != nil && d.Duration < r.Duration {
			p.error("jwt.maxKeyAge", fmt.Sprintf("%q is less than keyRefreshInterval, %q: keys would expire before they are fetched again", d.Duration, r.Duration), "")
		}
	}
	seen := map[string]bool{}
	for i, issuer := range c.Issuers {
		field := fmt.Sprintf("jwt.issuers[%d].url", i)
		known := slices.ContainsFunc(spec.Issuers, func(one Issuer) bool { return one.Config.Issuer.URL == issuer.URL })
		switch {
		case seen[issuer.URL]:
			p.error(field, quoteURL(issuer.URL)+" is listed twice", "")
		case !known:
			p.error(field, quoteURL(issuer.URL)+" is not the URL of a configured issuer", "use the value of jwt[].issuer.url in the AuthenticationConfiguration of apiserver.config.k8s.io")
		}
		seen[issuer.URL] = true
	}
}

func (p *configurationProblems) checkLogin(spec *Spec) {
	login := spec.Configuration.Login
	if login == nil {
		return
	}
	if len(spec.Directories)+len(spec.Issuers) == 0 {
		p.report(diagnostic.Warning, "login", "neither a directory nor an issuer is configured, so nobody can log in", "")
	}
	if len(login.Keys) == 0 {
		p.error("login.keys", "is empty: a key is required to sign tokens", "'gatehouse token key --out FILE' creates one")
	}
	for i, key := range login.Keys {
		field := fmt.Sprintf("login.keys[%d]", i)
		if !isLabel(key.Name) {
			p.error(field+".name", quote(key.Name)+" is not a DNS-1123 label", "")
		}
		if slices.ContainsFunc(login.Keys[:i], func(k v1alpha1.LoginKey) bool { return k.Name == key.Name }) {
			p.error(field+".name", quote(key.Name)+" is already the name of another key", "a new key needs a new name, because tokens name their key")
		}
		if i >= len(spec.LoginKeys) {
			continue // Reading the file has failed, which is reported.
		}
		secret := spec.LoginKeys[i].Secret
		switch {
		case secret == nil:
		case len(secret) < minSecret:
			p.error(field+".file", fmt.Sprintf("contains a key of %d bytes, at least %d are required", len(secret), minSecret), "'gatehouse token key --out FILE' creates one")
		case slices.ContainsFunc(spec.LoginKeys[:i], func(k LoginKey) bool { return bytes.Equal(k.Secret, secret) }):
			p.error(field+".file", "contains the same key as an earlier entry", "")
		}
	}
	tokenTTL, sessionTTL := defaultTokenTTL, defaultSessionTTL
	if d := login.TokenTTL; d != nil {
		tokenTTL = d.Duration
		p.duration("login.tokenTTL", tokenTTL, time.Minute, maxTokenTTL)
	}
	if d := login.SessionTTL; d != nil {
		sessionTTL = d.Duration
		p.duration("login.sessionTTL", sessionTTL, time.Minute, maxSessionTTL)
	}
	if sessionTTL < tokenTTL {
		p.error("login.sessionTTL", fmt.Sprintf("%q is less than tokenTTL, %q", sessionTTL, tokenTTL), "")
	}
	for i, audience := range login.Audiences {
		if audience == "" {
			p.error(fmt.Sprintf("login.audiences[%d]", i), `"" must not be empty`, "without audiences, the tokens are valid for the API server's own")
		}
	}
}

func (p *configurationProblems) checkGuard(spec *Spec) {
	names := sourceNames(spec)
	source := func(field, name string) {
		if slices.Contains(names, name) {
			return
		}
		hint := diagnostic.DidYouMean(name, names...)
		if hint == "" {
			hint = "the sources are " + strings.Join(names, ", ")
		}
		p.error(field, quoteURL(name)+" is not a source of identities", hint)
	}
	for i, prefix := range spec.Configuration.Guard.Prefixes {
		field := fmt.Sprintf("guard.prefixes[%d]", i)
		source(field+".source", prefix.Source)
		if slices.ContainsFunc(spec.Configuration.Guard.Prefixes[:i], func(r v1alpha1.RequiredPrefix) bool { return r.Source == prefix.Source }) {
			p.error(field+".source", quote(prefix.Source)+" already has prefixes", "")
		}
		if problem := prefixProblem(&prefix.Username); problem != "" {
			p.error(field+".username", problem, "nobody could log in")
		}
		if problem := prefixProblem(&prefix.Groups); problem != "" {
			p.error(field+".groups", problem, "nobody with a group could log in")
		}
		for _, d := range spec.Directories {
			if d.Config.Name != prefix.Source {
				continue
			}
			p.unreachable(field+".username", prefix.Username, d.Config.UsernamePrefix)
			p.unreachable(field+".groups", prefix.Groups, d.Config.GroupsPrefix)
		}
	}
	for i, allowed := range spec.Configuration.Guard.AllowedGroups {
		field := fmt.Sprintf("guard.allowedGroups[%d]", i)
		switch f := guard.CheckName(allowed.Name); {
		case guard.IsBreakGlass(allowed.Name):
			p.error(field+".name", quote(allowed.Name)+" cannot be given by a source of identities", "a cluster administrator uses it for one command, by impersonation: see docs/tasks/get-past-gatehouse.md")
		case guard.IsNeverAllowed(allowed.Name):
			p.error(field+".name", quote(allowed.Name)+" is given by the API server itself", "every user whom a webhook authenticates gets system:authenticated")
		case f == "":
			p.report(diagnostic.Warning, field+".name", quote(allowed.Name)+" is not reserved, so it needs no entry here", "")
		case f != guard.Reserved || guard.CheckString(allowed.Name) != "" || !strings.HasPrefix(allowed.Name, "system:"):
			p.error(field+".name", quote(allowed.Name)+" is not the name of a reserved group", `reserved groups begin with "system:"`)
		case allowed.Name == "system:masters":
			p.report(diagnostic.Warning, field+".name", `"system:masters" bypasses authorization, and its rights cannot be revoked`,
				"bind ClusterRole cluster-admin to an ordinary group instead")
		}
		if len(allowed.Sources) == 0 {
			p.error(field+".sources", "is empty: list the sources that may give the group", "the sources are "+strings.Join(names, ", "))
		}
		for j, name := range allowed.Sources {
			source(fmt.Sprintf("%s.sources[%d]", field, j), name)
		}
	}
}

// unreachable reports a required prefix that names with a configured prefix never have:
// nobody could log in.
func (p *configurationProblems) unreachable(field, required, given string) {
	if strings.HasPrefix(given, required) || strings.HasPrefix(required, given) {
		return
	}
	p.error(field, fmt.Sprintf("%s is required, but every name of this source begins with %s: nobody could log in", quote(required), quote(given)), "")
}

// checkIssuerPrefix reports prefixes that the guard requires and a mapping by claim never
// has.
func checkIssuerPrefix(c *Configuration, issuer *Issuer) diagnostic.List {
	p := &configurationProblems{source: c.Source}
	for i, prefix := range c.Guard.Prefixes {
		if prefix.Source != issuer.Config.Issuer.URL {
			continue
		}
		field := fmt.Sprintf("guard.prefixes[%d]", i)
		if m := issuer.Config.ClaimMappings.Username; m.Claim != "" && m.Prefix != nil {
			p.unreachable(field+".username", prefix.Username, *m.Prefix)
		}
		if m := issuer.Config.ClaimMappings.Groups; m.Claim != "" && m.Prefix != nil {
			p.unreachable(field+".groups", prefix.Groups, *m.Prefix)
		}
	}
	return p.found
}

// checkDirectories checks directories but for their LDAP settings.
func checkDirectories(spec *Spec) diagnostic.List {
	var found diagnostic.List
	for i := range spec.Directories {
		d := &spec.Directories[i]
		p := &configurationProblems{source: d.Source}
		switch {
		case !isLabel(d.Config.Name):
			p.error(d.Field+".name", quote(d.Config.Name)+` is not a DNS-1123 label: 1 to 63 lower-case letters, digits and "-"`, "")
		case d.Config.Name == v1alpha1.AccessTokensSource:
			p.error(d.Field+".name", quote(d.Config.Name)+" is the name of the source of access tokens", "give the directory another name")
		case slices.ContainsFunc(spec.Directories[:i], func(n NamedDirectory) bool { return n.Config.Name == d.Config.Name }):
			p.error(d.Field+".name", quote(d.Config.Name)+" is already the name of another directory", "")
		}
		if problem := prefixProblem(&d.Config.UsernamePrefix); problem != "" {
			p.error(d.Field+".usernamePrefix", problem, "nobody could log in")
		}
		if problem := prefixProblem(&d.Config.GroupsPrefix); problem != "" {
			p.error(d.Field+".groupsPrefix", problem, "nobody with a group could log in")
		}
		for j, extra := range d.Config.UserSearch.Extra {
			if f := guard.CheckKey(extra.Key); f != "" {
				p.error(fmt.Sprintf("%s.userSearch.extra[%d].key", d.Field, j), quote(extra.Key)+" "+string(f), "nobody could log in")
			}
		}
		found = append(found, p.found...)
	}
	if !onlyGroups(spec) && (spec.Configuration == nil || spec.Configuration.Login == nil) {
		p := &configurationProblems{source: spec.Directories[0].Source}
		p.error("login", "is missing: directories need a key that signs login tokens",
			"login: {keys: [{name: first, file: login.key}]}, and gatehouse token key --out login.key")
		found = append(found, p.found...)
	}
	return found
}

// onlyGroups reports whether every directory is one that a group source asks, so that nobody
// need log in with a password.
func onlyGroups(spec *Spec) bool {
	asked := map[string]bool{}
	if spec.Configuration != nil {
		for _, issuer := range spec.Configuration.JWT.Issuers {
			for _, source := range issuer.GroupSources {
				if source.LDAP != nil {
					asked[source.LDAP.Directory] = true
				}
			}
		}
	}
	return !slices.ContainsFunc(spec.Directories, func(d NamedDirectory) bool { return !asked[d.Config.Name] })
}
