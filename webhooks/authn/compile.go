package authn

import (
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Compile checks a Spec and compiles it into a Set. An error is a diagnostic.List with
// every problem in a fixed order.
func Compile(spec Spec) (*Set, error) {
	hasContent := len(spec.Tokens)+len(spec.Revocations)+len(spec.Issuers)+len(spec.Directories)+len(spec.LoginKeys)+len(spec.Grants) > 0
	if hasContent && spec.Now == nil {
		return nil, diagnostic.List{{
			Severity: diagnostic.Error,
			Message:  "tokens need a clock to expire by, and Spec.Now is nil",
		}}
	}
	set := &Set{revoked: revoked{}, now: spec.Now, scopesEnforced: spec.ScopesEnforced}
	var found diagnostic.List
	if spec.Configuration != nil {
		var problems error
		set.scopes, problems = authz.Compile(authz.Spec{Source: spec.Configuration.Source, Scopes: spec.Configuration.Scopes})
		if list, ok := errors.AsType[diagnostic.List](problems); ok {
			found = append(found, list...)
		}
		set.guard = guard.New(&spec.Configuration.Guard)
		found = append(found, checkConfiguration(&spec)...)
	}
	found = append(found, checkDirectories(&spec)...)

	tokens, problems := newAccessTokens(spec.Tokens, spec.Now, set.scopes, func(u *authenticationv1.UserInfo) []guard.Violation {
		return set.violations(v1alpha1.AccessTokensSource, u)
	})
	found = append(found, problems...)
	set.tokens = tokens
	set.backends = append(set.backends, backend{AccessTokens, isAccessToken, tokens.authenticate})

	logins := newLoginTokens(&spec)
	set.logins = newLogins(&spec, logins)
	set.backends = append(set.backends, backend{LoginTokens, isLoginToken, logins.authenticate})

	known, problems := compileIssuers(&spec)
	found = append(found, problems...)
	found = append(found, checkPrefixes(&spec)...)
	found = append(found, checkUsers(&spec)...)
	if len(known) > 0 {
		if set.guard == nil {
			set.guard = guard.Guard{}
		}
		for url, one := range known {
			if prefix := one.authenticator.GroupsPrefix(); prefix != "" {
				set.guard.RejectEmptyGroups(url, prefix)
			}
		}
		set.issuers = &issuers{byURL: known, now: spec.Now}
		set.backends = append(set.backends, backend{JWTs, jwt.Shaped, set.issuers.authenticate})
	}

	set.grants, set.pastGrants, problems = compileGrants(&spec)
	found = append(found, problems...)
	for i := range spec.Revocations {
		one := &spec.Revocations[i]
		problems := one.check()
		found = append(found, problems...)
		found = append(found, one.warnings(&spec)...)
		if len(problems) == 0 {
			set.revoked.add(one)
		}
	}
	found.Sort()
	if err := found.Err(); err != nil {
		return nil, err
	}
	set.warnings = found
	return set, nil
}

// compileIssuers compiles the valid issuers.
func compileIssuers(spec *Spec) (map[string]*issuer, diagnostic.List) {
	known := make(map[string]*issuer, len(spec.Issuers))
	var found diagnostic.List
	for i := range spec.Issuers {
		one := &spec.Issuers[i]
		report := func(severity diagnostic.Severity, field, message, hint string) {
			if field != "" {
				field = "." + field
			}
			found = append(found, diagnostic.Diagnostic{
				Severity: severity, Source: one.Source, Object: authenticationConfiguration,
				Field: one.Field + field, Message: message, Hint: hint,
			})
		}
		url := one.Config.Issuer.URL
		if _, twice := known[url]; twice {
			report(diagnostic.Error, "issuer.url", quoteURL(url)+" is already the URL of another issuer", "an issuer is configured once, with all its audiences")
			continue
		}
		authenticator, problems := jwt.Compile(one.Config, one.Keys)
		for _, p := range problems {
			report(diagnostic.Error, p.Field, withoutPassword(p), "")
		}
		if authenticator == nil {
			continue
		}
		for _, w := range authenticator.Warnings() {
			report(diagnostic.Warning, w.Field, w.Message, w.Hint)
		}
		groups, ofGroups := compileGroupSources(spec, one)
		found = append(found, ofGroups...)
		known[url] = &issuer{url, authenticator, groups}
		if spec.Configuration != nil {
			found = append(found, checkIssuerPrefix(spec.Configuration, one)...)
		}
		if problem := prefixProblem(one.Config.ClaimMappings.Username.Prefix); problem != "" {
			report(diagnostic.Error, "claimMappings.username.prefix", problem, "nobody could log in")
		}
		if problem := prefixProblem(one.Config.ClaimMappings.Groups.Prefix); problem != "" {
			report(diagnostic.Error, "claimMappings.groups.prefix", problem, "nobody with a group could log in")
		}
	}
	return known, found
}

// withoutPassword returns upstream's message about an issuer without a password that may
// be in a URL.
func withoutPassword(problem *field.Error) string {
	switch problem.Field {
	case "issuer.url", "issuer.discoveryURL":
	default:
		return problem.ErrorBody()
	}
	if !strings.Contains(fmt.Sprint(problem.BadValue), "@") {
		return problem.ErrorBody()
	}
	detail := problem.Detail
	if strings.Contains(detail, "@") {
		detail = "it is not a URL"
	}
	return `is not shown, because what stands before its "@" may be a password: ` + detail
}

// quoteURL quotes a URL, unless there may be a password in it.
func quoteURL(url string) string {
	if strings.Contains(url, "@") {
		return `the url, not shown because what stands before its "@" may be a password,`
	}
	return quote(url)
}

// prefixProblem returns why the guard rejects every name with a prefix, "" if it does not.
func prefixProblem(prefix *string) string {
	if prefix == nil || *prefix == "" {
		return ""
	}
	f := guard.CheckName(*prefix + "x")
	if f == guard.Reserved {
		return quote(*prefix) + ": the identity guard rejects every name with this prefix"
	}
	if f != "" {
		return quote(*prefix) + " " + string(f)
	}
	return ""
}

// authenticationConfiguration is the object of diagnostics about either document of this
// kind.
const authenticationConfiguration = "AuthenticationConfiguration"

// configurationProblems collects diagnostics about our configuration.
type configurationProblems struct {
	source string
	found  diagnostic.List
}

func (p *configurationProblems) report(severity diagnostic.Severity, field, message, hint string) {
	p.found = append(p.found, diagnostic.Diagnostic{
		Severity: severity, Source: p.source, Object: authenticationConfiguration, Field: field, Message: message, Hint: hint,
	})
}

func (p *configurationProblems) error(field, message, hint string) {
	p.report(diagnostic.Error, field, message, hint)
}

// duration reports a duration out of its bounds.
func (p *configurationProblems) duration(field string, got, least, most time.Duration) {
	if got < least || got > most {
		p.error(field, fmt.Sprintf("%q must be from %s to %s", got, least, most), "")
	}
}
