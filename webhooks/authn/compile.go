package authn

import (
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Compile checks a Spec and makes a Set of it. The error, if there is one, is a
// finding.List with every problem in a fixed order, and there is no Set then.
func Compile(spec Spec) (*Set, error) {
	something := len(spec.Tokens)+len(spec.Revocations)+len(spec.Issuers)+len(spec.Directories)+len(spec.LoginKeys) > 0
	if something && spec.Now == nil {
		return nil, diagnostic.List{{
			Severity: diagnostic.Error,
			Message:  "tokens need a clock to expire by, and Spec.Now is nil",
		}}
	}
	set := &Set{revoked: revoked{}}
	var found diagnostic.List
	if spec.Configuration != nil {
		set.guard = newGuard(&spec.Configuration.Guard)
		found = append(found, checkConfiguration(&spec)...)
	}
	found = append(found, checkDirectories(&spec)...)

	tokens, problems := newAccessTokens(spec.Tokens, spec.Now, func(u *authenticationv1.UserInfo) []violation {
		return set.guard.violations(AccessTokens, v1alpha1.AccessTokensSource, u)
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
	found = append(found, checkRevocationUsers(&spec)...)
	if len(known) > 0 {
		jwts := &issuers{byURL: known, now: spec.Now}
		set.backends = append(set.backends, backend{JWTs, jwt.Shaped, jwts.authenticate})
	}

	for i := range spec.Revocations {
		one := &spec.Revocations[i]
		found = append(found, one.check()...)
		found = append(found, one.future(spec.Now())...)
		set.revoked.add(one)
	}
	found.Sort()
	if err := found.Err(); err != nil {
		return nil, err
	}
	set.warnings = found
	return set, nil
}

// compileIssuers compiles the issuers that can be.
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
			report(diagnostic.Error, "issuer.url", quoteURL(url)+" is the url of an issuer before it", "an issuer is configured once, with all its audiences")
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
		known[url] = &issuer{url, authenticator}
		if spec.Configuration != nil {
			found = append(found, checkIssuerPrefix(spec.Configuration, one)...)
		}
		if problem := cannotPass(one.Config.ClaimMappings.Username.Prefix); problem != "" {
			report(diagnostic.Error, "claimMappings.username.prefix", problem, "nobody could log in")
		}
		if problem := cannotPass(one.Config.ClaimMappings.Groups.Prefix); problem != "" {
			report(diagnostic.Error, "claimMappings.groups.prefix", problem, "nobody with a group could log in")
		}
	}
	return known, found
}

// withoutPassword is upstream's message about an issuer. One about a URL quotes
// it, and a URL may have a password in it, which is refused, too.
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

// quoteURL shows what may be a URL, unless there may be a password in it.
func quoteURL(url string) string {
	if strings.Contains(url, "@") {
		return `the url, not shown because what stands before its "@" may be a password,`
	}
	return quote(url)
}

// cannotPass says why no name with a prefix passes the guard, if none does.
func cannotPass(prefix *string) string {
	if prefix == nil || *prefix == "" {
		return ""
	}
	f := nameFault(*prefix + "x")
	if f == faultReserved {
		return quote(*prefix) + ": the identity guard refuses every name that begins so"
	}
	if f != "" {
		return quote(*prefix) + " " + string(f)
	}
	return ""
}

// authenticationConfiguration is the object of findings about either document of
// this kind.
const authenticationConfiguration = "AuthenticationConfiguration"

// configurationProblems collects findings about our configuration.
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
		p.error(field, fmt.Sprintf("%q is not from %s to %s", got, least, most), "")
	}
}
