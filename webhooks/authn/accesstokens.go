package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// accessTokens authenticates access tokens by their id and their hash. The hash needs
// neither salt nor stretching, because 200 random bits cannot be guessed, and must be
// fast: every bearer token that the API server does not know causes one look-up.
type accessTokens struct {
	byID map[string]*accessToken
	now  func() time.Time
}

// accessToken is one compiled token. There may be a hundred thousand.
type accessToken struct {
	id     string
	digest [sha256.Size]byte
	// issuedAt is zero if the document does not say it.
	issuedAt, expiresAt time.Time
	user                authenticationv1.UserInfo
	audiences           []string
	// scope is nil for a token without one.
	scope *v1alpha1.TokenScope
}

// newAccessTokens checks and compiles the tokens, expired ones included. It keeps copies.
// The diagnostics are in the order of the tokens; with an error among them, the tokens
// must not be used. The clock is called if there are tokens.
func newAccessTokens(
	tokens []Token, clock func() time.Time, scopes *authz.Set, violations func(*authenticationv1.UserInfo) []guard.Violation,
) (*accessTokens, diagnostic.List) {
	a := &accessTokens{byID: make(map[string]*accessToken, len(tokens)), now: clock}
	if len(tokens) == 0 {
		return a, nil
	}
	c := tokenChecker{
		now: clock(), violations: violations, scopes: scopes,
		ids: make(map[string]*Token, len(tokens)), hashes: make(map[[sha256.Size]byte]*Token, len(tokens)),
	}
	// One allocation for all of them.
	known := make([]accessToken, len(tokens))
	for i := range tokens {
		t := &tokens[i]
		known[i] = accessToken{
			id:        t.Name,
			digest:    c.check(t),
			issuedAt:  t.CreationTimestamp.UTC(),
			expiresAt: t.Spec.ExpiresAt.UTC(),
			user:      *t.Spec.User.DeepCopy(),
			audiences: slices.Clone(t.Spec.Audiences),
			scope:     t.Spec.Scope.DeepCopy(),
		}
		a.byID[known[i].id] = &known[i]
	}
	return a, c.found
}

// authenticate is the authenticator of access tokens. It needs no context: it
// waits for nothing.
func (a *accessTokens) authenticate(_ context.Context, in *Input, e *explanation) verdict {
	token, audiences := in.Token, in.Audiences
	id, err := ParseToken(token)
	switch {
	case errors.Is(err, errForeign):
		return verdict{outcome: No, reason: ReasonForeign}
	case err != nil:
		// The error describes access tokens, and nothing of this one.
		return verdict{outcome: No, reason: ReasonMalformed, detail: err.Error()}
	}
	known, ok := a.byID[id]
	if !ok {
		// A copy, so that a log line does not hold on to the token.
		return unknownID(strings.Clone(id))
	}
	v := verdict{outcome: No, source: v1alpha1.AccessTokensSource, tokenID: known.id}
	var buf [maxTokenChars]byte
	digest := sha256.Sum256(append(buf[:0], token...))
	same := subtle.ConstantTimeCompare(digest[:], known.digest[:]) == 1
	now := a.now()
	if e != nil {
		known.explain(e, same, now, audiences)
	}
	if !same {
		v.reason = ReasonWrongSecret
		return v
	}
	if !now.Before(known.expiresAt) {
		v.reason = ReasonExpired
		return v
	}
	good, ok := goodAudiences(known.audiences, audiences)
	if !ok {
		v.reason = ReasonAudience
		return v
	}
	v.outcome, v.reason = Yes, ReasonOK
	v.identity, v.audiences = &known.user, good
	v.issuedAt, v.expiresAt, v.scope = known.issuedAt, known.expiresAt, known.scope
	return v
}

// explain adds the steps of a look-up. Without the secret of the token there are few.
func (t *accessToken) explain(e *explanation, same bool, now time.Time, requested []string) {
	e.add("id", "%s is known", quote(t.id))
	if !same {
		e.add("hash", "does not match the document: the secret is another one, such as that of an earlier token with this id")
		return
	}
	e.add("hash", "matches the document")
	state := "in the future"
	if !now.Before(t.expiresAt) {
		state = "in the past"
	}
	e.add("expires", "%s, %s", t.expiresAt.Format(time.RFC3339), state)
	good, ok := goodAudiences(t.audiences, requested)
	switch {
	case len(t.audiences) == 0:
		e.add("audiences", "the token has none, so it is valid for the API server's own")
	case !ok && len(requested) == 0:
		e.add("audiences", "none was requested, and the token is bound to %q", t.audiences)
	case !ok:
		e.add("audiences", "none of the requested ones is among the token's, %q", t.audiences)
	default:
		e.add("audiences", "the token is valid for %q of the requested ones", good)
	}
}

