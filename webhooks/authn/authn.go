// Package authn decides about tokens: it is the endpoint /authenticate as a pure function from a token to an identity.
// Compile checks the configuration and does all the work that does not depend on a token; the Set that it returns is
// immutable.
//
// Decide takes six steps. match chooses the one backend for the form of the token, so that no backend sees a credential
// that is meant for another. The backend finds the identity. check applies the guard and revocations, because the API
// server accepts any identity from a webhook, even system:masters. addGrants adds the groups that
// the user has for a time, and addScope the scope that bounds the token. conclude makes the answer.
//
// There are three outcomes. "No" is authenticated: false without an error, which the API server caches, for two minutes by
// default. "Cannot decide" is authenticated: false with an error, which it does not cache. The reason for an answer is for
// the operator's log; the client learns only the outcome.
package authn

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Token is an AccessToken and the place that it was read from.
type Token struct {
	// Source is the file and document, "tokens/ci.yaml#2", or "cluster" of a custom
	// resource. It is for messages: those about a custom resource do not name files.
	Source string
	v1alpha1.AccessToken
}

// Spec is what Compile makes a Set from. The zero Spec is valid and
// authenticates nobody.
type Spec struct {
	// Tokens are the access tokens that are known. Compile keeps copies.
	Tokens []Token
	// Revocations end the tokens that were issued to users before a time.
	Revocations []Revocation
	// Grants give users groups for a time. Compile keeps copies.
	Grants []Grant
	// Issuers are the issuers whose JWTs are accepted. Their URLs differ.
	Issuers []Issuer
	// Directories check passwords. Their names differ.
	Directories []NamedDirectory
	// Configuration is the rest of the configuration, nil if there is none.
	Configuration *Configuration
	// LoginKeys are the keys of login tokens, as the configuration names them and
	// in that order. The first signs.
	LoginKeys []LoginKey
	// Random is the source of ids of login tokens. It is required for logins, and must
	// be safe for concurrent use.
	Random io.Reader
	// ScopesEnforced returns nil as long as the API server is known to ask about requests of tokens with a scope, and else why
	// it is not. Without it, these tokens are rejected. It must be fast, and safe for concurrent use.
	ScopesEnforced func() error
	// Now is the clock. It is required unless the Spec is empty, and must be safe for
	// concurrent use.
	Now func() time.Time
}

// Revocation is a TokenRevocation and the place that it was read from.
type Revocation struct {
	Source string
	v1alpha1.TokenRevocation
}

// Configuration is an AuthenticationConfiguration and the place that it was read
// from.
type Configuration struct {
	Source string
	v1alpha1.AuthenticationConfiguration
}

// Issuer is one of upstream's JWT authenticators.
type Issuer struct {
	// Source is the file and document that it was read from, and Field the path
	// in there, "jwt[0]".
	Source, Field string
	// Config is upstream's configuration, with upstream's defaults.
	Config *apiserver.JWTAuthenticator
	// Keys are the issuer's keys: a *jwt.KeySet of its keysFile, or those that are fetched.
	// Nil is an issuer whose keys are unavailable, such as offline: its tokens cannot be
	// decided on.
	Keys jwt.Keys
	// Groups are the look-ups of the issuer's groupSources, in their order. They may be
	// missing, such as offline: the groups of these sources are unknown.
	Groups []GroupLookup
}

// LoginKey is a key of login tokens.
type LoginKey struct {
	// Name is a DNS-1123 label.
	Name string
	// Secret is at least 32 random bytes.
	Secret []byte
}

// maxTokenBytes bounds the work that a token can cause. The API server forwards tokens of up to a megabyte; the largest
// real ones, JWTs with some hundred groups, stay below 16 KiB, which is also
// what common proxies allow for all headers together.
const maxTokenBytes = 16 << 10

// Set is a compiled Spec. It is immutable and safe for concurrent use.
type Set struct {
	backends []backend
	tokens   *accessTokens
	// issuers are nil without any.
	issuers *issuers
	guard   guard.Guard
	revoked revoked
	// withdrawn are the ids of access tokens that were removed after Compile.
	withdrawn map[string]struct{}
	grants    grants
	// pastGrants is how many valid Grants are not among them because they have ended.
	pastGrants int
	// withdrawnGrants are the names of Grants that were removed after Compile.
	withdrawnGrants map[string]struct{}
	// now is set if there are grants.
	now      func() time.Time
	logins   *logins
	warnings diagnostic.List
	// scopes are the named scopes, and scopesEnforced is that of the Spec.
	scopes         *authz.Set
	scopesEnforced func() error
}

// backend is one authenticator and the shape of its tokens. Shapes of different backends
// do not overlap.
type backend struct {
	name         Backend
	matches      func(token string) bool
	authenticate authenticator
}

