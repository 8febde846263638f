package authn

import (
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// ErrNoAccount is a Directory's answer for a name that no entry has, or more than
// one, and for an entry that is not a whole account or may not log in: disabled,
// or without an attribute that is configured. What wraps it says which, and never
// holds what was typed.
var ErrNoAccount = errors.New("no account has this name, or several do")

// ErrWrongPassword is a Directory's answer for a password that is not the
// account's, and for an account that may not log in: locked, expired.
var ErrWrongPassword = errors.New("wrong password")

// ErrPasswordSent is part of an error of Directory.Verify after which the result is not
// known, but the directory may have checked the password. The attempt counts as failed:
// otherwise a caller that hangs up in time could guess without limit.
var ErrPasswordSent = errors.New("the password was sent")

// Account is the entry of a user in a Directory.
type Account struct {
	// Key names the entry in one way, whatever was typed: by the permanent id that
	// the directory gives it, which stays when the entry is renamed and which no
	// later entry of the same DN has; of a directory without such ids, by the
	// normalised DN.
	Key string
	// DN is the entry's distinguished name as the directory gives it.
	DN string
	// User is the user name, uid and extra from the entry's attributes, without
	// prefixes and without groups.
	User authenticationv1.UserInfo
	// Member is the value by which groups name the entry.
	Member string
}

// Directory is a service that checks passwords. It is safe for concurrent use.
// All errors but ErrNoAccount and ErrWrongPassword mean "cannot decide"; they name servers
// and no secret, and are for the operator.
type Directory interface {
	// Find returns the one account of the name, or ErrNoAccount.
	Find(ctx context.Context, name string) (*Account, error)
	// Verify checks the account's password. For a nil account it does the same work and
	// returns ErrWrongPassword or another error, so that the time does not reveal which
	// names exist.
	Verify(ctx context.Context, account *Account, password string) error
	// Groups returns the groups of the account, sorted, each once.
	Groups(ctx context.Context, account *Account) ([]string, error)
}

// NamedDirectory is a Directory and what is configured of it.
type NamedDirectory struct {
	// Source is the file and document that it was read from, for messages, and
	// Field the path in there, "directories[0]".
	Source, Field string
	// Config is the configuration. Its prefixes are put before names here.
	Config *v1alpha1.Directory
	// Directory may be nil without logins, such as offline.
	Directory Directory
}

// LoginRequest is a request to log in with a password, to renew a login token, or to exchange a JWT.
type LoginRequest struct {
	// Directory is the name of the directory; "" is the only one.
	Directory string
	// Username and Password are as they were typed.
	Username, Password string
	// Token is a login token that is to be renewed, instead of name and password.
	// It may have expired, as long as its session has not. Or it is a JWT of an issuer, which is exchanged for
	// a login token with a scope.
	Token string
	// Scope is the name of a scope that narrows the session, "" for none. A renewal keeps the scope of the session: it is an
	// error to ask for another one, unless the session has none.
	Scope string
}

// LoginDecision is the result of a LoginRequest.
type LoginDecision struct {
	Outcome Outcome
	Reason  Reason
	// Directory is the name of the directory, or the URL of the issuer of a JWT. It is the string of the configuration, "" if there
	// is no such one.
	Directory string
	// Token is a new login token, for a Yes only. It is a secret.
	Token string
	// TokenID is the public id in the token.
	TokenID string
	// ExpiresAt is when the token ends, and SessionEnds until when it can be
	// renewed.
	ExpiresAt, SessionEnds time.Time
	// User is the identity, for a Yes; for a No of the guard, what it refused; and
	// of a token that is not renewed, that of the token.
	User authenticationv1.UserInfo
	// Message is for the person who logs in: what happened and what to do. It does not
	// reveal whether an account exists.
	Message string
	// Detail is for the operator's log: names of accounts and servers, no secret.
	Detail string
	// Failed reports whether the attempt counts as a failed guess: the name or the
	// password is wrong, or the directory may have checked the password with an unknown
	// result.
	Failed bool
}
