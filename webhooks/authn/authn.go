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
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
)

// Token is an AccessToken and the place that it was read from.
type Token struct {
	// Source is the file and document, "tokens/ci.yaml#2", only for messages.
	Source string
	v1alpha1.AccessToken
}

// Spec is what Compile makes a Set from. The zero Spec is valid and
// authenticates nobody.
type Spec struct {
	// Tokens are the access tokens that are known. Compile keeps copies.
	Tokens []Token
	// Now is the time by which tokens expire. It is required if there are
	// tokens, is called once for each review of one, and must be safe for
	// concurrent use.
	Now func() time.Time
}

// Outcome is one of the three answers to a token.
type Outcome string

const (
	// Yes means that the token proves the identity in the status.
	Yes Outcome = "yes"
	// No means that the token proves nothing, now and when asked again.
	No Outcome = "no"
	// Unknown means that it could not be told; asking again may help.
	Unknown Outcome = "unknown"
)

// Reason says why a token had its outcome. The set of reasons is bounded, so
// that a metric may carry one as a label, and no reason says anything about the
// text of a token.
type Reason string

const (
	// ReasonOK is the reason of every Yes.
	ReasonOK Reason = "ok"
	// ReasonForeign is a token whose shape belongs to no backend, such as an
	// expired service account token: every bearer token that no other
	// authenticator of the API server accepted arrives here.
	ReasonForeign Reason = "foreign"
	// ReasonMalformed is a token that is too long, or that begins as an access
	// token and is not one: cut off, mistyped, wrong check.
	ReasonMalformed Reason = "malformed"
	// ReasonUnknownID is a well-formed access token whose id is not known here.
	ReasonUnknownID Reason = "unknown-id"
	// ReasonWrongSecret is an access token of a known id and another hash.
	ReasonWrongSecret Reason = "wrong-secret"
	// ReasonExpired is an access token past its expiresAt.
	ReasonExpired Reason = "expired"
	// ReasonAudience is a token that is good for other audiences only.
	ReasonAudience Reason = "audience"
	// ReasonGuard is an identity that the guard refused.
	ReasonGuard Reason = "guard"
)

const (
	// ReasonAnnotation on a response carries the Reason.
	ReasonAnnotation = "gatehouse.dev/reason"
	// TokenIDAnnotation on a response carries the token's id, where the token
	// was well-formed. An id is public: it is the name of an AccessToken.
	TokenIDAnnotation = "gatehouse.dev/token-id"
)

// maxTokenBytes bounds the work that a token can cause before anything else
// looks at it. The API server forwards tokens of up to a megabyte; the largest
// real ones, JWTs with some hundred groups, stay below 16 KiB, which is also
// what common proxies allow for all headers together.
const maxTokenBytes = 16 << 10

// Set is a compiled Spec. It is immutable and safe for concurrent use.
type Set struct {
	backends []backend
	warnings finding.List
}

// backend is one authenticator and the shape of the tokens that it is asked
// about. Shapes of different backends do not overlap.
type backend struct {
	owns         func(token string) bool
	authenticate authenticator
}

// authenticator finds out what a token proves to the audiences. It is safe for
// concurrent use and keeps neither of its arguments.
type authenticator func(ctx context.Context, token string, audiences []string) verdict

// verdict is what an authenticator found out. The zero verdict is not a Yes.
type verdict struct {
	outcome Outcome
	reason  Reason
	// tokenID is set if the token is well-formed and has an id.
	tokenID string
	// identity is set for a Yes. It is shared by reviews and not written to.
	identity *authenticationv1.UserInfo
	// audiences, for a Yes, are those of the request that the token is good
	// for; empty means the API server's own.
	audiences []string
	// message, for Unknown, is a short text that names no secret.
	message string
}

// Decision is the outcome for one token with all that an operator may know.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// TokenID is the id in a well-formed access token, known or not.
	TokenID string
	// Status is the answer for the API server. Its groups, extra and audiences
	// are shared with other decisions and must not be written to.
	Status authenticationv1.TokenReviewStatus
}

// Warnings are the findings of Compile that did not keep the Spec from being
// used, in a fixed order. The caller must not write to the list.
func (s *Set) Warnings() finding.List { return s.warnings }

// Review answers a token review. The response holds the status, and the
// decision's reason and token id as annotations under ReasonAnnotation and
// TokenIDAnnotation, which are for the caller's log: they are in the metadata
// because nothing of the metadata is part of the protocol, and a codec sends
// the status alone. UID, kind and version are the codec's to set. Whatever the
// request claims in its status is ignored.
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
	if d.TokenID != "" {
		resp.Annotations[TokenIDAnnotation] = d.TokenID
	}
	return resp
}

// Decide is Review without the wire types: what is to be said about a token that
// is shown to the audiences, and why.
func (s *Set) Decide(ctx context.Context, token string, audiences []string) Decision {
	if len(token) > maxTokenBytes {
		return conclude(verdict{outcome: No, reason: ReasonMalformed}, audiences)
	}
	for i := range s.backends {
		if b := &s.backends[i]; b.owns(token) {
			return conclude(b.authenticate(ctx, token, audiences), audiences)
		}
	}
	return conclude(verdict{outcome: No, reason: ReasonForeign}, audiences)
}

// conclude is the one way from a backend's verdict to a decision, and the guard
// stands on it: an identity that it refuses is a definite no, since the same
// token will prove the same identity again.
func conclude(v verdict, audiences []string) Decision {
	d := Decision{Outcome: v.outcome, Reason: v.reason, TokenID: v.tokenID}
	switch v.outcome {
	case Yes:
		if v.identity == nil || len(violations(v.identity)) > 0 {
			d.Outcome, d.Reason = No, ReasonGuard
			return d
		}
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
