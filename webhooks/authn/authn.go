// Package authn answers token reviews: it is the authentication endpoint as a
// pure function from a review to a response.
//
// Compile does all the work and all the checking; the Set that it returns is
// immutable and only looks things up. A token goes to exactly one backend,
// chosen by the token's shape, so that no backend ever sees a credential meant
// for another. Whatever a backend says yes to then passes the identity guard,
// because the API server believes whatever it is told, system:masters
// included.
//
// There are three outcomes. A definite no is authenticated: false without an
// error: the API server caches it, for two minutes unless told otherwise. Could
// not tell is authenticated: false with an error: the API server caches
// nothing and asks again. The reason for an answer is for the operator's log
// only; the client learns nothing but the outcome.
package authn

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Token is an AccessToken and the place that it was read from.
type Token struct {
	// Source is the file and document, "tokens/ci.yaml#2", or "cluster" of a custom
	// resource. It is for messages, and decides what those say of other tokens.
	Source string
	v1alpha1.AccessToken
}

// Spec is what Compile makes a Set from. The zero Spec is valid and
// authenticates nobody.
type Spec struct {
	// Tokens are the access tokens that are known. Compile keeps copies.
	Tokens []Token
	// Revocations end what was given to users before a moment.
	Revocations []Revocation
	// Issuers are the issuers whose JWTs are taken. Their URLs differ.
	Issuers []Issuer
	// Directories are where passwords are checked. Their names differ.
	Directories []NamedDirectory
	// Configuration is the rest of what is configured, nil if nothing is.
	Configuration *Configuration
	// LoginKeys are the keys of login tokens, as the configuration names them and
	// in that order. The first signs.
	LoginKeys []LoginKey
	// Attempts slow down guessing. Nil slows down nothing.
	Attempts Attempts
	// Random is where ids of login tokens come from. It is required for logging
	// in, and must be safe for concurrent use.
	Random io.Reader
	// Now is the time by which tokens expire. It is required if there is anything
	// in the Spec, and must be safe for concurrent use.
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
	// KeysJSON is the content of the issuer's keysFile, nil without one: a JSON Web
	// Key Set. Compile does not look at it; it is for whoever fills Keys.
	KeysJSON []byte
	// Keys are the issuer's keys. Nil is an issuer whose keys nobody can know,
	// such as offline: of its tokens nothing can be told.
	Keys jwt.Keys
}

// LoginKey is a key of login tokens.
type LoginKey struct {
	// Name is a DNS-1123 label.
	Name string
	// Secret is at least 32 random bytes.
	Secret []byte
}

// maxTokenBytes bounds the work that a token can cause before anything else
// looks at it. The API server forwards tokens of up to a megabyte; the largest
// real ones, JWTs with some hundred groups, stay below 16 KiB, which is also
// what common proxies allow for all headers together.
const maxTokenBytes = 16 << 10

// Set is a compiled Spec. It is immutable and safe for concurrent use.
type Set struct {
	backends []backend
	tokens   *accessTokens
	guard    guard
	revoked  revoked
	// withdrawn are the ids of access tokens that are not known any more.
	withdrawn map[string]struct{}
	logins    *logins
	warnings  diagnostic.List
}

// backend is one authenticator and the shape of the tokens that it is asked
// about. Shapes of different backends do not overlap.
type backend struct {
	name         Backend
	owns         func(token string) bool
	authenticate authenticator
}

// authenticator finds out what a token proves to the audiences. It is safe for
// concurrent use and keeps neither of its arguments. The trail may be nil.
type authenticator func(ctx context.Context, token string, audiences []string, t *trail) verdict

// verdict is what an authenticator found out. The zero verdict is not a Yes.
type verdict struct {
	outcome Outcome
	reason  Reason
	// source is where the identity comes from, as in a Decision.
	source string
	// tokenID is set if the token is well-formed and has an id.
	tokenID string
	// identity is set for a Yes. It is shared by reviews and not written to.
	identity *authenticationv1.UserInfo
	// audiences, for a Yes, are those of the request that the token is good
	// for; empty means the API server's own.
	audiences []string
	// issuedAt is zero if nobody knows it.
	issuedAt, expiresAt time.Time
	// message, for Unknown, is a short text that names no secret and nothing of the
	// configuration: the API server logs it.
	message string
	// detail is for the operator and names no secret.
	detail string
}

// Decision is the outcome for one token with all that an operator may know.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// Backend is the authenticator that the token was for: one of a bounded set.
	// It is empty for a foreign token.
	Backend Backend
	// Source is where the identity comes from: "access-tokens", the name of a
	// directory, or the URL of an issuer. It is a word of the configuration, never
	// of the token, and empty if the token is of none.
	Source string
	// TokenID is the public id in a well-formed access token or login token, known
	// or not. Of a JWT of an issuer it is the claim jti, or, if there is none or the
	// token is not good, "sha256:" and the first twelve digits of its SHA-256.
	TokenID string
	// Detail tells more to the operator, and to who holds the token. It holds no
	// secret.
	Detail string
	// IssuedAt and ExpiresAt are when the token was issued, if that is known, and
	// when it ends. A login token is as old as its session: the time of the password
	// counts. They are set for a Yes.
	IssuedAt, ExpiresAt time.Time
	// Status is the answer for the API server. Its groups, extra and audiences
	// are shared with other decisions and must not be written to.
	Status authenticationv1.TokenReviewStatus
}

// Step is one thing that was looked at on the way to a Decision.
type Step struct {
	// Name is what was looked at, and Found what was found. Neither holds a secret.
	Name  string `json:"step"`
	Found string `json:"found"`
}