// authenticator looks up the identity that a token proves to the audiences. It is safe
// for concurrent use and keeps neither of its arguments. The explanation may be nil.
type authenticator func(ctx context.Context, in *Input, e *explanation) verdict

// verdict is the result of an authenticator. The zero verdict is not a Yes.
type verdict struct {
	outcome Outcome
	reason  Reason
	// source is that of a Decision.
	source string
	// tokenID is set if the token is well-formed and has an id.
	tokenID string
	// identity is set for a Yes. It is shared by reviews and not written to.
	identity *authenticationv1.UserInfo
	// audiences, for a Yes, are those of the request that the token is good for; empty
	// means the API server's own.
	audiences []string
	// issuedAt is zero if it is not known.
	issuedAt, expiresAt time.Time
	// message, for Unknown, is short and names no secret and nothing of the
	// configuration: the API server logs it.
	message string
	// detail is for the operator and names no secret.
	detail string
	// claims are set for a JWT, and for a login token that one was exchanged for.
	claims jwtClaims
	// groups are where the groups of a JWT come from, if its issuer has group sources.
	groups []GroupOrigin
	// scope bounds the token of a Yes, nil for one that may do what its user may do.
	scope *v1alpha1.TokenScope
	// grants gave groups to a Yes.
	grants []ActiveGrant
}

// jwtClaims are the claims of a JWT by which it can be revoked, "" without them.
type jwtClaims struct{ id, session, subject string }

// Decision is the outcome for one token, with the reasons for the operator.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// Backend is the authenticator that the token is for, empty for a foreign token.
	Backend Backend
	// Source is the source of the identity: "access-tokens", the name of a directory, or
	// the URL of an issuer. It is the string of the configuration, never of the token, and
	// empty if the token is of none.
	Source string
	// TokenID is the public id in a well-formed access token or login token, known
	// or not. Of a JWT of an issuer it is the claim jti, or, if there is none or the
	// token is not good, "sha256:" and the first twelve digits of its SHA-256.
	TokenID string
	// Detail is further information for the operator and the holder of the token. It
	// holds no secret.
	Detail string
	// IssuedAt and ExpiresAt are set for a Yes. IssuedAt is zero if it is not known; a
	// login token was issued when its session began.
	IssuedAt, ExpiresAt time.Time
	// Status is the answer for the API server. Its groups, extra and audiences
	// are shared with other decisions and must not be written to.
	Status authenticationv1.TokenReviewStatus
	// Groups are where the groups of a Yes come from, nil if all are of the token or the
	// directory.
	Groups []GroupOrigin
	// Grants are those that gave groups to the user of a Yes. Their groups must not be written
	// to.
	Grants []ActiveGrant
	// Steps are those on the way to the Decision, if they were requested.
	Steps []Step
}

// Step is one step on the way to a Decision.
type Step struct {
	// Name is the subject of the step, and Found its result. Neither holds a secret.
	Name  string `json:"step"`
	Found string `json:"found"`
}

// explanation collects the steps of a Decision. A nil explanation collects none; callers
// that pass arguments check it first, because they cost allocations.
type explanation struct{ steps []Step }

func (e *explanation) add(name, format string, args ...any) {
	if e != nil {
		e.steps = append(e.steps, Step{Name: name, Found: fmt.Sprintf(format, args...)})
	}
}

// Warnings returns the warnings of Compile, in a fixed order. The caller must not write to
// the list.
func (s *Set) Warnings() diagnostic.List { return s.warnings }

// Response returns the answer to a token review. It holds the status, and as annotations the
// rest of the Decision, for the log: they are in the metadata because nothing of the
// metadata is part of the protocol, and a codec sends the status alone. The codec sets
// UID, kind and version.
//
// The annotations belong to the caller; the rest of the response is shared with other
// responses and must not be written to.
func (d Decision) Response() authentication.Response {
	var resp authentication.Response
	resp.Status = d.Status
	// Each response has a map of its own, which costs less than a microsecond: callers may
	// add keys.
	resp.Annotations = map[string]string{reasonAnnotation: string(d.Reason)}
	for _, a := range [...]struct{ key, value string }{
		{backendAnnotation, string(d.Backend)},
		{sourceAnnotation, d.Source},
		{tokenIDAnnotation, d.TokenID},
		{userAnnotation, d.Status.User.Username},
		{detailAnnotation, d.Detail},
	} {
		if a.value != "" {
			resp.Annotations[a.key] = a.value
		}
	}
	return resp
}

// Input is a token that is shown to audiences.
type Input struct {
	Token     string
	Audiences []string
	// Explain requests Decision.Steps.
	Explain bool
	// Pause, if set, runs a wait for a group source: the caller may let others decide
	// meanwhile.
	Pause func(wait func())
}