// tokenChecker checks tokens, each by itself and against those before it.
type tokenChecker struct {
	now        time.Time
	violations func(*authenticationv1.UserInfo) []guard.Violation
	scopes     *authz.Set
	ids        map[string]*Token
	hashes     map[[sha256.Size]byte]*Token
	found      diagnostic.List
}

// check checks one token and returns its hash.
func (c *tokenChecker) check(t *Token) [sha256.Size]byte {
	report := func(severity diagnostic.Severity, field, message, hint string) {
		c.found = append(c.found, diagnostic.Diagnostic{
			Severity: severity, Source: t.Source, Object: object(t),
			Field: field, Message: message, Hint: hint,
		})
	}

	if !isLabel(t.Name) {
		report(diagnostic.Error, "metadata.name", quote(t.Name)+` must be a DNS-1123 label, because it is the token's id: `+
			`1 to 63 lower-case letters, digits and "-", with a letter or a digit at both ends`, "")
	} else if first, taken := c.ids[t.Name]; taken {
		report(diagnostic.Error, "metadata.name", fmt.Sprintf("%s is already the id of the token in %s", quote(t.Name), place(first)),
			"issue one of the two tokens again with another id")
	} else {
		c.ids[t.Name] = t
	}

	digest, message, hint := parseDigest(t.Spec.SHA256)
	if message != "" {
		report(diagnostic.Error, "spec.sha256", message, hint)
	} else if first, taken := c.hashes[digest]; taken {
		report(diagnostic.Error, "spec.sha256", "is already the hash of "+other(t, first),
			"a token contains its id, so two ids cannot share a token: issue a token for each")
		c.found[len(c.found)-1].Others = object(first)
	} else {
		c.hashes[digest] = t
	}

	for _, v := range c.violations(&t.Spec.User) {
		report(diagnostic.Error, "spec.user."+v.Field, v.Message, "")
	}

	switch {
	case t.Spec.ExpiresAt.IsZero():
		report(diagnostic.Error, "spec.expiresAt", "is missing: every access token must expire", `for example "2027-01-31T00:00:00Z"`)
	case !c.now.Before(t.Spec.ExpiresAt.Time):
		report(diagnostic.Warning, "spec.expiresAt", fmt.Sprintf("%q is in the past: the token is rejected", t.Spec.ExpiresAt.UTC().Format(time.RFC3339)),
			"delete the document, or issue a new token")
	}

	if scope := t.Spec.Scope; scope != nil {
		for _, problem := range c.scopes.CheckScope("spec.scope", scope) {
			report(problem.Severity, problem.Field, problem.Message, problem.Hint)
		}
	}

	for i, audience := range t.Spec.Audiences {
		if audience == "" {
			report(diagnostic.Error, fmt.Sprintf("spec.audiences[%d]", i), `"" must not be empty`,
				"without audiences, the token is valid for the API server's own")
		}
	}
	return digest
}

// parseDigest parses spec.sha256. If it is invalid, the message says why, and quotes
// nothing but hexadecimal digits: a wrong value may be the secret.
func parseDigest(text string) (digest [sha256.Size]byte, message, hint string) {
	const want = "64 lower-case hexadecimal digits"
	isHex := strings.Trim(text, "0123456789abcdefABCDEF") == ""
	switch {
	case text == "":
		return digest, "is missing: the SHA-256 of the token, " + want, "gatehouse token issue writes it"
	case isAccessToken(text):
		return digest, "contains a token, and must contain its hash: " + want,
			"anyone who can read this document has the token: delete it and issue a new one"
	case !isHex:
		return digest, fmt.Sprintf("must be %s, and has %d bytes of other text", want, len(text)), ""
	case len(text) != 2*len(digest) || strings.ToLower(text) != text:
		return digest, fmt.Sprintf("%s is not %s", quote(text), want), ""
	}
	if _, err := hex.Decode(digest[:], []byte(text)); err != nil {
		return digest, "must be " + want, ""
	}
	return digest, "", ""
}

// object is the name of a token in diagnostics.
func object(t *Token) string { return "AccessToken/" + t.Name }

// clusterSource is the Source of tokens that are custom resources.
const clusterSource = "cluster"

// other names the token that has the hash of t already. Messages about tokens in the
// cluster do not name tokens and files of the directory, which their authors need not
// know.
func other(t, first *Token) string {
	if t.Source == clusterSource && first.Source != clusterSource {
		return "another token, in the directory"
	}
	return object(first) + " in " + place(first)
}

// place is the source of a token in the message about another one.
func place(t *Token) string {
	if t.Source == "" {
		return "another document"
	}
	return t.Source
}