// trail is the steps of a Decision. A nil trail keeps none; where there are
// arguments to add, they cost something all the same, so that it is asked first.
type trail struct{ steps []Step }

func (t *trail) add(name, format string, args ...any) {
	if t != nil {
		t.steps = append(t.steps, Step{Name: name, Found: fmt.Sprintf(format, args...)})
	}
}

// Explain is Decide with every step, for people. It is slower.
func (s *Set) Explain(ctx context.Context, token string, audiences []string) (Decision, []Step) {
	t := &trail{}
	d := s.decide(ctx, token, audiences, t)
	return d, t.steps
}

// Warnings are the findings of Compile that did not keep the Spec from being
// used, in a fixed order. The caller must not write to the list.
func (s *Set) Warnings() diagnostic.List { return s.warnings }

// Review answers a token review. The response holds the status, and what a log
// may hold as annotations under ReasonAnnotation and its neighbours: they are in
// the metadata because nothing of the metadata is part of the protocol, and a
// codec sends the status alone. UID, kind and version are the codec's to set.
// Whatever the request claims in its status is ignored.
//
// The annotations belong to the caller; the rest of the response is shared with
// other responses and must not be written to.
func (s *Set) Review(ctx context.Context, req authentication.Request) authentication.Response {
	d := s.Decide(ctx, req.Spec.Token, req.Spec.Audiences)
	var resp authentication.Response
	resp.Status = d.Status
	// A map of its own for each response costs less than a microsecond; a
	// shared one would make a crash out of any caller that adds a key.
	resp.Annotations = map[string]string{ReasonAnnotation: string(d.Reason)}
	for _, a := range [...]struct{ key, value string }{
		{BackendAnnotation, string(d.Backend)},
		{SourceAnnotation, d.Source},
		{TokenIDAnnotation, d.TokenID},
		{UserAnnotation, d.Status.User.Username},
		{DetailAnnotation, d.Detail},
	} {
		if a.value != "" {
			resp.Annotations[a.key] = a.value
		}
	}
	return resp
}

// Decide is Review without the wire types: what is to be said about a token that
// is shown to the audiences, and why.
func (s *Set) Decide(ctx context.Context, token string, audiences []string) Decision {
	return s.decide(ctx, token, audiences, nil)
}

func (s *Set) decide(ctx context.Context, token string, audiences []string, t *trail) Decision {
	if len(token) > maxTokenBytes {
		if t != nil {
			t.add("size", "%d bytes, more than %d", len(token), maxTokenBytes)
		}
		return s.conclude("", verdict{outcome: No, reason: ReasonMalformed}, audiences, t)
	}
	for i := range s.backends {
		if b := &s.backends[i]; b.owns(token) {
			if t != nil {
				t.add("shape", "%s", b.name.shape())
			}
			return s.conclude(b.name, b.authenticate(ctx, token, audiences, t), audiences, t)
		}
	}
	t.add("shape", "neither an access token, nor a login token, nor a JWT")
	return s.conclude("", verdict{outcome: No, reason: ReasonForeign}, audiences, t)
}

// conclude is the one way from a backend's verdict to a decision, and guard and
// revocations stand on it: an identity that they refuse is a definite no, since
// the same token will prove the same identity again.
func (s *Set) conclude(by Backend, v verdict, audiences []string, t *trail) Decision {
	d := Decision{Outcome: v.outcome, Reason: v.reason, Backend: by, Source: v.source, TokenID: v.tokenID, Detail: v.detail}
	switch v.outcome {
	case Yes:
		if by == AccessTokens && s.isWithdrawn(v.tokenID) {
			t.add("revocation", "the access token was removed")
			return s.conclude(by, unknownID(v.tokenID), audiences, t)
		}
		if v.identity == nil {
			d.Outcome, d.Reason = No, ReasonGuard
			return d
		}
		if found := s.guard.violations(by, v.source, v.identity); len(found) > 0 {
			d.Outcome, d.Reason = No, ReasonGuard
			d.Detail = detailOf(found)
			for _, one := range found {
				t.add("guard", "%s: %s", one.field, one.message)
			}
			return d
		}
		t.add("guard", "refuses nothing")
		if before, ends := s.revoked.ends(v.identity.Username, v.issuedAt); ends {
			d.Outcome, d.Reason = No, ReasonRevoked
			d.Detail = fmt.Sprintf("tokens of %s issued before %s are revoked", quote(v.identity.Username), before.UTC().Format(time.RFC3339))
			t.add("revocation", "%s", d.Detail)
			return d
		}
		d.IssuedAt, d.ExpiresAt = v.issuedAt, v.expiresAt
		d.Status.Authenticated = true
		d.Status.User = *v.identity
		d.Status.Audiences = v.audiences
	case Unknown:
		d.Status.Error = v.message
		if d.Status.Error == "" {
			d.Status.Error = "token could not be checked"
		}
		// The API server compares audiences before it looks at the error: an
		// answer without any stands for its own audiences, and for a review
		// about other ones the error would turn into a no, which it caches.
		d.Status.Audiences = slices.Clone(audiences)
	case No:
	default:
		d.Outcome = Unknown
		d.Status.Error = "token could not be checked"
	}
	return d
}

// KnownID returns the Set's own text of the id of an access token that was
// compiled, so that who keeps it keeps no copy, and whether there is such a token.
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

// isWithdrawn tells whether an access token was removed after the Set was
// compiled.
func (s *Set) isWithdrawn(id string) bool {
	_, is := s.withdrawn[id]
	return is
}
