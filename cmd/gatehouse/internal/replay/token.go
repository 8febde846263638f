package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// The kinds of Rule for logins.
const (
	tokenRule     = "AccessToken"
	issuerRule    = "Issuer"
	directoryRule = "Directory"
)

// tokenAnswer is an answer to a TokenReview.
type tokenAnswer struct {
	decision review.Decision
	user     *authenticationv1.UserInfo
	message  string
}

func (a *tokenAnswer) public() *Answer {
	out := &Answer{Decision: string(a.decision), Message: a.message}
	if a.decision != review.Allowed {
		return out
	}
	out.User, out.Groups = a.user.Username, a.user.Groups
	for key, values := range a.user.Extra {
		if out.Extra == nil {
			out.Extra = map[string][]string{}
		}
		out.Extra[key] = values
	}
	return out
}

// identity returns the recorded identity of a login.
func (i *item) identity() *authenticationv1.UserInfo {
	if i.user == nil {
		i.user = new(authenticationv1.UserInfo)
		if u := rawjson.Value(i.review.Response).Get("status", "user"); u.Kind() == rawjson.Object {
			_ = json.Unmarshal(u, i.user) // what is no identity is none
		}
	}
	return i.user
}

// audiences returns the recorded audiences of a login.
func (i *item) audiences() []string {
	return texts(rawjson.Value(i.review.Response).Get("status", "audiences"))
}

func recordedToken(item *item) answer {
	decision := item.review.Decision
	if decision != review.Allowed && decision != review.Denied {
		decision = review.Unknown
	}
	return answer{decision: decision, token: &tokenAnswer{decision: decision, user: item.identity(), message: item.review.Reason}}
}

// decideToken decides a login by a configuration. The token itself is never recorded: what is known is
// the outcome, the source and the identity. A source whose configuration is that of the recording
// gives the same identity; an access token of the same id counts as the same token.
func (c *configuration) decideToken(item *item) answer {
	t := &tokenReplay{item: item, configuration: c, base: item.base}
	out := t.decide()
	if out.token != nil {
		out.decision = out.token.decision
	}
	return out
}

type tokenReplay struct {
	*configuration

	item *item
	base *configuration
}

func (t *tokenReplay) undecided(format string, args ...any) answer {
	return answer{undecided: firstLine(fmt.Sprintf(format, args...))}
}

func (t *tokenReplay) refused(format string, args ...any) answer {
	return answer{token: &tokenAnswer{decision: review.Denied, message: firstLine(fmt.Sprintf(format, args...))}}
}

// unchanged returns the recorded answer.
func (t *tokenReplay) unchanged() answer { return recordedToken(t.item) }

// noBase returns the answer if the configuration that has decided would have to be known.
func (t *tokenReplay) noBase() answer { return t.undecided("%v", t.item.baseErr) }

func (t *tokenReplay) decide() answer {
	r := t.item.review
	switch authn.Backend(r.Token.Backend) {
	case authn.AccessTokens:
		return t.accessToken(r.Token.ID)
	case authn.JWTs, authn.LoginTokens:
		return t.issued()
	default: // a token for none of the backends
		switch {
		case t.base == nil:
			return t.noBase()
		case !sameSources(t.base, t.configuration):
			return t.undecided("issuers or directories differ, and the token is not recorded")
		}
		return t.unchanged()
	}
}

// sameSources reports whether two configurations have the same issuers and directories.
func sameSources(a, b *configuration) bool {
	issuers := func(c *configuration) map[string]*apiserver.JWTAuthenticator {
		out := map[string]*apiserver.JWTAuthenticator{}
		for i := range c.config.Authn.Issuers {
			out[c.config.Authn.Issuers[i].Config.Issuer.URL] = c.config.Authn.Issuers[i].Config
		}
		return out
	}
	return equality.Semantic.DeepEqual(issuers(a), issuers(b)) && equality.Semantic.DeepEqual(directories(a), directories(b)) && slices.Equal(loginKeys(a), loginKeys(b))
}

func directories(c *configuration) map[string]*v1alpha1.Directory {
	out := map[string]*v1alpha1.Directory{}
	for i := range c.config.Directories {
		out[c.config.Directories[i].Config.Name] = c.config.Directories[i].Config
	}
	return out
}

