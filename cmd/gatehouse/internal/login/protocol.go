// Package login is the server's side of logins, and the protocol between it and the commands login and whoami.
//
// POST /login takes a Request and answers with an Issued (200) or a Failure. POST /whoami takes the token as a bearer
// token, without a body, and answers with an Answer (200) whether the token is valid or not, or with a Failure if it was
// not evaluated. Anyone who reaches the server may call both, without a client certificate.
//
// GET /login is answered with 405 and a Failure with ReasonMethod. A client uses that to check that the server is a
// Gatehouse before it sends a password.
package login

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The paths of the endpoints.
const (
	Path       = "/login"
	WhoamiPath = "/whoami"
)

// Request asks for a login token: with a name and a password, with a login
// token that is to be renewed, or with a JWT of an issuer that is to be exchanged for
// one with a scope.
type Request struct {
	// Directory is the name of the directory, "" for the only one.
	Directory string `json:"directory,omitempty"`
	Username  string `json:"username,omitempty"`
	Password  string `json:"password,omitempty"`
	Token     string `json:"token,omitempty"`
	// Scope is the name of a scope that narrows the session, "" for none. A renewal keeps the scope of the session.
	Scope string `json:"scope,omitempty"`
}

// Issued is a new login token.
type Issued struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
	// SessionEnds is until when the token can be renewed, also when it has
	// expired.
	SessionEnds time.Time                 `json:"sessionEnds"`
	User        authenticationv1.UserInfo `json:"user"`
}

// Failure is why there is no token, or no answer.
type Failure struct {
	// Reason is a word of authn.Reason, or of this package.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
	// RetryAfterSeconds is positive if trying again after it may help.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
}

// Answer is what Gatehouse says about a token.
type Answer struct {
	// Outcome is "yes", "no" or "unknown".
	Outcome string `json:"outcome"`
	// Reason is a word of authn.Reason, and Message says it in a sentence, with
	// what to do about it. An access token of another secret than that of its id
	// is said to be unknown, as one of an unknown id is.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// User is the identity as the API server sees it, for a yes.
	User *authenticationv1.UserInfo `json:"user,omitempty"`
	// Backend is the authenticator that the token was for, and Source where the
	// identity comes from: "access-tokens", a directory, the URL of an issuer.
	Backend string `json:"backend,omitempty"`
	Source  string `json:"source,omitempty"`
	// TokenID is the public id of the token.
	TokenID string `json:"tokenID,omitempty"`
	// IssuedAt and ExpiresAt are given for a yes, as far as they are known.
	IssuedAt  *time.Time `json:"issuedAt,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// GroupOrigins are where the groups come from, if not all of them are in the token.
	GroupOrigins []authn.GroupOrigin `json:"groupOrigins,omitempty"`
	// Grants are those that give groups now.
	Grants []authn.ActiveGrant `json:"grants,omitempty"`
}
