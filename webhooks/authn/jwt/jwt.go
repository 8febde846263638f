// Package jwt verifies JSON Web Tokens of the issuers in upstream's
// AuthenticationConfiguration, and maps their claims to a user, with the results
// of the API server's own authenticator.
//
// Loading, validation and CEL are upstream's, and crypto verifies signatures. Parsing
// and the rules for claims are our own: they are the hot path, their clock is a
// parameter, and keys come from a Keys that never fetches because of a forged signature.
package jwt

import (
	"context"
	"crypto"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Key is a public key of an issuer.
type Key struct {
	// ID is the key's kid, "" if it has none.
	ID string
	// Algorithm is the key's alg, such as "RS256"; "" is for every algorithm of
	// its type.
	Algorithm string
	// Public is an *rsa.PublicKey or an *ecdsa.PublicKey.
	Public crypto.PublicKey
}

// Keys are the keys of one issuer. An implementation is safe for concurrent use.
type Keys interface {
	// Find returns the keys that a token with this key id may be signed with: those
	// of the id, or all keys for a token without one. No key and no error mean that the
	// issuer has no such key, which is a definite no. An error means "cannot decide"; its
	// text is short and names no secret.
	//
	// The result is shared and must not be written to.
	Find(ctx context.Context, id string) ([]Key, error)
}

// Proof is the result of a verified token.
type Proof struct {
	// User is the mapped identity. The guard has not seen it.
	User authenticationv1.UserInfo
	// ID is the claim jti, "" if there is none.
	ID string
	// Subject is the claim sub, and Session the claim sid; "" if there is none.
	Subject, Session string
	// Overage reports whether the token says that its groups were left out.
	Overage bool
	// IssuedAt is the claim iat, zero if there is none, and ExpiresAt is exp.
	IssuedAt, ExpiresAt time.Time
}

// Reason is why a token was rejected. The set of reasons is bounded.
type Reason string

const (
	// Malformed is a token that is not a JWT in compact form with each claim once.
	Malformed Reason = "malformed"
	// Foreign is a token of another issuer.
	Foreign Reason = "foreign"
	// Algorithm is a token that is unsigned, or signed with an algorithm that is not accepted.
	Algorithm Reason = "algorithm"
	// UnknownKey is a token with a key id that its issuer does not have.
	UnknownKey Reason = "unknown-key"
	// Signature is a token with a signature that no key verifies.
	Signature Reason = "signature"
	// Expired is a token past its exp, or without one.
	Expired Reason = "expired"
	// NotYetValid is a token before its nbf.
	NotYetValid Reason = "not-yet-valid"
	// Audience is a token for other audiences.
	Audience Reason = "audience"
	// Claims is a token whose claims do not pass the configuration's mappings and
	// rules.
	Claims Reason = "claims"
)

// Refusal is a definite no. Its text is for the operator and the holder of the token: it
// may quote claims, and never quotes the signature.
//
//nolint:errname // an answer that is returned as an error, and named for what it is
type Refusal struct {
	Reason Reason
	Detail string
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Detail }