// Decide takes a token from its shape to the answer.
func (s *Set) Decide(ctx context.Context, in Input) Decision {
	if !in.Explain {
		return s.decide(ctx, &in, nil)
	}
	e := &explanation{}
	d := s.decide(ctx, &in, e)
	d.Steps = e.steps
	return d
}

func (s *Set) decide(ctx context.Context, in *Input, e *explanation) Decision {
	token, audiences := in.Token, in.Audiences
	if len(token) > maxTokenBytes {
		detail := fmt.Sprintf("%d bytes, at most %d", len(token), maxTokenBytes)
		e.add("size", "%s", detail)
		return conclude("", verdict{outcome: No, reason: ReasonTooLarge, detail: detail}, audiences)
	}
	b := s.match(token, e)
	if b == nil {
		return conclude("", verdict{outcome: No, reason: ReasonForeign}, audiences)
	}
	v := b.authenticate(ctx, in, e)
	if v.outcome == Yes {
		v = s.check(b.name, v, e)
	}
	if v.outcome == Yes {
		v = s.addScope(s.addGrants(v, e), e)
	}
	return conclude(b.name, v, audiences)
}

// match returns the backend for a token, or nil if there is none.
func (s *Set) match(token string, e *explanation) *backend {
	for i := range s.backends {
		if b := &s.backends[i]; b.matches(token) {
			if e != nil {
				e.add("shape", "%s", b.name.shape())
			}
			return b
		}
	}
	e.add("shape", "neither an access token, nor a login token, nor a JWT")
	return nil
}

// check applies the guard and revocations to a Yes. An identity that they reject is a
// definite No, since the same token will prove the same identity again.
func (s *Set) check(by Backend, v verdict, e *explanation) verdict {
	no := func(reason Reason, detail string) verdict {
		return verdict{outcome: No, reason: reason, source: v.source, tokenID: v.tokenID, detail: detail}
	}
	if _, withdrawn := s.withdrawn[v.tokenID]; withdrawn && by == AccessTokens {
		e.add("revocation", "the access token was removed")
		return unknownID(v.tokenID)
	}
	if v.identity == nil {
		return no(ReasonGuard, "")
	}
	if found := s.violations(v.source, v.identity); len(found) > 0 {
		for _, one := range found {
			e.add("guard", "%s: %s", one.Field, one.Message)
		}
		return no(ReasonGuard, guard.Summary(found))
	}
	e.add("guard", "rejects nothing")
	for _, by := range [...]revokedBy{
		{"", userName, v.identity.Username}, {v.source, "jti", v.claims.id}, {v.source, "sid", v.claims.session}, {v.source, "sub", v.claims.subject},
	} {
		if detail := s.revoked.find(by, v.issuedAt); detail != "" {
			e.add("revocation", "%s", detail)
			return no(ReasonRevoked, detail)
		}
	}
	return v
}

// violations returns the reasons for which the guard rejects an identity of a source.
func (s *Set) violations(source string, u *authenticationv1.UserInfo) []guard.Violation {
	if s.issuers.find(source) != nil {
		// Upstream's JWT authenticator itself makes the credential id of the claim jti.
		return s.guard.Violations(source, u, user.CredentialIDKey)
	}
	return s.guard.Violations(source, u)
}

// conclude returns the decision of a verdict. It authenticates nobody unless the verdict
// is a Yes.
func conclude(by Backend, v verdict, audiences []string) Decision {
	d := Decision{Outcome: v.outcome, Reason: v.reason, Backend: by, Source: v.source, TokenID: v.tokenID, Detail: v.detail}
	switch v.outcome {
	case Yes:
		d.IssuedAt, d.ExpiresAt = v.issuedAt, v.expiresAt
		d.Groups, d.Grants = v.groups, v.grants
		d.Status.Authenticated = true
		d.Status.User = *v.identity
		d.Status.Audiences = v.audiences
	case Unknown:
		d.Status.Error = cmp.Or(v.message, "the token cannot be verified")
		// The API server compares audiences before it reads the error: an answer without
		// any stands for its own audiences, and for a review about other ones the error
		// would become a No, which it caches.
		d.Status.Audiences = slices.Clone(audiences)
	case No:
	default:
		d.Outcome = Unknown
		d.Status.Error = "the token cannot be verified"
	}
	return d
}

// KnownID returns the Set's own string of the id of an access token, and whether there is
// such a token. A caller that keeps the string keeps no copy.
func (s *Set) KnownID(id string) (string, bool) {
	if s.tokens == nil {
		return "", false
	}
	token, known := s.tokens.byID[id]
	if !known {
		return "", false
	}
	return token.id, true
}

func quote(s string) string { return guard.Quote(s) }