// loginKeys returns the names of the keys of login tokens.
func loginKeys(c *configuration) (names []string) {
	if c.config.Authn.Configuration == nil || c.config.Authn.Configuration.Login == nil {
		return nil
	}
	for _, key := range c.config.Authn.Configuration.Login.Keys {
		names = append(names, key.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// accessToken decides about an access token by its id.
func (t *tokenReplay) accessToken(id string) answer {
	r, now, was := t.item.review, t.tokens[id], (*authn.Token)(nil)
	if t.base != nil {
		was = t.base.tokens[id]
	}
	switch reason := authn.Reason(r.Reason); {
	case reason == authn.ReasonMalformed || id == "":
		return t.unchanged() // whatever tokens there are
	case now == nil && r.Decision != review.Allowed:
		return t.unchanged()
	case now == nil:
		return t.refused("there is no access token %q", id)
	case r.Decision == review.Unknown:
		return t.undecided("the access token was not known when it was recorded, so that its secret was not checked")
	case reason == authn.ReasonWrongSecret && was != nil && was.Spec.ExpiresAt.Equal(&now.Spec.ExpiresAt) && was.CreationTimestamp.Equal(&now.CreationTimestamp):
		return t.unchanged()
	case reason == authn.ReasonWrongSecret:
		return t.undecided("the secret of the access token was wrong, and the candidate may have another token of the same id")
	case !r.Time.Before(now.Spec.ExpiresAt.Time):
		return t.refused("the access token expired at %s", now.Spec.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if out, same := t.checkAudiences(was, now); !same {
		return out
	}
	out := t.identify(v1alpha1.AccessTokensSource, &now.Spec.User, now.CreationTimestamp.Time, true)
	if before := t.item.identity(); out.token != nil && out.token.decision == review.Allowed && r.Decision == review.Allowed && sameIdentity(before, &now.Spec.User, was) {
		out.token.user = before
	}
	return out
}

// checkAudiences reports whether the token is good for the audiences that it was shown to. Those that
// were asked for are not recorded, those that it was good for are.
func (t *tokenReplay) checkAudiences(was, now *authn.Token) (answer, bool) {
	good := t.item.audiences()
	switch {
	case len(now.Spec.Audiences) == 0 && len(good) == 0 && t.item.review.Decision == review.Allowed:
		return answer{}, true
	case was != nil && equality.Semantic.DeepEqual(was.Spec.Audiences, now.Spec.Audiences):
		if authn.Reason(t.item.review.Reason) == authn.ReasonAudience {
			return t.unchanged(), false
		}
		return answer{}, true
	case slices.ContainsFunc(good, func(a string) bool { return slices.Contains(now.Spec.Audiences, a) }):
		return answer{}, true
	default:
		return t.undecided("the audiences of the access token may differ, and those that were asked for are not recorded"), false
	}
}

// sameIdentity reports whether an identity is the recorded one. The values of extra are redacted
// in a recording; the recorded configuration has them.
func sameIdentity(recorded, now *authenticationv1.UserInfo, was *authn.Token) bool {
	if was != nil {
		return equality.Semantic.DeepEqual(&was.Spec.User, now)
	}
	if recorded.Username != now.Username || recorded.UID != now.UID || !slices.Equal(recorded.Groups, now.Groups) || len(recorded.Extra) != len(now.Extra) {
		return false
	}
	for key, values := range now.Extra {
		before := recorded.Extra[key]
		if !slices.EqualFunc(before, values, func(a, b string) bool { return a == b || redacted.Is(a) }) {
			return false
		}
	}
	return true
}

// issued decides about a token of an issuer or a directory.
func (t *tokenReplay) issued() answer {
	r := t.item.review
	source := r.Token.Source
	kind, is, was := issuerRule, t.issuer(source), any(nil)
	if t.base != nil {
		was = t.base.issuer(source)
	}
	if authn.Backend(r.Token.Backend) == authn.LoginTokens {
		kind, is = directoryRule, t.directory(source)
		if t.base != nil {
			was = t.base.directory(source)
		}
	}
	switch {
	case source == "" && t.base == nil:
		return t.noBase()
	case source == "" && !sameSources(t.base, t.configuration):
		return t.undecided("issuers or directories differ, and the token is not recorded")
	case source == "":
		return t.unchanged()
	case is == nil && r.Decision == review.Allowed:
		return t.refused("%s %q is gone", kind, source)
	case is == nil:
		return t.unchanged()
	case t.base == nil:
		return t.noBase()
	case !equality.Semantic.DeepEqual(is, was):
		return t.undecided("%s %q differs, and the token is not recorded", kind, source)
	case kind == directoryRule && !containsAll(loginKeys(t.configuration), loginKeys(t.base)):
		return t.undecided("a key of login tokens is gone, and the token is not recorded")
	case r.Decision == review.Allowed:
		return t.identify(source, t.item.identity(), time.Time{}, false)
	case t.sameChecks():
		return t.unchanged()
	default:
		return t.undecided("the guard or revocations differ, and the identity of a refused token is not recorded")
	}
}

func containsAll(list, all []string) bool {
	return !slices.ContainsFunc(all, func(one string) bool { return !slices.Contains(list, one) })
}

// issuer returns an issuer, or nil.
func (c *configuration) issuer(url string) any {
	for i := range c.config.Authn.Issuers {
		if one := c.config.Authn.Issuers[i].Config; one.Issuer.URL == url {
			return one
		}
	}
	return nil
}

// directory returns a directory, or nil.
func (c *configuration) directory(name string) any {
	if one := directories(c)[name]; one != nil {
		return one
	}
	return nil
}

// sameChecks reports whether guard and revocations are those of the recording.
func (t *tokenReplay) sameChecks() bool {
	return equality.Semantic.DeepEqual(t.guard, t.base.guard) && maps.Equal(t.revocations(), t.base.revocations())
}

// revocations returns the latest time before which tokens are revoked, by user.
func (c *configuration) revocations() map[string]time.Time {
	out := map[string]time.Time{}
	for i := range c.config.Authn.Revocations {
		one := &c.config.Authn.Revocations[i].Spec
		if one.IssuedBefore.After(out[one.User]) {
			out[one.User] = one.IssuedBefore.UTC()
		}
	}
	return out
}

// identify applies guard and revocations to an identity.
func (t *tokenReplay) identify(source string, u *authenticationv1.UserInfo, issuedAt time.Time, issuedKnown bool) answer {
	keys := []string{}
	if authn.Backend(t.item.review.Token.Backend) == authn.JWTs {
		keys = append(keys, user.CredentialIDKey) // as authn.Set allows it
	}
	if found := t.guard.Violations(source, u, keys...); len(found) > 0 {
		return t.refused("the identity guard refuses %s: %s", found[0].Field, found[0].Message)
	}
	before := t.revocations()[u.Username]
	switch {
	case before.IsZero():
	case issuedKnown && issuedAt.Before(before), !issuedKnown && before.After(t.item.review.Time):
		return t.refused("tokens of %q issued before %s are revoked", u.Username, before.Format(time.RFC3339))
	case issuedKnown:
	case t.base == nil || before.After(t.base.revocations()[u.Username]):
		return t.undecided("whether a token is revoked depends on when it was issued, which the recording does not hold")
	}
	return answer{token: &tokenAnswer{decision: review.Allowed, user: u}}
}

// compareTokens compares two answers to a login.
func compareTokens(item *item, before, after *answer, recorded bool) difference {
	rule := Rule{Kind: issuerRule, Name: short(item.review.Token.Source)}
	switch authn.Backend(item.review.Token.Backend) {
	case authn.AccessTokens:
		rule = Rule{Kind: tokenRule, Name: short(item.review.Token.ID)}
	case authn.LoginTokens:
		rule.Kind = directoryRule
	case authn.JWTs:
	}
	out := compare(before, after, recorded)
	if before.undecided == "" && after.undecided == "" && before.decision == review.Allowed && after.decision == review.Allowed {
		was, is := before.token.user, after.token.user
		if was != is && !sameIdentity(was, is, nil) {
			out.changes = []Change{ChangedIdentity}
		}
	}
	if len(out.changes) > 0 {
		out.rules = []Rule{rule}
	}
	return out
}
